"""What goes in and comes out, one record at a time.

Named tuples, not dataclasses: one of them is made for every record, and they cost a third of a frozen dataclass.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple


class TopicPartition(NamedTuple):
    """A partition as applications name it.

    >>> TopicPartition("orders", 0).partition
    0
    """

    topic: str
    """Topic name."""
    partition: int
    """Partition number, from 0."""


class RecordMetadata(NamedTuple):
    """Where an acknowledged record lies.

    >>> with regnum_client.sync.Producer(bootstrap) as producer:
    ...     where = producer.send("greetings", b"hello", timestamp_ms=1_700_000_000_000).result(timeout=60)
    >>> where.topic, where.partition, where.timestamp_ms
    ('greetings', 0, 1700000000000)
    """

    topic: str
    """Topic name."""
    partition: int
    """Partition number."""
    offset: int
    """Offset of the record. -1 when the broker cannot say (acks 0, or a duplicate older than the broker remembers)."""
    timestamp_ms: int
    """Time of the record, milliseconds since 1970: that of its append where the topic wants it so
    (``message.timestamp.type``)."""


class ConsumedRecord(NamedTuple):
    """A record that was read.

    >>> with regnum_client.sync.Consumer(bootstrap) as consumer:
    ...     _ = consumer.assign("orders")
    ...     record = next(consumer)
    >>> record.topic, record.partition, record.offset, record.key, record.value
    ('orders', 0, 0, None, b'first')
    """

    topic: str
    """Topic name."""
    partition: int
    """Partition number."""
    offset: int
    """Offset in the partition."""
    timestamp_ms: int
    """Time of the record, milliseconds since 1970."""
    key: Any
    """Key, as bytes or as ``key_deserializer`` makes it; None: it has none."""
    value: Any
    """Value, as bytes or as ``value_deserializer`` makes it; None: it has none (a tombstone)."""
    headers: tuple[tuple[str, bytes | None], ...]
    """Headers, in order; names may repeat."""


def by_partition(records: Iterable[ConsumedRecord]) -> dict[TopicPartition, list[ConsumedRecord]]:
    """Records in the order of each partition."""
    found: dict[TopicPartition, list[ConsumedRecord]] = {}
    for record in records:
        found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
    return found
