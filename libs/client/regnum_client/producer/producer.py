"""Writes records: batched, idempotent, in order, across changes of leader.

A record goes into the open batch of its partition (``accumulator``); the ``sender`` takes the batch when it can go,
puts it into the partition's line (``lane``) and carries it to the leader; its end is told through ``outcomes``. This
module is the door.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Annotated, Any, Final, Literal, Self

from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import NO_LEADER
from regnum_service.channel import Channels
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import RegnumError
from regnum_service.tls.files import TlsFiles
from regnum_telemetry import tracing

from regnum_client.allowed import Between, check_fields, checked, checks_arguments
from regnum_client.cluster.bootstrap import bootstrap_addresses
from regnum_client.cluster.connections import Connections
from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.security.channels import channels_to
from regnum_client.cluster.view import TopicView
from regnum_client.errors import ClientClosedError
from regnum_client.producer.batches.accumulator import Accumulator
from regnum_client.producer.batches.partitioner import StickyRoundRobin, partition_for_key
from regnum_client.producer.calls import Failpoints
from regnum_client.producer.outage_watch import PLACES_MAX, OutageWatch, places_in
from regnum_client.producer.outcomes import Outcomes, Receipt
from regnum_client.producer.sender import Sender
from regnum_client.records import RecordMetadata, TopicPartition
from regnum_client.tasks import Closing, Tasks
from regnum_client.traces import ensure_traces

RECORD_OVERHEAD_BYTES: Final = 64
"""What a record takes from the buffer besides its key, value and headers."""
CLOSE_IN_FAILURE_S: Final = 1.0
"""How long ``async with`` waits for open records when its body has failed."""
IN_FLIGHT_MAX: Final = 5
"""Batches of one producer and partition that a broker remembers."""
LEADERLESS_MAX: Final = 32
"""Partitions without a leader that one record without a key passes over: where none has one, a look at all of them for
each record would hold the event loop."""
_PLAIN: Final = frozenset({bytes, type(None)})
"""Types of keys and values that need no closer look."""
TIMESTAMP_MS_MAX: Final = 2**63 - 1
"""A timestamp is an int64."""
_ACKS: Final = {-1: log_pb2.ACKS_ALL, "all": log_pb2.ACKS_ALL, 1: log_pb2.ACKS_LEADER, 0: log_pb2.ACKS_NONE}
"""Kafka's numbers and the values of the wire, where 0 has another meaning: a client that says nothing gets all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How a producer behaves. The defaults lose nothing and duplicate nothing.

    >>> settings = ProducerSettings(compression="zstd", linger_ms=20.0, batch_bytes=256 * 1024)
    >>> producer = Producer(bootstrap, settings=settings)
    >>> as_json = ProducerSettings(value_serializer=lambda value: json.dumps(value).encode())
    """

    acks: Literal[-1, 0, 1, "all"] = -1
    """-1, or "all": every in-sync replica has the record; 1: the leader has it; 0: no wait."""
    idempotent: bool = True
    """Repeats are recognised by the broker. Counts with acks -1 only."""
    linger_ms: Annotated[float, Between(0)] = 5.0
    """How long a batch waits for more records. A batch that cannot be sent then, because one
    of its partition is under way, goes on taking records."""
    batch_bytes: Annotated[int, Between(1)] = 64 * 1024
    """A batch this large is sent at once, also while others of its partition are under way. At most what the broker
    takes (1 MiB by default)."""
    batch_bytes_max: Annotated[int, Between(0)] = 1_000_000
    """One that has to wait all the same, because ``in_flight_max`` calls are under way, goes on taking records up to
    this size, or what its topic takes. 0: no batch grows beyond ``batch_bytes``."""
    buffer_bytes: Annotated[int, Between(1)] = 24 * 1024 * 1024
    """Records not yet acknowledged, in all; beyond it ``send`` waits. Whoever writes faster than brokers take it waits
    in here: 1.3 s at 20 MB/s."""
    buffer_wait_s: Annotated[float, Between(0)] = 60.0
    """How long ``send`` waits for room before BufferFullError."""
    topic_wait_s: Annotated[float, Between(0)] = 5.0
    """How long ``send`` waits for a topic that the brokers do not know yet."""
    delivery_timeout_s: Annotated[float, Between(0, above=True)] = 120.0
    """From ``send`` to the acknowledgement, all retries included; then DeliveryTimeoutError. A batch fails as a whole:
    a record that joined one that could not be sent has up to a tenth less."""
    request_timeout_s: Annotated[float, Between(0, above=True)] = 30.0
    """Deadline of one produce call."""
    in_flight_max: Annotated[int, Between(1)] = 5
    """Batches of one partition, and produce calls of less than 50 ms to one broker, that are under way at once. At most
    5 when idempotent: brokers remember five batches."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None = "none"
    """Codec of the batches; None: as "none"."""
    key_serializer: Callable[[Any], bytes | None] | None = None
    """Makes the bytes of keys; None: keys are bytes. It is not asked where there is no key."""
    value_serializer: Callable[[Any], bytes | None] | None = None
    """The same for values; None for a value is a tombstone, and no serializer is asked."""
    metadata_watch: bool = True
    """A broker tells of new leaders by itself, where it can; without, they are asked for when something failed."""

    def __post_init__(self) -> None:
        """Raises INVALID_CONFIG for what a producer cannot be told."""
        check_fields(self)
        if self.numbers_batches and self.in_flight_max > IN_FLIGHT_MAX:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_CONFIG,
                f"ProducerSettings.in_flight_max is {self.in_flight_max}; give 1 to {IN_FLIGHT_MAX}: brokers remember"
                " so many batches of an idempotent producer",
            )

    @property
    def numbers_batches(self) -> bool:
        """Whether repeats are recognised: it is idempotent, and waits for all in-sync replicas."""
        return self.idempotent and self.acks in (-1, "all")

    def key_bytes(self, key: Any) -> Any:
        """A key as it is sent."""
        return key if key is None or self.key_serializer is None else self.key_serializer(key)

    def value_bytes(self, value: Any) -> Any:
        """A value as it is sent."""
        return value if value is None or self.value_serializer is None else self.value_serializer(value)


