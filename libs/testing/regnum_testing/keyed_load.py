"""Keys written again and again to a compacted topic, read from its start all the while, and its replicas' own files."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from regnum_client import EARLIEST, Consumer, ConsumerSettings, Producer, ProducerSettings, ResetPolicy, TopicPartition
from regnum_client.records import RecordMetadata
from regnum_records.header import iterate
from regnum_records.read import read_records

Table = Mapping[bytes, tuple[int, bytes | None]]
"""Newest offset and value of each key."""

AT_ONCE: Final = 40
"""Records under way at a time."""
ONCE: Final = 20
"""Every so manieth record has a key of its own, which never comes again."""
DELETIONS: Final = 17
"""Every so manieth record has no value."""
PADDING: Final = b"." * 8_000
"""With it, a hundred records fill the smallest segment that there may be."""


def number_of(value: bytes) -> int:
    """The number that a value begins with."""
    return int(value.partition(b" ")[0])


class KeyedLoad:
    """One writer and one reader. ``failures`` says what either may not meet."""

    def __init__(self, bootstrap: Sequence[str], partitions: Sequence[TopicPartition], *, keys: int) -> None:
        self._bootstrap: Final = bootstrap
        self._partitions: Final = tuple(partitions)
        self._keys: Final = keys
        self._stopping: Final = asyncio.Event()
        self.written = 0
        """Records that were acknowledged."""
        self.newest: Final[dict[TopicPartition, dict[bytes, tuple[int, bytes | None]]]] = {
            one: {} for one in partitions
        }
        """Newest acknowledged offset and value by key."""
        self.rounds = 0
        """How often everything was read from the start."""
        self.last_read: dict[TopicPartition, dict[bytes, tuple[int, bytes | None]]] = {}
        """What the last of these found."""

    def stop(self) -> None:
        """Have the writer end when what it has sent is acknowledged."""
        self._stopping.set()

    async def write(self) -> None:
        """Write until told to stop. Raises what the producer gave up for."""
        settings = ProducerSettings(delivery_timeout_s=120.0, linger_ms=5)
        number = 0
        async with Producer(self._bootstrap, settings=settings) as producer:
            while not self._stopping.is_set():
                sent: list[tuple[TopicPartition, bytes, bytes | None, asyncio.Future[RecordMetadata]]] = []
                for _ in range(AT_ONCE):
                    number += 1
                    partition = self._partitions[number % len(self._partitions)]
                    # Those that change are all in the segment that grows: only these show what compaction keeps.
                    once = number % ONCE == 3
                    key = b"once-%d" % number if once else b"key-%d" % (number * 7 % self._keys)
                    value = None if number % DELETIONS == 0 else b"%d " % number + PADDING
                    future = await producer.send(partition.topic, value, key=key, partition=partition.partition)
                    sent.append((partition, key, value, future))
                for partition, key, value, future in sent:
                    offset = (await future).offset
                    known = self.newest[partition].get(key, (-1, None))
                    self.newest[partition][key] = max(known, (offset, value), key=lambda one: one[0])
                    self.written += 1

    async def read_again_and_again(self) -> None:
        """Read everything from the start, for ever; nothing but rising offsets may come, and no error."""
        while True:
            self.last_read = await self.read_all()
            self.rounds += 1

    async def read_all(self) -> dict[TopicPartition, dict[bytes, tuple[int, bytes | None]]]:
        """Everything from the start, as a table. Raises what the consumer does; AssertionError where offsets fall."""
        tables: dict[TopicPartition, dict[bytes, tuple[int, bytes | None]]] = {one: {} for one in self._partitions}
        last = dict.fromkeys(self._partitions, -1)
        async with Consumer(self._bootstrap, settings=ConsumerSettings(reset=ResetPolicy.FAIL)) as consumer:
            ends = await consumer.end_offsets(self._partitions)
            for topic in {one.topic for one in self._partitions}:
                await consumer.assign(topic, start=EARLIEST)
            while any(consumer.position(one) < ends[one] for one in self._partitions):
                for record in await consumer.read(records_max=1_000, timeout_s=1.0):
                    partition = TopicPartition(record.topic, record.partition)
                    assert record.offset > last[partition], f"{partition}: {record.offset} after {last[partition]}"
                    last[partition] = record.offset
                    assert record.key is not None
                    tables[partition][record.key] = record.offset, record.value
        return tables


class ReplicaFiles:
    """What one replica's segments hold, read from the disk while its broker does not run."""

    def __init__(self, folder: Path) -> None:
        self.records: Final[dict[int, tuple[bytes | None, bytes | None]]] = {}
        """Key and value by offset."""
        self.thinned = 0
        """Batches that compaction has taken records from."""
        self.end = -1
        """Offset after the last batch; -1: there is none."""
        for path in sorted(folder.glob("*.log")):
            for position, header in iterate(path.read_bytes()):
                assert self.end in {-1, header.base_offset}, f"{path}: {header.base_offset} where {self.end} is next"
                self.end = header.next_offset
                self.thinned += header.record_count < header.next_offset - header.base_offset
                batch = path.read_bytes()[position : position + header.size_bytes] if header.record_count else b""
                self.records.update(
                    (one.offset, (one.key, one.value)) for one in (read_records(batch) if batch else ())
                )

    @property
    def table(self) -> dict[bytes, tuple[int, bytes | None]]:
        """Newest offset and value by key."""
        return {key: (offset, value) for offset, (key, value) in sorted(self.records.items()) if key is not None}
