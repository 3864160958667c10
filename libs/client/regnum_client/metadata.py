"""Keeps the picture of the cluster fresh.

Goals: a change of leader is known within some ten milliseconds of being known to any broker, and no broker is asked
more than needed.

Constraints: the broker that is asked may be dead, frozen, or behind; all others may be too. One that is cut off from
the rest answers well and is behind for as long as the cut lasts.

Algorithm: one task asks, whoever wants to know waits for it (single flight, at most one question each 20 ms). Each
question goes to another broker than the one before (``rotation``); when it has not answered within 100 ms the next
one is asked as well. An answer that is behind what is known is put aside and the next broker asked, three times at
most; if there is nothing better, it is merged for what it may add. When all known brokers fail, the bootstrap
addresses are tried. Where every answer has been behind for minutes, or about another cluster, that is the cluster
there is now (a restored store, a new one at the old addresses): versions begin anew, and leader epochs with a new
cluster id only.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from regnum.metadata.v1.metadata_pb2 import GetMetadataRequest, GetMetadataResponse
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_model.topics import InvalidTopicNameError, check_topic_name
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.cluster_view import ClusterView, LeaderTerm, TopicView, merge, with_leader
from regnum_client.connections import Connections, call
from regnum_client.pace import retry_delay_ms
from regnum_client.records import TopicPartition
from regnum_client.rotation import Rotation

PACE_S: Final = 0.02
"""Between two questions at least."""
HEDGE_S: Final = 0.1
"""After so long without an answer another broker is asked as well."""
ANSWER_S: Final = 2.0
"""Deadline of one question."""
MERGED_ON_LOOP_MAX: Final = 1_000
"""Topics and partitions of an answer that is taken up without a thread."""
BEHIND_MAX: Final = 3
"""Answers of one question that are put aside because they are behind what is known."""
SET_BACK_S: Final = 300.0
"""When all answers have been behind for so long, the newest of them is believed."""
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
        self._rotation: Final = Rotation(chance)
        self._doubted: set[Address] = set()
        self._last_good: Address | None = None
        self._behind_since_s: float | None = None
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
        """Get the first picture. Raises what the last broker answered when none does in the time.

        Then, or when it is given up, nothing is left open, the connections neither.
        """
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(self._connections.close)
            undo.push_async_callback(self.close)
            self._task = asyncio.create_task(self._keep_fresh(), name="client-metadata")
            self.request()
            await self.newer_than(float("-inf"), timeout_s=timeout_s)
            undo.pop_all()

    async def close(self) -> None:
        """Stop refreshing."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def request(self, *, doubted: Address | None = None) -> None:
        """Refresh soon; what the broker at ``doubted`` says of itself is in question, so the others are asked first."""
        if doubted is not None:
            self._doubted.add(doubted)
        self._wanted.set()

    def suspect(self, address: Address) -> None:
        """Somebody could not reach that broker: ask the others first."""
        self._rotation.suspect(address, now_s=self._clock.monotonic())

    def take_leader(self, partition: TopicPartition, term: LeaderTerm, address: Address | None) -> None:
        """A refusal named the leader; believed if its leader epoch is above the one that is known."""
        self._view = with_leader(self._view, *partition, term, address)

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
            view = await merged(self._base(answer, asked_s), answer, asked=asked, as_of_s=asked_s)
            await self._take(view)
            # From question to question: a slow answer was pause enough.
            await self._clock.sleep(max(0.0, asked_s + PACE_S - self._clock.monotonic()))

    def _base(self, answer: GetMetadataResponse, now_s: float) -> ClusterView:
        """What the answer is merged into."""
        if not self._view.is_behind(answer):
            self._behind_since_s = None
        elif self._behind_since_s is None:
            self._behind_since_s = now_s
        elif now_s - self._behind_since_s >= SET_BACK_S:
            self._behind_since_s = None
            if self._view.is_of_another_cluster(answer):
                return ClusterView()
            return replace(self._view, version=0, controller=None)
        return self._view

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
                self._rotation.clear(broker.address)
                if known.address != self._last_good:
                    await self._connections.drop(known.address)

    def candidates(self) -> list[Address]:
        """Brokers to ask anything, the most promising first."""
        return self._rotation.order(
            (broker.address for broker in self._view.brokers.values()),
            self._bootstrap,
            now_s=self._clock.monotonic(),
            doubted=self._doubted,
        )

    async def _ask(self, topics: Collection[str] | None) -> GetMetadataResponse:
        request = GetMetadataRequest(header=self._header, topics=topics, brokers_only=topics is not None and not topics)
        candidates = iter(self.candidates())
        self._doubted.clear()
        asked: dict[asyncio.Task[GetMetadataResponse], Address] = {}
        behind: list[GetMetadataResponse] = []
        last_error = RegnumError(
            errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "no broker to ask; give bootstrap addresses"
        )
        try:
            while True:
                address = next(candidates, None) if len(behind) < BEHIND_MAX else None
                if address is not None:
                    self._rotation.asked(address)
                    asked[asyncio.create_task(self._ask_one(address, request), name=f"metadata-{address}")] = address
                elif not asked or len(behind) == BEHIND_MAX:
                    return self._newest(behind, last_error)
                patient = address is None and not behind
                done, _ = await asyncio.wait(
                    asked, timeout=None if patient else HEDGE_S, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    if address is None:
                        return self._newest(behind, last_error)
                    self.suspect(address)
                for task in done:
                    answer = self._judged(task, asked.pop(task))
                    if isinstance(answer, RegnumError):
                        last_error = answer
                    elif not self._view.is_behind(answer):
                        return answer
                    else:
                        behind.append(answer)
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    def _judged(self, task: asyncio.Task[GetMetadataResponse], address: Address) -> GetMetadataResponse | RegnumError:
        """What a broker answered, noted down for the next question."""
        try:
            answer = task.result()
        except RegnumError as error:
            self.suspect(address)
            return error
        if self._view.is_behind(answer):
            self.suspect(address)
        else:
            self._rotation.clear(address)
            self._last_good = address
        return answer

    def _newest(self, behind: Sequence[GetMetadataResponse], error: RegnumError) -> GetMetadataResponse:
        """The best of answers that are all behind; raises the error when there is none."""
        if not behind:
            raise error
        return max(behind, key=lambda answer: (not self._view.is_of_another_cluster(answer), answer.version))

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
