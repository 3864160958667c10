"""A consumer's connection to a cluster, and where it stands in the partitions that it reads."""

import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Annotated, Final, Self

from regnum.types.v1 import errors_pb2
from regnum_model.ids import TopicId
from regnum_service.channel import Channels
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import RegnumError
from regnum_service.tls.files import TlsFiles
from regnum_telemetry import tracing

from regnum_client.allowed import Between
from regnum_client.cluster.bootstrap import bootstrap_addresses
from regnum_client.cluster.connections import Connections
from regnum_client.cluster.enquiry import ANSWER_S
from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.offsets import FIRST, HIGH_WATERMARK, OffsetLookup
from regnum_client.cluster.security.channels import channels_to
from regnum_client.consumer.cursor import Cursor
from regnum_client.consumer.deserializers import Deserializers
from regnum_client.consumer.fetching.fetcher import Fetcher
from regnum_client.consumer.fetching.outages import ConsumerOutages
from regnum_client.consumer.groups.session import GroupPlace, GroupSession, check
from regnum_client.consumer.positions import Offset, ResetPolicy
from regnum_client.consumer.reader import Reader
from regnum_client.consumer.settings import ConsumerSettings
from regnum_client.consumer.topics.following import FollowedPattern
from regnum_client.consumer.topics.subscriptions import Subscriptions
from regnum_client.errors import BackgroundTaskError, ClientClosedError
from regnum_client.records import TopicPartition
from regnum_client.tasks import Closing, Tasks
from regnum_client.traces import ensure_traces


