"""Produce calls: what one carries, how long it may take, and when it gets a span."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeVar

from regnum.broker.v1.log_pb2 import Acks, ProduceRequest, ProduceResponse, ProduceStreamRequest
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.ids import BrokerEpoch, BrokerId
from regnum_model.nodes import Address
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.status import from_status
from regnum_telemetry import conventions, propagation, tracing

from regnum_client.cluster.connections import Connections, call_asking
from regnum_client.cluster.throttles import Throttles
from regnum_client.cluster.view import ClusterView, LeaderTerm
from regnum_client.producer.batches.lane import Batch
from regnum_client.producer.outage_watch import OutageWatch
from regnum_client.producer.outcomes import Receipt
from regnum_client.producer.streams import ProduceStreams
from regnum_client.records import TopicPartition
from regnum_client.tasks import Abandonable, AbandonedError, Tasks

T = TypeVar("T")

CALL_BYTES_MAX: Final = 8 * 1024 * 1024
"""A call carries no more than this, unless one batch alone is larger."""
SLOW_S: Final = 0.5
"""A call without an answer for so long is looked at."""
AGED_S: Final = 0.05
"""A call that is under way for so long waits for replicas, and not for the leader's work: it makes room for others,"""
AGED_BYTES_MAX: Final = 256 * 1024
"""while no more than this is under way to the leader: else it is the bytes that take long, and batches had better
grow."""
CALLS_MAX: Final = 32
"""Calls under way to one leader, old and young; at 64 a leader reads no more of a stream."""
SHORTEST_TIMEOUT_S: Final = 0.05
"""No call gets a deadline shorter than this."""
SPANS_OF_ORDINARY_CALLS: Final = 0.001
"""Share of ordinary produce calls that get a span, where traces are on."""


class Item(NamedTuple):
    """One batch in a call."""

    partition: TopicPartition
    """Where it goes."""
    batch: Batch[Receipt]
    """What goes there."""
    term: LeaderTerm
    """The leadership it is sent to."""


class Failpoints(Protocol):
    """Steps at which a test has this client wait: ``regnum_service.failpoints.trigger``."""

    async def reach(self, point: str, topics: Iterable[str] = ()) -> None:
        """Take a step that has no answer."""

    async def around_point(
        self, point: str, topics: Iterable[str], take: Callable[[], Awaitable[T]], broker: BrokerId | None = None
    ) -> T:
        """Take a step that has an answer; ``broker``: whose."""


class ProduceCall:
    """A produce call under way."""

    __slots__ = (
        "address",
        "answer",
        "causes",
        "incarnation",
        "items",
        "leader",
        "looked_s",
        "place",
        "send_ids",
        "sent_s",
        "size_bytes",
        "task",
    )

    def __init__(
        self, leader: BrokerId, incarnation: BrokerEpoch | None, address: Address, items: list[Item], *, sent_s: float
    ) -> None:
        self.leader: Final = leader
        self.incarnation: Final = incarnation
        """Broker epoch of the leader, as far as it was known."""
        self.address: Final = address
        self.items: Final = items
        self.sent_s: Final = sent_s
        self.size_bytes: Final = sum(item.batch.size_bytes for item in items)
        """What its batches take from the buffer."""
        self.looked_s = sent_s
        self.answer: Final = Abandonable()
        self.causes: dict[int, str] = {}
        """What made the leaderships, by place among the items, where that was asked for."""
        self.place = ""
        """Its span, as traceparent; empty: it has none."""
        self.send_ids: dict[tuple[str, int], str] = {}
        """Ids for its spans in traces of changes, by topic id and partition: of those that moved."""
        self.task: asyncio.Task[None] | None = None

    def abandon_if_moved(self, view: ClusterView, *, idempotent: bool) -> None:
        """Give it up if its partitions have other leaders by now; what is sent again has the same numbers."""
        # With numbers a repeat is safe, so those that moved need not wait with those that did not.
        moved = (has_moved(item, view) for item in self.items)
        if any(moved) if idempotent else all(moved):
            self.answer.give_up()


class CallsUnderWay:
    """Those of one producer, in the order in which they were sent."""

    def __init__(self) -> None:
        """Only assigns."""
        self._all: Final[dict[ProduceCall, None]] = {}
        self._to: Final[dict[BrokerId, dict[ProduceCall, None]]] = {}
        """The same, by leader."""

    def __iter__(self) -> Iterator[ProduceCall]:
        """All of them."""
        return iter(self._all)

    def add(self, call: ProduceCall) -> None:
        """It is sent."""
        self._all[call] = None
        self._to.setdefault(call.leader, {})[call] = None

    def ended(self, call: ProduceCall) -> None:
        """It has an answer, or none comes."""
        del self._all[call]
        del self._to[call.leader][call]

    def any_to(self, leader: BrokerId) -> bool:
        """Whether one is under way to that leader."""
        return bool(self._to.get(leader))

    @property
    def next_look_s(self) -> float:
        """When the first of them has been without an answer, or a look, for too long; infinity: there is none."""
        return min((call.looked_s + SLOW_S for call in self._all), default=float("inf"))

    def slow(self, now_s: float) -> Iterator[ProduceCall]:
        """Those that have, each once in that time."""
        for call in self._all:
            if now_s - call.looked_s >= SLOW_S:
                call.looked_s = now_s
                yield call

    def full_until_s(self, leader: BrokerId, gathered_bytes: int, *, in_flight_max: int) -> float:
        """When another may go beside those to a leader, oldest first; infinity: when one of them has ended."""
        calls = self._to.get(leader, {})
        if len(calls) >= CALLS_MAX or gathered_bytes >= CALL_BYTES_MAX:
            return float("inf")
        if len(calls) < in_flight_max:
            return float("-inf")
        if gathered_bytes + sum(call.size_bytes for call in calls) > AGED_BYTES_MAX:
            return float("inf")
        # Young are fewer than so many from the moment on at which this one is old.
        youngest = next(islice(reversed(calls), in_flight_max - 1, None))
        return youngest.sent_s + AGED_S


