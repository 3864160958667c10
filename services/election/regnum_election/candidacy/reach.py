"""Which candidate is fit for office: one that reaches brokers goes before one that does not (safety rule S9).

Goals
    A controller that is cut off from every broker, though not from the store, does not stay in office while another
    candidate could do the work. A cluster whose brokers were all killed, or where no candidate reaches any, keeps the
    controller that it has.

Constraints
    Silence looks the same whoever is at fault, so the controller's own ears decide nothing: a candidate that does
    reach a broker has to say so. A refused connection is an answer. Nobody may be kept out of office for ever, and two
    processes that disagree must not throw one another out in turns.

Algorithm
    ``Isolation`` (in a reign): registered brokers exist, and for ISOLATION_S none was heard on its lifeline and none
    answered an attempt to connect. It tries once more itself, then asks all other candidates at once. When one reaches
    a broker, the reign ends.
    ``Reach.hesitate`` (before a win is written): a candidate that reaches none of the registered brokers waits
    HESITATION_S, so that one that does wins first. That holds for the one that has just resigned as well. A standby
    that proved the controller dead looks before it fences (``Reach.prepare``) and campaigns without a second look.
    Who resigned for this reason a short while ago waits twice as long before it does so again, so that a candidate
    that reaches brokers and cannot win does not make the office change hands all the time.

Example: the controller is cut from the brokers at 0 s. At 3 s it has heard of none; an attempt takes 0.5 s; another
candidate reaches broker 2. It resigns at 3.6 s; the other wins at once, while it waits until 6.1 s and finds it in
office.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

import grpc
import structlog
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum_coordination.errors import ConnectionLoss, NoNode, SessionExpired
from regnum_coordination.port import Node, Store
from regnum_model import paths
from regnum_model.contact import Contact
from regnum_model.ids import BrokerId, ElectionId
from regnum_model.nodes import Address, BrokerNode, ElectionNode, MalformedNodeError
from regnum_service.channel import Open, open_channel
from regnum_service.clock import Clock
from regnum_service.detection import Probe

from regnum_election.decisions.liveness import isolation_patience_s
from regnum_election.reign.reign import DeposedError

T = TypeVar("T")

HESITATION_S: Final = 2.0
"""How much longer a candidate that reaches no broker waits before it campaigns."""

PROBED_MAX: Final = 32
"""Brokers that are tried at a time, chosen by chance."""

LOOK_INTERVAL_S: Final = 0.25
"""Time between two looks of a controller at how long it has heard of nobody."""

ASK_INTERVAL_S: Final = 1.0
"""Pause before other candidates are asked again."""

ASK_TIMEOUT_S: Final = 1.5
"""Deadline of one question."""

ID_DIGITS_MAX: Final = 10
"""Digits of the largest id."""

FRESH_S: Final = 1.0
"""How long a look that found a broker counts."""

READ_TIMEOUT_S: Final = 0.5
"""How long a candidate waits for the list of brokers before it campaigns without."""

Ask = Callable[[Address], Awaitable[BrokerId | None]]
"""Asks the candidate with that internal listener for a broker that it reaches; None: it reaches none, or is silent."""


class Reach:
    """Attempts of this process to connect to brokers. Belongs to the event loop."""

    def __init__(self, *, probe: Probe, clock: Clock, chance: random.Random) -> None:
        self._probe = probe
        self._clock = clock
        self._chance = chance
        self._looking: asyncio.Task[BrokerId | None] | None = None
        self._fit_s = float("-inf")
        self._log = structlog.get_logger("reach")

    async def first_of(self, brokers: Mapping[BrokerId, Address]) -> BrokerId | None:
        """A broker that answers; None when none of those tried does."""
        tried = self._chance.sample(sorted(brokers), min(len(brokers), PROBED_MAX))

        async def reached(id: BrokerId) -> BrokerId | None:
            return None if await self._probe(brokers[id]) is Contact.NO_ANSWER else id

        return await first_found([reached(id) for id in tried])

    async def prepare(self, store: Store) -> bool:
        """Look whether this process is fit for office, so that ``hesitate`` need not; False: no broker is reached.

        For a standby that is about to fence the controller: who has looked before the office is free takes it before
        one that has not. Raises SessionExpired.
        """
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                brokers = await registered_brokers(store)
        except (ConnectionLoss, TimeoutError):
            return True
        if brokers and await self.first_of(brokers) is None:
            return False
        self._fit_s = self._clock.monotonic()
        return True

    async def hesitate(self, store: Store) -> None:
        """Wait a while if no registered broker can be reached from here. Raises SessionExpired."""
        if self._clock.monotonic() - self._fit_s < FRESH_S:
            return
        if not await self.prepare(store):
            self._log.warning("no broker reached; others may win first", wait_s=HESITATION_S)
            await self._clock.sleep(HESITATION_S)

    async def for_others(self, store: Store) -> BrokerId | None:
        """A registered broker that is reached from here; all who ask at the same time share one look."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(store), name="reach brokers for others")
        return await asyncio.shield(self._looking)

    async def _look(self, store: Store) -> BrokerId | None:
        try:
            return await self.first_of(await registered_brokers(store))
        except (ConnectionLoss, SessionExpired):
            # A candidate without the store could not win.
            return None


