"""Many reads in one request, which ZooKeeper takes since 3.6 (``multiRead``) and kazoo does not know.

Goals: reading 100,000 nodes costs little more than their bytes. One after another on one connection, kazoo spends some
60 us of its thread and the loop's on each: a request to make, queue, write, match and hand over.

Constraints: not one snapshot, and no watches; each read has its own failure. A server that does not know the request
says so, and is asked one by one from then on.

The wire (``MultiOperationRecord`` and ``MultiResponse`` of ZooKeeper): before each part a header of type, whether it is
the end, and error; parts are those of the single requests and their answers, an error is its number.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kazoo.exceptions import EXCEPTIONS

from regnum_coordination.port import Node, Stat

READS_PER_REQUEST: Final = 250
"""Reads of one request: a server does nothing else in the meantime for about 1 ms."""

_GET_DATA: Final = 4
_GET_CHILDREN: Final = 8
_MULTI_READ: Final = 22
_ERROR: Final = -1

_HEADER: Final = struct.Struct("!iBi")
_INT: Final = struct.Struct("!i")
_STAT: Final = struct.Struct("!qqqqiiiqiiq")
_END: Final = _HEADER.pack(-1, 1, -1)
_NO_WATCH: Final = b"\0"


@dataclass(frozen=True, slots=True)
class Found:
    """A node that was read."""

    node: Node
    """Itself."""
    children: int
    """How many children it has."""


@dataclass(frozen=True, slots=True)
class BulkRead:
    """A request as kazoo sends it: data or children of several nodes."""

    type: ClassVar[int] = _MULTI_READ
    paths: Sequence[str]
    """The server's."""
    of_children: bool = False
    """Whether names of children are wanted and not the nodes."""

    def serialize(self) -> bytes:
        """Its bytes."""
        header = _HEADER.pack(_GET_CHILDREN if self.of_children else _GET_DATA, 0, -1)
        parts: list[bytes] = []
        for path in self.paths:
            name = path.encode("utf-8")
            parts += (header, _INT.pack(len(name)), name, _NO_WATCH)
        return b"".join((*parts, _END))

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> list[Any]:
        """``Found``, names of children, or an exception of kazoo's, for each; called on kazoo's thread."""
        answers: list[Any] = []
        while True:
            kind, done, _ = _HEADER.unpack_from(buffer, offset)
            offset += _HEADER.size
            if done:
                return answers
            if kind == _GET_DATA:
                found, offset = _found(buffer, offset)
                answers.append(found)
            elif kind == _GET_CHILDREN:
                names, offset = _names(buffer, offset)
                answers.append(names)
            elif kind == _ERROR:
                answers.append(EXCEPTIONS[_INT.unpack_from(buffer, offset)[0]]())
                offset += _INT.size
            else:
                raise ValueError(f"a server answered a bulk read with operation {kind}")


def _found(buffer: bytes, offset: int) -> tuple[Found, int]:
    begin = offset + _INT.size
    # Hand-made nodes may have no data, which has the length -1.
    end = begin + max(_INT.unpack_from(buffer, offset)[0], 0)
    czxid, mzxid, _, _, version, _, _, owner, _, children, pzxid = _STAT.unpack_from(buffer, end)
    stat = Stat(
        creation_id=czxid, modification_id=mzxid, version=version, children_id=pzxid, ephemeral_owner=owner or None
    )
    return Found(Node(data=bytes(buffer[begin:end]), stat=stat), children), end + _STAT.size


def _names(buffer: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = _INT.unpack_from(buffer, offset)
    offset += _INT.size
    names: list[str] = []
    for _ in range(count):
        begin = offset + _INT.size
        offset = begin + _INT.unpack_from(buffer, offset)[0]
        names.append(bytes(buffer[begin:offset]).decode("utf-8"))
    return names, offset