def has_moved(item: Item, view: ClusterView) -> bool:
    """Whether the partition of a batch has another leader, elected later than the one that it was sent to."""
    term = view.leader_term(*item.partition)
    return term is not None and term.leader != item.term.leader and term.is_after(item.term)


class ProduceCalls:
    """Makes the calls of one producer."""

    def __init__(
        self,
        connections: Connections,
        *,
        header: RequestHeader,
        acks: Acks.ValueType,
        request_timeout_s: float,
        outages: OutageWatch,
        clock: Clock,
        chance: random.Random,
        tasks: Tasks,
        failpoints: Failpoints | None = None,
    ) -> None:
        """Only assigns; ``failpoints``: for tests, where batches are sent."""
        self._failpoints: Final = failpoints
        self._connections: Final = connections
        self._streams: Final = ProduceStreams(connections, clock=clock, tasks=tasks)
        self._header: Final = header
        self._acks: Final = acks
        self._request_timeout_s: Final = request_timeout_s
        self._outages: Final = outages
        self._clock: Final = clock
        self._chance: Final = chance
        self.throttles: Final = Throttles()
        """Leaders that asked for time."""

    async def produce(self, under_way: ProduceCall) -> ProduceResponse:
        """The answer. Raises RegnumError; BROKER_NOT_AVAILABLE when the call was abandoned."""
        try:
            response = await self._produce(under_way)
        except RegnumError as error:
            self._refused(under_way.leader, error)
            raise
        self.throttles.answered(under_way.leader, response.throttle_time_ms, now_s=self._clock.monotonic())
        for result in response.results:
            if result.error_code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED:
                self._refused(under_way.leader, from_status(result.status))
                break
        return response

    def _refused(self, leader: BrokerId, error: RegnumError | None) -> None:
        """Wait as long as the leader says; it kept nothing, so the same batch goes again, with the same numbers."""
        if error is not None:
            self.throttles.refused(leader, error, now_s=self._clock.monotonic(), chance=self._chance.random())

    async def _produce(self, under_way: ProduceCall) -> ProduceResponse:
        deadline_s = min(item.batch.deadline_s for item in under_way.items)
        timeout_s = max(SHORTEST_TIMEOUT_S, min(self._request_timeout_s, deadline_s - self._clock.monotonic()))
        message = ProduceStreamRequest()
        request = message.request
        request.header.CopyFrom(self._header)
        request.acks = self._acks
        # The broker's answer is worth more than our own time-out: give it a head start.
        request.timeout_ms = max(1, int(timeout_s * 900))
        for item in under_way.items:
            request.partitions.add(
                topic=item.partition.topic,
                topic_id=item.term.topic_id,
                partition=item.partition.partition,
                record_batch=item.batch.encoded(),
            )
        try:
            return await under_way.answer.answer(self._sent(under_way, message, timeout_s))
        except AbandonedError:
            raise RegnumError(
                errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
                f"broker {under_way.leader} did not answer and no longer leads; going to the new leader",
            ) from None

    async def _sent(self, under_way: ProduceCall, message: ProduceStreamRequest, timeout_s: float) -> ProduceResponse:
        if self._failpoints is None:
            return await self._send(under_way, message, timeout_s)
        topics = [item.partition.topic for item in under_way.items]
        send = partial(self._send, under_way, message, timeout_s)
        return await self._failpoints.around_point("send", topics, send, under_way.leader)

    async def _send(self, under_way: ProduceCall, message: ProduceStreamRequest, timeout_s: float) -> ProduceResponse:
        if self._outages.enabled:
            now_unix_nano = tracing.now_unix_nano()
            for item in under_way.items:
                item.batch.sent_unix_nano = now_unix_nano
            if self._is_worth_a_span(under_way.items):
                return await self._produce_traced(under_way, message.request, timeout_s)
        return await self._streams.produce(under_way.address, message, timeout_s=timeout_s)

    async def close(self) -> None:
        """Hang up."""
        await self._streams.close()

    def _is_worth_a_span(self, items: list[Item]) -> bool:
        is_recovering = self._outages.is_recovering
        for item in items:
            if is_recovering(item.partition, item.term):
                return True
        return self._chance.random() < SPANS_OF_ORDINARY_CALLS

    async def _produce_traced(
        self, under_way: ProduceCall, request: ProduceRequest, timeout_s: float
    ) -> ProduceResponse:
        """A call that asks what made the leaderships, with a span."""
        with tracing.span(conventions.SEND, root=True) as span:
            under_way.place = span.context
            produce = self._connections.log(under_way.address).Produce
            under_way.send_ids = {
                (item.term.topic_id, item.partition.partition): self._outages.send_id()
                for item in under_way.items
                if self._outages.has_moved(item.partition, item.term)
            }
            asked = propagation.render_recovering(under_way.send_ids)
            response: ProduceResponse
            response, trailers = await call_asking(
                produce, request, timeout_s=timeout_s, ask=(propagation.RECOVERING, asked)
            )
            under_way.causes = propagation.parse_causes(trailers)
            return response
