"""Chooses the partition of a record. Pure.

Keys go where Kafka's Java client sends them (murmur2, sign bit cleared, modulo the number of partitions), so that
producers of both kinds
agree. Records without a key fill one partition's batch at a time and then go on to the next: small batches spread
over all partitions cost
more than they balance.
"""

from typing import Final

_MASK: Final = 0xFFFFFFFF
_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash as Kafka computes it, as a signed integer."""
    length = len(data)
    whole = length - length % 4
    hashed = (_SEED ^ length) & _MASK
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MIX & _MASK
        word = (word ^ (word >> 24)) * _MIX & _MASK
        hashed = (hashed * _MIX & _MASK) ^ word
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MIX & _MASK
    hashed = (hashed ^ (hashed >> 13)) * _MIX & _MASK
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed & 0x80000000 else hashed


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition, of 0 .. partitions - 1, where records with this key belong."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyRoundRobin:
    """Partition for records without a key: one at a time, the next one whenever a batch need not wait any longer."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._turn: dict[str, int] = {}

    def current(self, topic: str, partitions: int) -> int:
        """The partition whose turn it is."""
        return self._turn.setdefault(topic, self._first) % partitions

    def forget(self, topic: str) -> None:
        """Nothing is sent to it any more; the next record begins anew."""
        self._turn.pop(topic, None)

    def batch_turned(self, topic: str, partition: int, partitions: int) -> None:
        """The batch of that partition is full or may go: if it was its turn, it is the next one's."""
        if self.current(topic, partitions) == partition:
            self._turn[topic] = (partition + 1) % partitions
