"""What a consumer reads: partitions that it assigns to itself, topics, or those of a pattern."""

from collections.abc import Iterable, Mapping
from functools import partial

from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError

from regnum_client.cluster.metadata import check_topic
from regnum_client.consumer.cursor import Cursor
from regnum_client.consumer.groups.session import assigned_by_group
from regnum_client.consumer.positions import EARLIEST, LATEST, AtTime, Start
from regnum_client.consumer.session import ConsumerSession
from regnum_client.consumer.topics.following import FollowedPattern
from regnum_client.consumer.topics.patterns import PatternError, TopicPattern
from regnum_client.records import TopicPartition


class SubscribingConsumer(ConsumerSession):
    """A consumer, but for reading."""

    async def assign(
        self, topic: str, *, partitions: Iterable[int] | None = None, start: Start = EARLIEST
    ) -> tuple[TopicPartition, ...]:
        """Add partitions of a topic (all of them by default), to be read from ``start`` on.

        Raises UNKNOWN_TOPIC_OR_PARTITION for a topic or partition that does not exist.
        """
        metadata, fetcher = self._open()
        if self._group is not None and self._group.is_member:
            raise assigned_by_group()
        view = await metadata.topic(topic, timeout_s=self._settings.topic_wait_s)
        numbers = sorted(view.partitions) if partitions is None else list(partitions)
        if any(number not in view.partitions for number in numbers):
            # It may have been added since.
            view = (await metadata.topics([topic], timeout_s=self._settings.topic_wait_s)).get(topic, view)
        for number in numbers:
            if number not in view.partitions:
                raise _no_partition_error(topic, number, len(view.partitions))
        chosen = tuple(TopicPartition(topic, number) for number in numbers)
        offsets: Mapping[TopicPartition, int]
        if start == EARLIEST:
            offsets = await self.beginning_offsets(chosen)
        elif start == LATEST:
            offsets = await self.end_offsets(chosen)
        elif isinstance(start, AtTime):
            found = await self.offsets_for_times(dict.fromkeys(chosen, start.timestamp_ms))
            ends = await self.end_offsets(one for one, offset in found.items() if offset is None)
            offsets = {one: ends[one] if offset is None else offset for one, offset in found.items()}
        else:
            offsets = dict.fromkeys(chosen, int(start))
        for partition in chosen:
            fetcher.unassign(partition)
            fetcher.assign(Cursor(partition, view.topic_id, offsets[partition]))
        return chosen

    async def subscribe(
        self, *topics: str, pattern: str | None = None, start: Start = EARLIEST
    ) -> tuple[TopicPartition, ...]:
        """Read all partitions of topics, those that are added later from their beginning (within a minute).

        Instead of names there may be one ``pattern`` (a regular expression, see ``topics.patterns``): all topics whose
        whole names match, without the cluster's own; new ones from their beginning, within ``topics_refresh_s``, and
        those that are deleted no more, about a second after brokers say so. A pattern is followed until the next call
        of this. INVALID_REQUEST for what is no pattern.

        One that is removed is left out from then on, with what was fetched of it and not read. Raises as ``assign``.
        Without a group, every consumer that subscribes reads everything, from ``start`` on. With one, these topics take
        the place of those before, the group assigns partitions of them when the caller reads, ``start`` says nothing,
        and nothing is returned. A topic that does not exist yet is waited for: it is assigned when it appears; after
        ``topic_wait_s`` a read raises UNKNOWN_TOPIC_OR_PARTITION, once, and reading may go on.
        """
        metadata, _ = self._open()
        follows = None if pattern is None else _pattern(pattern)
        if follows is not None and topics:
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "give topics or a pattern of topics, and not both")
        if self._group is not None:
            if not self._group.is_member and self.assignment:
                raise RegnumError(
                    errors_pb2.ERROR_CODE_INVALID_REQUEST,
                    "this consumer has partitions assigned; unassign() them before it joins its group",
                )
            for topic in topics:
                check_topic(topic)
        if self._followed is not None:
            await self._followed.stop()
            self._followed = None
        if follows is not None:
            before = self.assignment
            self._followed = FollowedPattern(
                follows,
                metadata=metadata,
                clock=self._clock,
                every_s=self._settings.topics_refresh_s,
                timeout_s=self._settings.topic_wait_s,
                changed=partial(self._take_pattern, start),
                tasks=self._tasks,
            )
            await self._followed.start()
            return tuple(sorted(self.assignment - before))
        if self._group is not None:
            self._group.subscribe(topics, named=True)
            return ()
        return await self._take_up(topics, start)

    async def _take_up(self, topics: Iterable[str], start: Start) -> tuple[TopicPartition, ...]:
        chosen: list[TopicPartition] = []
        for topic in topics:
            assigned = await self.assign(topic, start=start)
            view = self._open()[0].view.topics.get(topic)
            if view is not None:
                self._subscriptions.add(topic, view.topic_id, (one.partition for one in assigned))
            chosen.extend(assigned)
        self._follow_topics()
        return tuple(chosen)

    async def _take_pattern(self, start: Start, names: frozenset[str]) -> None:
        """Topics match: others than before, or in another life."""
        metadata, fetcher = self._open()
        if self._group is not None:
            self._group.subscribe(names, named=False)
            return
        topics = metadata.view.topics
        for topic in self._subscriptions.topics:
            known = topics.get(topic)
            if topic not in names or known is None or known.topic_id != self._subscriptions.id_of(topic):
                self._subscriptions.drop(topic, fetcher)
        first = self._followed is None or not self._followed.has_found
        failed: RegnumError | None = None
        for topic in sorted(names - self._subscriptions.topics):
            try:
                await self._take_up([topic], start if first else EARLIEST)
            except RegnumError as error:
                # One that was deleted meanwhile is in no later look; any other is tried again with the next one.
                if error.code != errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION:
                    failed = failed or error
        if failed is not None:
            raise failed

    def unassign(self, partition: TopicPartition) -> None:
        """Stop reading a partition; nothing happens when it is not assigned."""
        if self._group is not None and self._group.is_member:
            raise assigned_by_group()
        self._open()[1].unassign(partition)


def _pattern(text: str) -> TopicPattern:
    try:
        return TopicPattern(text)
    except PatternError as error:
        raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, str(error)) from None


def _no_partition_error(topic: str, number: int, partitions: int) -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {topic!r} has no partition {number}; it has 0 to {partitions - 1}",
        metadata={"topic": topic, "partition": str(number)},
    )
