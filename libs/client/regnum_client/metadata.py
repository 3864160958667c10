"""Keeps the picture of the cluster fresh.

Goals: a change of leader is known within some ten milliseconds of being known to any broker, and no broker is asked
more than needed.
Constraints: the broker that is asked may be dead, frozen, or behind; all others may be too.
Algorithm: one task asks, whoever wants to know waits for it (single flight, at most one question each 20 ms). It asks
the broker that
answered last; when that one has not answered within 100 ms the next one is asked as well, and the first good answer
counts. A
broker that somebody found unreachable goes to the end. When all known brokers fail, the bootstrap addresses are tried.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from regnum.metadata.v1.metadata_pb2 import GetMetadataRequest, GetMetadataResponse
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_model.topics import InvalidTopicNameError, check_topic_name
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.cluster_view import ClusterView, TopicView, merge
from regnum_client.connections import Connections, call
from regnum_client.pace import retry_delay_ms

PACE_S: Final = 0.02
"""Between two questions at least."""
HEDGE_S: Final = 0.1
"""After so long without an answer another broker is asked as well."""
ANSWER_S: Final = 2.0
"""Deadline of one question."""
MERGED_ON_LOOP_MAX: Final = 1_000
"""Topics and partitions of an answer that is taken up without a thread."""
AGE_MAX_S: Final = 60.0
"""A picture this old is fetched anew without a reason, so that new partitions are noticed."""


class Metadata:
    """The picture of the cluster, and the task that refreshes it."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        connections: Connections,
        *,
        clock: Clock,
        chance: random.Random,
        client_id: str,
    ) -> None:
        self._bootstrap: Final = tuple(bootstrap)
        self._connections: Final = connections
        self._clock: Final = clock
        self._chance: Final = chance
        self._header: Final = RequestHeader(client_id=client_id)
        self._view = ClusterView()
        self._topics: set[str] = set()
        self._all_topics = False
        self._last_good: Address | None = None
        self._suspects: set[Address] = set()
        self._wanted = asyncio.Event()
        self._news: asyncio.Future[None] | None = None
        self._listeners: list[Callable[[], None]] = []
        self._last_error: RegnumError | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def view(self) -> ClusterView:
        """The newest picture."""
        return self._view

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after every refresh."""
        self._listeners.append(listener)

    async def start(self, *, timeout_s: float) -> None:
        """Get the first picture. Raises what the last broker answered when none does in the time."""
        self._task = asyncio.create_task(self._keep_fresh(), name="client-metadata")
        self.request()
        await self.newer_than(float("-inf"), timeout_s=timeout_s)

    async def close(self) -> None:
        """Stop refreshing."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def request(self) -> None:
        """Refresh soon."""
        self._wanted.set()

    def suspect(self, address: Address) -> None:
        """Somebody could not reach that broker: ask the others first."""
        self._suspects.add(address)

    async def newer_than(self, moment_s: float, *, timeout_s: float) -> ClusterView:
        """A picture asked for after that monotonic time. Raises RegnumError when there is none in time."""
        deadline_s = self._clock.monotonic() + timeout_s
        while self._view.as_of_s <= moment_s:
            self.request()
            left_s = deadline_s - self._clock.monotonic()
            if left_s <= 0 or not await self._news_within(left_s):
                raise self._last_error or RegnumError(
                    errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
                    f"no broker answered within {timeout_s:g} s; check the bootstrap addresses and `regnum status`",
                )
        return self._view

    async def topic(self, name: str, *, timeout_s: float) -> TopicView:
        """A topic, waited for while brokers do not know it yet. Raises UNKNOWN_TOPIC_OR_PARTITION.

        And INVALID_TOPIC_EXCEPTION for what can be no topic's name.
        """
        try:
            check_topic_name(name)
        except InvalidTopicNameError as error:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION,
                f"{error}; see `regnum topics list` for the names there are",
                metadata={"topic": name},
            ) from error
        self._topics.add(name)
        deadline_s = self._clock.monotonic() + timeout_s
        began_s = self._clock.monotonic()
        view = self._view
        while name not in view.topics:
            now_s = self._clock.monotonic()
            if view.as_of_s > began_s and now_s >= deadline_s:
                raise RegnumError(
                    errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {name!r} does not exist; create it with `regnum topics create {name}`, "
                    "or see `regnum topics list`",
                    metadata={"topic": name},
                )
            view = await self.newer_than(max(began_s, view.as_of_s), timeout_s=max(deadline_s - now_s, ANSWER_S))
        return view.topics[name]

    async def all_topics(self, *, timeout_s: float) -> ClusterView:
        """A fresh picture of everything."""
        self._all_topics = True
        return await self.newer_than(self._clock.monotonic(), timeout_s=timeout_s)

    async def _news_within(self, seconds: float) -> bool:
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait({self._news}, timeout=seconds)
        return bool(done)

    async def _keep_fresh(self) -> None:
        trouble_since_s: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGE_MAX_S):
                    await self._wanted.wait()
            self._wanted.clear()
            asked_s = self._clock.monotonic()
            asked = None if self._all_topics else sorted(self._topics)
            try:
                answer = await self._ask(asked)
            except RegnumError as error:
                self._last_error = error
                if trouble_since_s is None:
                    trouble_since_s = asked_s
                self._wanted.set()
                await self._clock.sleep(
                    retry_delay_ms((self._clock.monotonic() - trouble_since_s) * 1000, self._chance.random()) / 1000
                )
                continue
            trouble_since_s = None
            await self._take(await merged(self._view, answer, asked=asked, as_of_s=asked_s))
            await self._clock.sleep(PACE_S)

    async def _take(self, view: ClusterView) -> None:
        before = self._view
        self._view = view
        self._last_error = None
        if self._news is not None:
            self._news.set_result(None)
            self._news = None
        for listener in self._listeners:
            listener()
        for broker_id, broker in view.brokers.items():
            known = before.brokers.get(broker_id)
            if known is not None and known.epoch != broker.epoch:
                # A new incarnation: the old connection is dead or waits out its back-off.
                self._suspects.discard(broker.address)
                if known.address != self._last_good:
                    await self._connections.drop(known.address)

    def candidates(self) -> list[Address]:
        """Brokers to ask anything, the most promising first."""
        known = [broker.address for broker in self._view.brokers.values()]
        self._chance.shuffle(known)
        known += [address for address in self._bootstrap if address not in known]
        known.sort(key=lambda address: (address in self._suspects, address != self._last_good))
        return known

    async def _ask(self, topics: Collection[str] | None) -> GetMetadataResponse:
        request = GetMetadataRequest(header=self._header, topics=topics, brokers_only=topics is not None and not topics)
        candidates = iter(self.candidates())
        asked: dict[asyncio.Task[GetMetadataResponse], Address] = {}
        last_error = RegnumError(
            errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "no broker to ask; give bootstrap addresses"
        )
        try:
            while True:
                address = next(candidates, None)
                if address is not None:
                    asked[asyncio.create_task(self._ask_one(address, request), name=f"metadata-{address}")] = address
                elif not asked:
                    raise last_error
                done, _ = await asyncio.wait(
                    asked, timeout=None if address is None else HEDGE_S, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    answered = asked.pop(task)
                    try:
                        answer = task.result()
                    except RegnumError as error:
                        self._suspects.add(answered)
                        last_error = error
                    else:
                        self._suspects.discard(answered)
                        self._last_good = answered
                        return answer
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _ask_one(self, address: Address, request: GetMetadataRequest) -> GetMetadataResponse:
        answer = await call(self._connections.metadata(address).GetMetadata, request, timeout_s=ANSWER_S)
        if not answer.brokers:
            raise RegnumError(
                errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
                f"the broker at {address} has not heard from a controller yet; wait, or see `regnum status`",
            )
        return answer


async def merged(
    known: ClusterView, answer: GetMetadataResponse, *, asked: Collection[str] | None, as_of_s: float
) -> ClusterView:
    """``merge``, which is done on a thread when there is much of it: loops of applications stay free."""
    work = partial(merge, known, answer, asked=asked, as_of_s=as_of_s)
    weight = len(answer.topics) + sum(len(item.topic.partitions) for item in answer.topics)
    return work() if weight < MERGED_ON_LOOP_MAX else await asyncio.to_thread(work)
