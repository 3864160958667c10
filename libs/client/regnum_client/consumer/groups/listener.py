"""What an application hears of its group, and what it commits."""

from collections.abc import Iterable
from typing import NamedTuple

from regnum_client.records import TopicPartition


class RebalanceListener:
    """Hears which partitions come and go; make a subclass of it. While it is told, no record is handed out.

    It is told while the application asks for records, so the application is done with those that it had; it may commit
    and seek, and must not read. What it raises, the read raises; the rebalance goes on.

    >>> class Told(RebalanceListener):
    ...     async def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
    ...         print("now mine:", sorted(partitions))
    >>> async def main() -> None:
    ...     async with Consumer(bootstrap, topics=["orders"], group_id="listeners", listener=Told()) as consumer:
    ...         await anext(consumer)
    >>> asyncio.run(main())
    now mine: [TopicPartition(topic='orders', partition=0)]
    """

    async def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """These go to another member when this returns; what was processed of them can still be committed."""

    async def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """These are read from now on, besides those that stay. Positions are set and may be changed."""

    async def on_partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """These are another member's by now, because this one was silent or slow: nothing of them can be committed."""


class OffsetAndMetadata(NamedTuple):
    """What to commit for a partition (Kafka's name).

    >>> OffsetAndMetadata(43, metadata="after order 42").offset
    43
    """

    offset: int
    """Offset of the next record to be processed."""
    leader_epoch: int | None = None
    """Leader epoch of the last record processed; None: not known."""
    metadata: str = ""
    """A note, at most 4,096 bytes."""
