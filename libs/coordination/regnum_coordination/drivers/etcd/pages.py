"""A range of keys in large pages at one revision, each taken apart in slices.

Goals: a range of hundreds of thousands of keys is read in time that grows as the keys do, and no event loop is held
while it is (safety rule S22).

Constraints: etcd 3.5 visits every key from the beginning of a page to the end of the *range*, in order to count them,
so N pages of a range cost N times the range: pages must be large. A large answer takes long to parse: 100,000 keys
some 50 ms. An answer may not exceed what the channel takes (64 MiB), and how large values are is known afterwards.

Algorithm: an answer is left in bytes. Its fields lie one behind the other, and whole fields of a message are a message,
so a walk over tags and lengths finds where it can be cut, and each slice is parsed by itself. The size of one page
says how many keys the next may have; a page that does not come is asked for again with fewer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from etcd3.etcdrpc import rpc_pb2

from regnum_coordination.drivers.etcd.rpc import EtcdRpc
from regnum_coordination.errors import ConnectionLoss

FIRST_KEYS: Final = 1_000
"""Keys of the first page."""
MAX_KEYS: Final = 10_000
"""Keys of the largest page: the walk takes 5 ms."""
MIN_KEYS: Final = 16
"""Keys of a page that is not made smaller when it does not come: so many of etcd's largest values fit into it."""
PAGE_BYTES: Final = 4 * 1024 * 1024
"""Bytes that a page should have."""
FEWER: Final = 16
"""Part of its keys with which a page that did not come is asked for again."""
SLICE_BYTES: Final = 64 * 1024
"""Bytes that are parsed at a time; some 300 states, or 700 keys."""

_KVS: Final = 0x12
_VARINT: Final = 0
_LENGTH_DELIMITED: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer."""

    answer: bytes
    """As it came."""
    cuts: tuple[int, ...]
    """Offsets of all slices, and its end."""
    revision: int
    """Revision of the store when it was asked; as asked for, otherwise."""
    count: int
    """Keys from its beginning to the end of the range."""
    keys: int
    """Keys in it."""
    last_key: bytes
    """Its last key; empty if it has none."""
    more: bool
    """Whether the range goes on behind it."""

    def slices(self) -> Iterator[Any]:
        """Its keys, as many small range responses."""
        for begin, end in zip(self.cuts, self.cuts[1:], strict=False):
            yield rpc_pb2.RangeResponse.FromString(self.answer[begin:end])


def page_of(answer: bytes) -> Page:
    """Walk over an answer; it is not empty, for it has a header."""
    cuts, keys = _walk(answer)
    first = rpc_pb2.RangeResponse.FromString(answer[cuts[0] : cuts[1]])
    last = first if len(cuts) == 2 else rpc_pb2.RangeResponse.FromString(answer[cuts[-2] : cuts[-1]])
    return Page(
        answer=answer,
        cuts=cuts,
        revision=first.header.revision,
        count=last.count,
        keys=keys,
        last_key=last.kvs[-1].key if last.kvs else b"",
        more=last.more,
    )


def _walk(answer: bytes) -> tuple[tuple[int, ...], int]:
    """Where slices begin, the end, and the number of keys. The last slice has the last key and what follows the keys.

    All its fields have numbers below 16, and so tags of one byte.
    """
    cuts = [0]
    keys, at, begin, size = 0, 0, 0, len(answer)
    while at < size:
        tag = answer[at]
        if tag == _KVS:
            keys += 1
            if at - begin >= SLICE_BYTES:
                cuts.append(at)
                begin = at
        length, at = _varint(answer, at + 1)
        if tag & 7 == _LENGTH_DELIMITED:
            at += length
        elif tag & 7 != _VARINT:
            raise AssertionError(f"a range response has no field with tag {tag:#x}")
    cuts.append(size)
    return tuple(cuts), keys


def _varint(answer: bytes, at: int) -> tuple[int, int]:
    """A number, and the offset behind it."""
    byte = answer[at]
    if byte < 0x80:
        return byte, at + 1
    number, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = answer[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at + 1
        shift += 7


class PageSize:
    """How many keys the next page of a read may have."""

    def __init__(self, keys: int = FIRST_KEYS) -> None:
        self.keys = keys
        """Keys."""

    def came(self, page: Page) -> None:
        """Go by the size of the last one."""
        if page.keys:
            fitting = PAGE_BYTES * page.keys // len(page.answer)
            self.keys = min(max(fitting, MIN_KEYS), MAX_KEYS)

    async def read(
        self, rpc: EtcdRpc, begin: bytes, end: bytes | None, *, revision: int, keys_only: bool = False
    ) -> Page:
        """The next page of a range (``end`` None: of one key).

        Raises Compacted, ConnectionLoss.
        """
        while True:
            request = rpc_pb2.RangeRequest(key=begin, limit=self.keys, revision=revision, keys_only=keys_only)
            if end is not None:
                request.range_end = end
            try:
                page = page_of(await rpc.range_bytes(request))
            except ConnectionLoss:
                # Perhaps it was too large.
                if self.keys <= MIN_KEYS:
                    raise
                self.keys = max(self.keys // FEWER, MIN_KEYS)
                continue
            self.came(page)
            return page