@checks_arguments(but=("send",))
class Producer:
    """Writes records to topics. One event loop, any number of tasks.

    Records of one partition are written in the order of their ``send``, each once (acks -1 and idempotent, the
    defaults).

    >>> async def main() -> None:
    ...     async with Producer(bootstrap) as producer:
    ...         delivery = await producer.send("greetings", b"hello", key=b"world")
    ...         print((await delivery).topic)
    >>> asyncio.run(main())
    greetings
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        settings: ProducerSettings | None = None,
        client_id: str = "regnum-producer",
        clock: Clock | None = None,
        chance: random.Random | None = None,
        channels: Channels | None = None,
        tls: TlsFiles | None = None,
        failpoints: Failpoints | None = None,
    ) -> None:
        if failpoints is not None:
            # For tests of traces; nothing of it is loaded otherwise.
            from regnum_client.failpoints import FailpointChannels  # noqa: PLC0415

            channels = FailpointChannels(channels or channels_to(bootstrap, tls), failpoints)
        self._failpoints: Final = failpoints
        self._bootstrap: Final = bootstrap
        self._settings: Final = settings or ProducerSettings()
        self._client_id: Final = client_id
        self._clock: Final[Clock] = clock or SystemClock()
        self._chance: Final = chance or random.Random()
        self._connections: Final = Connections(channels or channels_to(bootstrap, tls))
        self._partitioner: Final = StickyRoundRobin(self._chance.randrange(1 << 20))
        self._outcomes: Final = Outcomes(
            buffer_bytes=self._settings.buffer_bytes, delivery_timeout_s=self._settings.delivery_timeout_s
        )
        self._accumulator: Final = Accumulator[Receipt](
            batch_bytes=self._settings.batch_bytes,
            batch_bytes_max=self._settings.batch_bytes_max,
            codec=self._settings.compression or "none",
            linger_s=self._settings.linger_ms / 1000,
            delivery_timeout_s=self._settings.delivery_timeout_s,
            on_turned=self._batch_turned,
        )
        self._tasks: Final = Tasks("producer")
        self._tasks.listen(self._outcomes.fail)
        self._outages = OutageWatch(tracing.NoTracer())
        self._metadata: Metadata | None = None
        self._sender: Sender | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._closing: Final = Closing()

    async def start(self) -> None:
        """Find the cluster. Raises RegnumError when no broker answers within ``topic_wait_s``."""
        settings = self._settings
        await ensure_traces(self._client_id)
        self._outages = OutageWatch(tracing.tracer())
        metadata = Metadata(
            bootstrap_addresses(self._bootstrap),
            self._connections,
            clock=self._clock,
            chance=self._chance,
            client_id=self._client_id,
            watches=settings.metadata_watch,
            tasks=self._tasks,
        )
        self._sender = Sender(
            self._connections,
            metadata,
            self._outcomes,
            self._accumulator,
            clock=self._clock,
            chance=self._chance,
            client_id=self._client_id,
            acks=_ACKS[settings.acks],
            idempotent=settings.numbers_batches,
            in_flight_max=settings.in_flight_max,
            request_timeout_s=settings.request_timeout_s,
            outages=self._outages,
            tasks=self._tasks,
            failpoints=self._failpoints,
        )
        metadata.listen(self._outcomes.wake)
        metadata.idle.release = self._release
        await metadata.start(timeout_s=settings.topic_wait_s)
        self._metadata = metadata
        self._task = self._tasks.start("producer-sender", self._run(self._sender))

    async def close(self, *, wait_s: float | None = None) -> None:
        """Send what is buffered, wait for it (``wait_s`` at most), close the connections.

        What is not acknowledged by then, or when this is cancelled, fails with ClientClosedError. One who is cancelled
        again does not wait for the connections, and they are closed all the same; a further call waits for it.
        """
        if self._task is None:
            return
        self._closed = True
        self._accumulator.close_all()
        self._outcomes.wake()
        try:
            async with asyncio.timeout(wait_s):
                await self._outcomes.all_ended()
        except TimeoutError:
            pass
        finally:
            await self._closing.ended(self._tear_down)

    async def stop(self) -> None:
        """The same as ``close``, as aiokafka calls it."""
        await self.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(wait_s=None if kind is None else CLOSE_IN_FAILURE_S)

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Buffer one record; the future that comes back ends when the brokers have it (or have refused it).

        Key and value are bytes or None, or what the serializers of the settings take; what these raise is raised.
        Without a partition, the key's hash chooses it as Kafka's Java client does; without a key, batches go round
        among partitions that have a leader and take them. Waits while the buffer is full. Raises BufferFullError, or
        UNKNOWN_TOPIC_OR_PARTITION for a topic that does not exist, INVALID_CONFIG for what can be no record, and
        BackgroundTaskError.
        """
        metadata, settings = self._open(), self._settings
        key, value = settings.key_bytes(key), settings.value_bytes(value)
        if not _is_plain(topic, value, key, partition, headers, timestamp_ms):
            _check_record(topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms)
        view = metadata.view.topics.get(topic)
        if view is None:
            view = await metadata.topic(topic, timeout_s=self._settings.topic_wait_s)
        if partition is not None and partition not in view.partitions:
            # It may have been added since.
            known = await metadata.topics([topic], timeout_s=self._settings.topic_wait_s)
            view = known.get(topic, view)
        size_bytes = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        if headers:
            size_bytes += sum(len(name) + len(content or b"") for name, content in headers)
        if not self._outcomes.has_room(size_bytes):
            sender = self._sender
            because = (lambda: "") if sender is None else sender.waits_because
            await self._outcomes.room(size_bytes, wait_s=self._settings.buffer_wait_s, because=because)
        self._open()
        # From here on nothing awaits: records of one caller stay in order.
        number = self._choose(view, key, partition)
        timestamp = self._clock.wall_ms() if timestamp_ms is None else timestamp_ms
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        idle = self._accumulator.next_ready_s is None
        batch = self._accumulator.append(
            TopicPartition(topic, number),
            key=key,
            value=value,
            headers=tuple(headers),
            timestamp_ms=timestamp,
            receipt=(future, timestamp),
            size_bytes=size_bytes,
            now_s=self._clock.monotonic(),
        )
        if headers and self._outages.enabled and len(batch.places) < PLACES_MAX:
            batch.places += places_in(headers)
        self._outcomes.take_in(batch, size_bytes)
        if self._accumulator.has_more or (idle and self._accumulator.next_ready_s is not None):
            self._outcomes.wake()
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send one record, and wait until the brokers have it. Raises as ``send``, and what its future raises.

        Given up (cancelled), the record may be in the log all the same. For one record now and then: one after
        another, each waits for its own call.
        """
        return await (
            await self.send(topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms)
        )

    async def check_topic(self, topic: str, *, partition: int | None = None) -> int:
        """The number of partitions of a topic. Raises UNKNOWN_TOPIC_OR_PARTITION, as ``send`` would."""
        view = await self._open().topic(topic, timeout_s=self._settings.topic_wait_s)
        self._choose(view, None, partition)
        return len(view.partitions)

    async def flush(self) -> None:
        """Send everything that is buffered now and wait until every future of it has ended, well or badly."""
        self._open()
        self._accumulator.close_all()
        self._outcomes.wake()
        await self._outcomes.all_ended()
        self._tasks.check()

    @property
    def batches_split(self) -> int:
        """Batches that were too large for their topics and went as two; a smaller batch_bytes avoids it.

        Nothing is lost or doubled by it. A record that is too large by itself fails with MESSAGE_TOO_LARGE, alone.
        """
        return self._outcomes.batches_split

    @property
    def batches_throttled(self) -> int:
        """Times that a leader had no room for a batch (THROTTLING_QUOTA_EXCEEDED), and it was sent again later.

        Nothing is lost or doubled by it, and order is kept.
        """
        return self._outcomes.batches_throttled

    @property
    def throttle_time_s(self) -> float:
        """Seconds for which leaders asked this producer to wait, for their memory or for a quota, all added up."""
        return 0.0 if self._sender is None else self._sender.throttles.told_s

    def _choose(self, view: TopicView, key: bytes | None, partition: int | None) -> int:
        topic, partitions = view.name, len(view.partitions)
        if partition is not None:
            if not 0 <= partition < partitions:
                raise RegnumError(
                    errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {topic!r} has no partition {partition}; it has 0 to {partitions - 1}",
                    metadata={"topic": topic, "partition": str(partition)},
                )
            return partition
        if key is not None:
            return partition_for_key(key, partitions)
        number = self._partitioner.current(topic, partitions)
        for _ in range(min(partitions, LEADERLESS_MAX)):
            state = view.partitions.get(number)
            if state is not None and state.leader != NO_LEADER:
                break
            self._partitioner.batch_turned(topic, number, partitions)
            number = self._partitioner.current(topic, partitions)
        return number

    def _batch_turned(self, partition: TopicPartition) -> None:
        view = None if self._metadata is None else self._metadata.view.topics.get(partition.topic)
        if view is not None:
            self._partitioner.batch_turned(partition.topic, partition.partition, len(view.partitions))

    def _release(self, topics: Sequence[str], now_s: float) -> Mapping[str, float]:
        if self._sender is None:
            return dict.fromkeys(topics, now_s)
        used = self._sender.paths.release(topics, now_s)
        for topic in topics:
            if topic not in used:
                self._partitioner.forget(topic)
                self._accumulator.forget(topic)
        return used

    def _open(self) -> Metadata:
        if self._closed or self._metadata is None:
            raise ClientClosedError("producer")
        self._tasks.check()
        return self._metadata

    async def _run(self, sender: Sender) -> None:
        while True:
            sender.take_in(self._clock.monotonic())
            pause_s = sender.turn()
            next_s = self._accumulator.next_large_s
            ready_s = self._accumulator.next_ready_s
            if ready_s is not None:
                next_s = min(next_s, ready_s)
            pause_s = min(pause_s, max(0.0, next_s - self._clock.monotonic()))
            if pause_s > 0:
                await self._outcomes.woken(pause_s)
            else:
                await asyncio.sleep(0)

    async def _tear_down(self) -> None:
        # Each step whatever becomes of those before it: they are given in the opposite order.
        async with AsyncExitStack() as steps:
            steps.push_async_callback(self._connections.close)
            if self._metadata is not None:
                steps.push_async_callback(self._metadata.close)
            steps.callback(self._outcomes.abandon)
            if self._sender is not None:
                steps.push_async_callback(self._sender.close)
            if self._task is not None:
                await self._tasks.end(self._task)


def _is_plain(
    topic: object, value: object, key: object, partition: object, headers: object, timestamp_ms: object
) -> bool:
    """Whether it is a record at first sight, as nearly all are: a close look costs more than to send it."""
    return (
        type(topic) is str
        and type(value) in _PLAIN
        and type(key) in _PLAIN
        and (partition is None or (type(partition) is int and partition >= 0))
        and (timestamp_ms is None or (type(timestamp_ms) is int and 0 <= timestamp_ms <= TIMESTAMP_MS_MAX))
        and (not headers or (isinstance(headers, list | tuple) and all(map(_is_plain_header, headers))))
    )


def _is_plain_header(header: object) -> bool:
    return type(header) is tuple and len(header) == 2 and type(header[0]) is str and type(header[1]) in _PLAIN


@checked
def _check_record(
    topic: str,
    value: bytes | None,
    *,
    key: bytes | None,
    partition: Annotated[int, Between(0)] | None,
    headers: Sequence[tuple[str, bytes | None]],
    timestamp_ms: Annotated[int, Between(0, TIMESTAMP_MS_MAX)] | None,
) -> None:
    """Raises INVALID_CONFIG for what can be no record; the annotations say what can."""
