"""The newest offset of each key, in a fixed number of bytes. Pure.

Keys are known by a hash of 16 bytes (BLAKE2b): that two that differ get one is what nobody can bring about. An entry
takes 24 bytes, and three of four slots are used at most: what Python's own dictionary takes is seven times that, and
the more keys there is room for, the fewer times a log is gone through.

Which slot a hash names depends on a number that nobody knows beforehand (universal hashing): it takes a million tries
to find a key that shares a slot with another, and a hundred thousand such would be gone through, all of them, for each.
"""

from array import array
from hashlib import blake2b
from typing import Final

DIGEST_BYTES: Final = 16
ENTRY_BYTES: Final = DIGEST_BYTES + 8
BYTES_FOR_KEY: Final = ENTRY_BYTES * 4 // 3
"""What one key takes of a map that is full."""
_PRIME: Final = 2**89 - 1
"""Above all that eight bytes can say."""
SALT_MAX: Final = _PRIME - 1
UNKNOWN: Final = -1
"""Offset of a key that is not in the map."""


def digest(key: bytes) -> bytes:
    """The hash of a key."""
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


class OffsetMap:
    """Open addressing: an entry stands in the first free slot from the one that its hash names. Nothing is removed."""

    __slots__ = ("_count", "_count_max", "_digests", "_offsets", "_salt", "_slots")

    def __init__(self, *, keys_max: int, salt: int = 1) -> None:
        """Takes its memory at once: ``ENTRY_BYTES`` for each slot, of which there are four for three keys.

        Args:
            keys_max: so many keys fit in.
            salt: spreads the keys, from 1 to ``SALT_MAX``; by chance where they come from others.
        """
        self._salt = salt
        self._slots = keys_max * 4 // 3 + 1
        self._digests = bytearray(DIGEST_BYTES * self._slots)
        self._offsets = array("q", [UNKNOWN]) * self._slots
        self._count = 0
        self._count_max = keys_max

    def __len__(self) -> int:
        return self._count

    @property
    def room(self) -> int:
        """So many more keys fit in."""
        return self._count_max - self._count

    def put(self, digest: bytes, offset: int) -> None:
        """Note an offset of a key; later ones go before earlier ones. There must be room."""
        slot = self._slot_of(digest)
        if self._offsets[slot] == UNKNOWN:
            self._count += 1
            self._digests[DIGEST_BYTES * slot : DIGEST_BYTES * (slot + 1)] = digest
        self._offsets[slot] = offset

    def get(self, digest: bytes) -> int:
        """The newest offset of a key, or UNKNOWN."""
        return self._offsets[self._slot_of(digest)]

    def _slot_of(self, digest: bytes) -> int:
        slots, offsets, digests = self._slots, self._offsets, self._digests
        slot = int.from_bytes(digest[:8], "little") * self._salt % _PRIME % slots
        while offsets[slot] != UNKNOWN and digests[DIGEST_BYTES * slot : DIGEST_BYTES * (slot + 1)] != digest:
            slot = slot + 1 if slot + 1 < slots else 0
        return slot
