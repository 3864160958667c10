"""A transaction of many operations as one request: written in one go, its answer read in one go.

Goals: a write of a large batch costs the driver little more than its bytes. kazoo's own transaction makes an object, a
header and several short strings of each operation, and of each answer a header, a tuple and a place in two lists.

Constraints: an answer is as of kazoo's: what does not happen names the first operation that failed and rolls back or
skips the others. What cannot be read is a request without a known outcome, never one that did not happen.

Algorithm: the bytes of headers are made once; strings are joined at the end. A check that an earlier operation of the
same transaction has made already is not sent again: groups of one batch rely on the same guards, and nobody else's
write comes between two operations of a transaction. Who checks a path after a write to it in the same transaction is
refused before (``requests.check_operations``, ``requests.WavePlan``). A check of absence is two operations; see
``transactions``.

The wire (``MultiOperationRecord`` and ``MultiResponse`` of ZooKeeper): before each part a header of type, whether it is
the end, and error; parts are those of the single requests and their answers, an error is its number.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self, assert_never

from kazoo.exceptions import EXCEPTIONS

from regnum_coordination.drivers.zookeeper.answers import wire_version
from regnum_coordination.drivers.zookeeper.names import ServerNames
from regnum_coordination.port import Absent, Check, Create, Delete, Operation, Set, Stat

_MULTI: Final = 14
_CREATE: Final = 1
_DELETE: Final = 2
_SET: Final = 5
_CHECK: Final = 13
_ERROR: Final = -1

_HEADER: Final = struct.Struct("!iBi")
_INT: Final = struct.Struct("!i")
_STAT: Final = struct.Struct("!qqqqiiiqiiq")
_END: Final = _HEADER.pack(-1, 1, -1)
_HEADERS: Final = {kind: _HEADER.pack(kind, 0, -1) for kind in (_CREATE, _DELETE, _SET, _CHECK)}
_PERSISTENT: Final = _INT.pack(0)
_EPHEMERAL: Final = _INT.pack(1)

_NOTHING: Final[Mapping[int, str]] = {}

Told = Stat | Exception | None
"""What is answered of one operation: the stat that a set left, kazoo's exception, or nothing more than that it
happened."""


@dataclass(frozen=True, slots=True)
class BulkWrite:
    """A transaction as kazoo sends it."""

    type: ClassVar[int] = _MULTI
    wire: bytes = field(repr=False)
    """Its bytes."""
    places: Sequence[int]
    """Index, among the operations that it was made of, of each one that is sent."""

    @classmethod
    def of(
        cls,
        operations: Iterable[Operation],
        names: ServerNames,
        access: Sequence[Any],
        instead: Mapping[int, str] = _NOTHING,
    ) -> Self:
        """Made of operations.

        Args:
            operations: what it does.
            names: paths of the server.
            access: the list for what is created, in kazoo's words.
            instead: paths whose absence is checked instead of that of an operation, by its index.
        """
        parts: list[bytes] = []
        places: list[int] = []
        checked: dict[str, int] = {}
        allowed = _access(access)
        number = _INT.pack
        for place, operation in enumerate(operations):
            # Not by match, which takes apart what is not needed: every group of a batch comes by here.
            if isinstance(operation, Check):
                version = wire_version(operation.version)
                if checked.get(operation.path) == version:
                    continue
                checked[operation.path] = version
                path = names.path(operation.path).encode()
                parts += (_HEADERS[_CHECK], number(len(path)), path, number(version))
            elif isinstance(operation, Set):
                path, data = names.path(operation.path).encode(), operation.data
                version = wire_version(operation.version)
                parts += (_HEADERS[_SET], number(len(path)), path, number(len(data)), data, number(version))
            elif isinstance(operation, Create):
                path, data = names.path(operation.path).encode(), operation.data
                flags = _EPHEMERAL if operation.ephemeral else _PERSISTENT
                parts += (_HEADERS[_CREATE], number(len(path)), path, number(len(data)), data, allowed, flags)
            elif isinstance(operation, Delete):
                path = names.path(operation.path).encode()
                parts += (_HEADERS[_DELETE], number(len(path)), path, number(wire_version(operation.version)))
            elif isinstance(operation, Absent):
                path = names.path(instead.get(place, operation.path)).encode()
                parts += (_HEADERS[_CREATE], number(len(path)), path, number(0), allowed, _PERSISTENT)
                parts += (_HEADERS[_DELETE], number(len(path)), path, number(0))
                places.append(place)
            else:
                assert_never(operation)
            places.append(place)
        return cls(b"".join((*parts, _END)), places)

    def serialize(self) -> bytes:
        """Its bytes."""
        return self.wire

    def deserialize(self, buffer: bytes, offset: int) -> list[Told]:
        """One for each operation that was sent; called on kazoo's thread.

        Raises ValueError for an answer that is none to this request.
        """
        told: list[Told] = []
        failed = False
        header, stat = _HEADER.unpack_from, _STAT.unpack_from
        while True:
            kind, done, _ = header(buffer, offset)
            offset += _HEADER.size
            if done:
                break
            if kind == _SET:
                czxid, mzxid, _, _, version, _, _, owner, _, _, pzxid = stat(buffer, offset)
                offset += _STAT.size
                told.append(
                    Stat(
                        creation_id=czxid,
                        modification_id=mzxid,
                        version=version,
                        children_id=pzxid,
                        ephemeral_owner=owner or None,
                    )
                )
            elif kind in {_CHECK, _DELETE}:
                told.append(None)
            elif kind == _CREATE:
                # The path, which is known.
                offset += _INT.size + max(_INT.unpack_from(buffer, offset)[0], 0)
                told.append(None)
            elif kind == _ERROR:
                failed = True
                told.append(EXCEPTIONS[_INT.unpack_from(buffer, offset)[0]]())
                offset += _INT.size
            else:
                raise ValueError(f"a server answered a transaction with operation {kind}")
        if not failed and len(told) != len(self.places):
            raise ValueError(f"a server answered {len(told)} of {len(self.places)} operations of a transaction")
        return told


def _access(access: Sequence[Any]) -> bytes:
    parts = [_INT.pack(len(access))]
    for one in access:
        parts.append(_INT.pack(one.perms))
        for text in (one.id.scheme, one.id.id):
            # None at all is what an empty one is written as.
            parts += (_INT.pack(len(text.encode()) or -1), text.encode())
    return b"".join(parts)
