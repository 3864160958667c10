"""Reads records from partitions, in order, across changes of leader."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from regnum_client.positions import EARLIEST, ResetPolicy, Start
from regnum_client.records import ConsumedRecord, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How a consumer behaves."""

    reset: ResetPolicy = ResetPolicy.FAIL
    """What happens when an offset is below the log start or above the log end."""
    fetch_wait_ms: int = 500
    """How long a broker may wait for records before it answers."""
    fetch_min_bytes: int = 1
    """A broker answers as soon as it has this many bytes."""
    fetch_max_bytes: int = 8 * 1024 * 1024
    """About how many bytes one answer carries at most."""
    partition_max_bytes: int = 1024 * 1024
    """About how many bytes of one partition an answer carries at most."""
    request_timeout_s: float = 10.0
    """Deadline of one call, on top of ``fetch_wait_ms``."""


class Consumer:
    """Reads assigned partitions. One event loop, one reader at a time."""

    def __init__(
        self, bootstrap: str | Sequence[str] | None = None, *, settings: ConsumerSettings | None = None
    ) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """Find the cluster."""

    async def close(self) -> None:
        """Stop fetching and close the connections."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def assign(
        self, topic: str, *, partitions: Iterable[int] | None = None, start: Start = EARLIEST
    ) -> tuple[TopicPartition, ...]:
        """Add partitions of a topic (all of them by default), to be read from ``start`` on."""
        raise NotImplementedError

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on reading an assigned partition at ``offset``."""

    def position(self, partition: TopicPartition) -> int:
        """Offset of the record that comes next from an assigned partition."""
        raise NotImplementedError

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """First offset of each log."""
        raise NotImplementedError

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """High watermark of each partition: records below it are committed."""
        raise NotImplementedError

    async def read(self, *, records_max: int = 500, timeout_s: float = 1.0) -> list[ConsumedRecord]:
        """The next records, of any partition, in the order of each; empty when none came in the time."""
        raise NotImplementedError

    def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Records without end."""
        return self

    async def __anext__(self) -> ConsumedRecord:
        raise NotImplementedError
