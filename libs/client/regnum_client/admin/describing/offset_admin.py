"""Where logs begin and end, as their leaders say."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from regnum_service.errors import RegnumError

from regnum_client.admin.session import AdminSession
from regnum_client.cluster.offsets import FIRST, HIGH_WATERMARK, OffsetAndTimestamp, OffsetLookup
from regnum_client.records import TopicPartition


class PartitionOffsets(NamedTuple):
    """Where the log of a partition begins and ends.

    >>> offsets = admin.list_offsets([TopicPartition("orders", 0)])
    >>> offsets[TopicPartition("orders", 0)]
    PartitionOffsets(log_start=0, high_watermark=2)
    """

    log_start: int
    """Offset of the first record; those before it were removed."""
    high_watermark: int
    """Offset below which records are committed."""


class OffsetAdmin(AdminSession):
    """Offsets of partitions."""

    async def list_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionOffsets | RegnumError]:
        """First offset and high watermark of each partition as its leader says now, or why it does not.

        No leader is waited for: a partition without a leader, or with one that has just begun, has an error. Raises
        RegnumError when no broker answers for metadata.
        """
        wanted = tuple(dict.fromkeys(partitions))
        lookup = await self._lookup(wanted)
        starts = await lookup.look_up_now(wanted, FIRST)
        ends = await lookup.look_up_now(wanted, HIGH_WATERMARK)
        return {one: _both(starts[one], ends[one]) for one in wanted}

    async def list_offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The offset of the first record at or after a moment; None: no record is so young.

        Moments are milliseconds since 1970. Raises what a leader says, when it says it for as long as calls may take.
        """
        lookup = await self._lookup(timestamps_ms)
        return await lookup.look_up_times(timestamps_ms, timeout_s=self._timeout_s)

    async def list_max_timestamps(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndTimestamp | RegnumError | None]:
        """The committed record with the largest timestamp of each partition (KIP-734); None: no record has one.

        The first of several. It need not be the last record, for timestamps are what producers say. Errors are as of
        ``list_offsets``, and INVALID_REQUEST from an earlier release.
        """
        wanted = tuple(dict.fromkeys(partitions))
        return await (await self._lookup(wanted)).look_up_max_timestamps_now(wanted)

    async def _lookup(self, partitions: Iterable[TopicPartition]) -> OffsetLookup:
        metadata = self._open()
        await metadata.use({partition.topic for partition in partitions}, timeout_s=self._timeout_s)
        return OffsetLookup(
            self._connections,
            metadata,
            clock=self._clock,
            chance=self._chance,
            client_id=self._client_id,
            request_timeout_s=self._timeout_s,
        )


def _both(start: int | RegnumError, end: int | RegnumError) -> PartitionOffsets | RegnumError:
    if isinstance(start, RegnumError):
        return start
    return end if isinstance(end, RegnumError) else PartitionOffsets(start, end)