class Isolation:
    """Ends reigns of this process that no broker hears of. One for the life of the process."""

    def __init__(self, *, id: ElectionId, reach: Reach, ask: Ask, clock: Clock) -> None:
        self._id = id
        self._reach = reach
        self._ask = ask
        self._clock = clock
        self._resigned_s: list[float] = []
        self._log = structlog.get_logger("reach")

    async def watch(
        self, store: Store, *, brokers: Callable[[], Mapping[BrokerId, Address]], silent_s: Callable[[], float]
    ) -> None:
        """Raise DeposedError when another candidate had better reign.

        Args:
            store: the session of the reign.
            brokers: internal listeners of the registered brokers, as the reign knows them.
            silent_s: seconds since any of them was heard or answered.
        """
        began_s = self._clock.monotonic()
        while True:
            await self._clock.sleep(LOOK_INTERVAL_S)
            now_s = self._clock.monotonic()
            patience_s = isolation_patience_s(self._resigned_s, now_s)
            if min(silent_s(), now_s - began_s) < patience_s:
                continue
            known = brokers()
            if not known or await self._reach.first_of(known) is not None:
                continue
            witness = await self._witness(store)
            if witness is not None:
                candidate, broker = witness
                self._resigned_s = [*self._resigned_s[-4:], self._clock.monotonic()]
                raise DeposedError(
                    f"none of {len(known)} registered brokers was heard for {patience_s:g} s; election process "
                    f"{candidate} reaches broker {broker}"
                )
            self._log.warning("no broker answers, and no other candidate reaches one", brokers=len(known))
            await self._clock.sleep(ASK_INTERVAL_S)

    async def _witness(self, store: Store) -> tuple[ElectionId, BrokerId] | None:
        try:
            candidates = await other_candidates(store, self._id)
        except (ConnectionLoss, SessionExpired):
            return None

        async def asked(id: ElectionId) -> tuple[ElectionId, BrokerId] | None:
            broker = await self._ask(candidates[id])
            return None if broker is None else (id, broker)

        return await first_found([asked(id) for id in candidates])


async def first_found(looking: Sequence[Coroutine[Any, Any, T | None]]) -> T | None:
    """The first result that is not None, without waiting for the others; None when there is none."""
    tasks = [asyncio.ensure_future(one) for one in looking]
    try:
        for finished in asyncio.as_completed(tasks):
            found = await finished
            if found is not None:
                return found
        return None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def registered_brokers(store: Store) -> dict[BrokerId, Address]:
    """Internal listeners of the registered brokers. Raises ConnectionLoss, SessionExpired."""
    found: dict[BrokerId, Address] = {}
    for id, node in await _numbered(store, paths.BROKER_IDS):
        try:
            found[BrokerId(id)] = BrokerNode.decode(node.data).listeners["internal"]
        except MalformedNodeError:
            continue
    return found


async def other_candidates(store: Store, own: ElectionId) -> dict[ElectionId, Address]:
    """Internal listeners of the other election processes. Raises ConnectionLoss, SessionExpired."""
    found: dict[ElectionId, Address] = {}
    for id, node in await _numbered(store, paths.ELECTION_IDS):
        try:
            if id != own:
                found[ElectionId(id)] = ElectionNode.decode(node.data).listeners["internal"]
        except MalformedNodeError:
            continue
    return found


async def _numbered(store: Store, folder: str) -> list[tuple[int, Node]]:
    """Nodes whose names are ids; what people put there besides, or instead of the folder, is nobody's registration."""
    try:
        children = await store.children(folder)
    except NoNode:
        return []
    names = [name for name in children.names if name.isascii() and name.isdigit() and len(name) <= ID_DIGITS_MAX]
    nodes = await store.get_many([f"{folder}/{name}" for name in names])
    return [(int(name), node) for name, node in zip(names, nodes, strict=True) if node is not None]


async def ask_candidate(address: Address, open_one: Open = open_channel) -> BrokerId | None:
    """``Ask`` over gRPC."""
    async with open_one(address) as channel:
        stub: controller_pb2_grpc.ControllerServiceAsyncStub = controller_pb2_grpc.ControllerServiceStub(channel)
        try:
            answer = await stub.ProbeBrokers(controller_pb2.ProbeBrokersRequest(), timeout=ASK_TIMEOUT_S)
        except grpc.RpcError:
            return None
        return BrokerId(answer.reached_broker) if answer.HasField("reached_broker") else None
