"""What goes in and comes out, one record at a time.

Named tuples, not dataclasses: one of them is made for every record, and they cost a third of a frozen dataclass.
"""

from typing import NamedTuple


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
    """Time of the record, milliseconds since 1970."""


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
    key: bytes | None
    """Key, or none."""
    value: bytes | None
    """Value, or none (a tombstone)."""
    headers: tuple[tuple[str, bytes | None], ...]
    """Headers, in order; names may repeat."""