class ConsumerSession:
    """An open connection, and positions. ``start`` or ``async with`` opens it."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        settings: ConsumerSettings | None = None,
        client_id: str = "regnum-consumer",
        clock: Clock | None = None,
        chance: random.Random | None = None,
        channels: Channels | None = None,
        tls: TlsFiles | None = None,
        group: GroupPlace | None = None,
    ) -> None:
        """Only assigns; ``group``: which group it is of, if any."""
        self._bootstrap: Final = bootstrap
        self._settings: Final = settings or ConsumerSettings()
        self._client_id: Final = client_id
        self._clock: Final[Clock] = clock or SystemClock()
        self._chance: Final = chance or random.Random()
        self._connections: Final = Connections(channels or channels_to(bootstrap, tls))
        self._tasks = Tasks("consumer")
        self._metadata: Metadata | None = None
        self._lookup: OffsetLookup | None = None
        self._fetcher: Fetcher | None = None
        self._reader: Reader | None = None
        self._subscriptions: Final = Subscriptions()
        self._place: Final = group
        self._group: GroupSession | None = None
        self._followed: FollowedPattern | None = None
        self._closing: Final = Closing()

    async def start(self) -> None:
        """Find the cluster. Raises RegnumError when no broker answers within ``topic_wait_s``, at least 2 s."""
        settings = self._settings
        if self._place is not None:
            check(settings)
        await ensure_traces(self._client_id)
        self._tasks = Tasks("consumer")
        metadata = Metadata(
            bootstrap_addresses(self._bootstrap),
            self._connections,
            clock=self._clock,
            chance=self._chance,
            client_id=self._client_id,
            watches=settings.metadata_watch,
            tasks=self._tasks,
        )
        self._lookup = OffsetLookup(
            self._connections,
            metadata,
            clock=self._clock,
            chance=self._chance,
            client_id=self._client_id,
            request_timeout_s=settings.request_timeout_s,
        )
        self._fetcher = Fetcher(
            self._connections,
            metadata,
            self._lookup,
            clock=self._clock,
            chance=self._chance,
            client_id=self._client_id,
            reset=ResetPolicy.of(settings.reset),
            wait_ms=settings.fetch_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            partition_max_bytes=settings.partition_max_bytes,
            buffer_bytes=settings.buffer_bytes,
            client_rack=settings.client_rack,
            request_timeout_s=settings.request_timeout_s,
            tasks=self._tasks,
            outages=ConsumerOutages(tracing.tracer()),
        )
        self._tasks.listen(self._wake_reader)
        self._reader = Reader(
            self._fetcher,
            self._tasks,
            skip_unreadable=settings.skip_unreadable,
            deserializers=Deserializers.of(settings),
        )
        metadata.listen(self._follow_topics)
        metadata.idle.release = self._release
        await metadata.start(timeout_s=max(settings.topic_wait_s, ANSWER_S))
        self._metadata = metadata
        self._fetcher.start()
        if self._place is not None:
            self._group = GroupSession(
                self._place,
                connections=self._connections,
                metadata=metadata,
                lookup=self._lookup,
                fetcher=self._fetcher,
                settings=settings,
                clock=self._clock,
                chance=self._chance,
                client_id=self._client_id,
                tasks=self._tasks,
            )
            self._tasks.listen(self._group.gate.fail)

    async def close(self) -> None:
        """Stop fetching and close the connections.

        A member of a group leaves it, and with ``enable_auto_commit`` commits first what was handed out before the last
        call for records: whether the caller is done with what that call handed out, is unknown. ``commit()`` says so.
        Cancelled, it waits for neither. One who is cancelled again does not wait for the connections, and they are
        closed all the same; a further call waits for it.
        """
        try:
            if self._followed is not None:
                await self._followed.stop()
            if self._group is not None:
                await self._group.leave()
        finally:
            await self._closing.ended(self._tear_down)

    async def _tear_down(self) -> None:
        metadata, fetcher = self._metadata, self._fetcher
        if metadata is None or fetcher is None:
            return
        # Each step whatever becomes of those before it: they are given in the opposite order.
        async with AsyncExitStack() as steps:
            steps.push_async_callback(self._connections.close)
            steps.push_async_callback(metadata.close)
            steps.push_async_callback(fetcher.close)
            steps.callback(self._shut)
            if self._group is not None:
                # What hears of partitions that go may commit.
                await self._group.close()

    def _shut(self) -> None:
        """Every call raises from now on, the one that waits for records too."""
        self._metadata = None
        if self._fetcher is not None:
            self._fetcher.arrived.set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """Partitions that are read, paused ones among them."""
        return frozenset(self._open()[1].cursors)

    async def partitions_of(
        self, topic: str, *, wait_s: Annotated[float, Between(0)] | None = None
    ) -> tuple[TopicPartition, ...]:
        """All partitions of a topic. Raises UNKNOWN_TOPIC_OR_PARTITION for one that does not exist.

        ``wait_s``: how long one is waited for that the brokers do not know yet; None: ``topic_wait_s``.
        """
        timeout_s = self._settings.topic_wait_s if wait_s is None else wait_s
        view = await self._open()[0].topic(topic, timeout_s=timeout_s)
        return tuple(TopicPartition(topic, number) for number in sorted(view.partitions))

    async def topic_ids(self, topics: Iterable[str]) -> dict[str, TopicId]:
        """Ids of those topics that there are now, asked for anew: one that was deleted and made again has another.

        Raises RegnumError when no broker answers within ``topic_wait_s``.
        """
        found = await self._open()[0].topics(list(topics), timeout_s=self._settings.topic_wait_s)
        return {name: view.topic_id for name, view in found.items()}

    def seek(
        self,
        partition: TopicPartition,
        offset: Offset,
        *,
        leader_epoch: int | None = None,
    ) -> None:
        """Go on reading an assigned partition at ``offset``.

        With the leader epoch of the record before it, where the caller has kept that (``leader_epoch_before``), it is
        noticed when that record was lost since: see LogTruncationError.
        """
        cursor = self._cursor(partition)
        cursor.seek(offset, leader_epoch=leader_epoch)
        self._open()[1].go_on(cursor)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first offset that the log has now, in these assigned partitions or in all."""
        self._seek_all(await self.beginning_offsets(partitions or self.assignment))

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the present high watermark, in these assigned partitions or in all."""
        self._seek_all(await self.end_offsets(partitions or self.assignment))

    def _seek_all(self, offsets: Mapping[TopicPartition, int]) -> None:
        # All or none: one may have been unassigned meanwhile.
        for partition in offsets:
            self._cursor(partition)
        for partition, offset in offsets.items():
            self.seek(partition, offset)

    def pause(self, *partitions: TopicPartition) -> None:
        """Read nothing from these assigned partitions until ``resume``; others go on, positions stay.

        What was fetched of them and not read is let go of, and fetched again then.
        """
        for cursor in [self._cursor(partition) for partition in partitions]:
            self._open()[1].pause(cursor)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on reading these assigned partitions, paused or not."""
        for cursor in [self._cursor(partition) for partition in partitions]:
            self._open()[1].resume(cursor)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """Assigned partitions that are paused."""
        return frozenset(partition for partition, cursor in self._open()[1].cursors.items() if cursor.paused)

    def position(self, partition: TopicPartition) -> int:
        """Offset of the record that comes next from an assigned partition."""
        return self._cursor(partition).position

    def leader_epoch_before(self, partition: TopicPartition, offset: int) -> int | None:
        """Leader epoch of the last record before an offset of an assigned partition, to be kept beside that offset.

        None: no record before it was fetched since the last ``seek``.
        """
        return self._cursor(partition).read_epochs.before(offset)

    @property
    def unread_bytes(self) -> int:
        """What was fetched and not yet begun to be read, of all partitions."""
        return 0 if self._fetcher is None else self._fetcher.arrivals.unread_bytes

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """First offset of each log. Waits for leaders for ``offsets_timeout_s`` at most."""
        return await self._offsets(partitions, FIRST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """High watermark of each partition: records below it are committed."""
        return await self._offsets(partitions, HIGH_WATERMARK)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | None]:
        """Where to begin so as to miss no record at or after a moment, for each partition; None: none is so young.

        It is the offset of the first such record; with an earlier release, where the batch of that record begins.
        Moments are milliseconds since 1970, from 0 on; INVALID_REQUEST for others.
        """
        lookup = await self._lookup_of(timestamps_ms)
        return await lookup.look_up_times(timestamps_ms, timeout_s=self._settings.offsets_timeout_s)

    def _wake_reader(self, _failure: BackgroundTaskError) -> None:
        if self._fetcher is not None:
            self._fetcher.arrived.set()

    def _follow_topics(self) -> None:
        if self._metadata is None or self._fetcher is None:
            return
        view = self._metadata.view
        self._subscriptions.follow(view, self._fetcher)
        if self._followed is not None:
            for topic in self._subscriptions.gone(view):
                if topic in view.topics:
                    # Before the fetcher finds that its positions mean nothing: nobody asked for it by name.
                    self._subscriptions.drop(topic, self._fetcher)
                self._followed.look_soon()

    def _release(self, topics: Sequence[str], now_s: float) -> Mapping[str, float]:
        """As ``cluster.questions.Release``: what is assigned or subscribed to is in use."""
        if self._fetcher is None:
            return dict.fromkeys(topics, now_s)
        in_use = {partition.topic for partition in self._fetcher.cursors} | self._subscriptions.topics
        if self._group is not None:
            in_use |= self._group.topics
        return {topic: now_s for topic in topics if topic in in_use}

    def _reading(self) -> Reader:
        self._open()
        if self._reader is None:
            raise ClientClosedError("consumer")
        return self._reader

    def _open(self) -> tuple[Metadata, Fetcher]:
        if self._metadata is None or self._fetcher is None:
            raise ClientClosedError("consumer")
        self._tasks.check()
        return self._metadata, self._fetcher

    def _cursor(self, partition: TopicPartition) -> Cursor:
        cursor = self._open()[1].cursors.get(partition)
        if cursor is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST,
                f"{partition.topic}/{partition.partition} is not assigned to this consumer; assign() it first",
            )
        return cursor

    async def _offsets(self, partitions: Iterable[TopicPartition], query: int) -> Mapping[TopicPartition, int]:
        wanted = tuple(partitions)
        lookup = await self._lookup_of(wanted)
        return await lookup.look_up(wanted, query, timeout_s=self._settings.offsets_timeout_s)

    async def _lookup_of(self, partitions: Iterable[TopicPartition]) -> OffsetLookup:
        """The lookup, once the topics of these partitions are known."""
        metadata, _ = self._open()
        topics = {partition.topic for partition in partitions}
        await metadata.use(topics, timeout_s=max(self._settings.topic_wait_s, ANSWER_S))
        for topic in topics:
            await metadata.topic(topic, timeout_s=self._settings.topic_wait_s)
        if self._lookup is None:
            raise ClientClosedError("consumer")
        return self._lookup
