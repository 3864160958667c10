"""Multis and batches as ZooKeeper's transactions, and what their answers mean. Pure.

A transaction that fails names only the first operation that failed; what came before was rolled back, what comes after
was not looked at. To settle the other groups of a failed transaction, the nodes that they touch are read again and
each group is held against them here (safety rule S4).

A check of absence is a creation and, behind it, the deletion of what was created, in the same transaction: ZooKeeper
has no such check, and nothing is to be seen of a node that came and went within one (the exception to safety rule S5).
Where the parent is missing the creation fails although the node is absent: then the absence of the parent, from which
it follows, is checked instead.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.exceptions import NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency, ZookeeperError

from regnum_coordination.drivers.zookeeper.names import ServerNames
from regnum_coordination.errors import BadVersion, InvalidRequest, NodeExists, NodeFailure, NoNode, NotEmpty
from regnum_coordination.paths import ROOT, ancestors, parent
from regnum_coordination.port import Absent, Create, Delete, Operation, OperationResult, Set, Stat

MAX_TRANSACTION_BYTES: Final = 1_040_000
"""Bytes of one transaction; a server takes frames of 1 MiB less one byte (``jute.maxbuffer``)."""
MAX_OPERATIONS: Final = 500
"""Operations of one transaction of a batch; the server works on one while the next is being made."""

_OVERHEAD: Final = 64
"""Bytes of an operation besides path and data: headers, version, access list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A node as read again."""

    version: int
    """Its version."""
    ephemeral: bool
    """Whether it can have no children."""
    children: int
    """How many it has."""


def seen_of(stat: Any) -> Seen:
    """From kazoo's stat."""
    return Seen(version=stat.version, ephemeral=bool(stat.ephemeralOwner), children=stat.numChildren)


@dataclass(slots=True, kw_only=True)
class _Overlay:
    """The nodes as the earlier operations of a group leave them."""

    base: dict[str, Seen | None]
    """As read."""
    changed: dict[str, Seen | None] = field(default_factory=dict)
    """As left; None for deleted."""

    def at(self, path: str) -> Seen | None:
        return self.changed[path] if path in self.changed else self.base.get(path)

    def count(self, folder: str, by: int) -> None:
        if (seen := self.at(folder)) is not None:
            self.changed[folder] = Seen(
                version=seen.version, ephemeral=seen.ephemeral, children=max(0, seen.children + by)
            )


def size(operations: Iterable[Operation], names: ServerNames) -> int:
    """Bytes of the operations on the wire, rather too many."""
    total = 0
    for operation in operations:
        path = operation.path
        total += _OVERHEAD + (len(names.root) + len(path) if path.isascii() else len(names.path(path).encode()))
        if isinstance(operation, Create | Set):
            total += len(operation.data)
        elif isinstance(operation, Absent):
            # Sent twice.
            total += _OVERHEAD + len(names.path(path).encode())
    return total


def sent(operations: Iterable[Operation]) -> int:
    """How many operations of ZooKeeper's they are, or fewer."""
    return sum(2 if isinstance(operation, Absent) else 1 for operation in operations)


def checked_instead(check: Absent, checked: str, found: object) -> str | None:
    """Another path whose absence says as much and has not been refuted; None where the check has failed.

    Args:
        check: what was asked for.
        checked: the path that was created and deleted: that of the check, or of a node above it.
        found: kazoo's exception.
    """
    if isinstance(found, NoNodeError) and parent(checked) != ROOT:
        return parent(checked)
    if isinstance(found, NodeExistsError) and checked != check.path:
        # The parent has been created since.
        return check.path
    return None


def check_size(operations: Sequence[Operation], names: ServerNames) -> int:
    """Its size; raises InvalidRequest for what fits into no transaction."""
    total = size(operations, names)
    if total > MAX_TRANSACTION_BYTES:
        raise InvalidRequest(
            f"a multi of {len(operations)} operations takes {total} bytes and ZooKeeper's limit is "
            f"{MAX_TRANSACTION_BYTES}; store less, or split it"
        )
    return total


class Packer:
    """Puts groups, one after the other, into as few transactions as possible."""

    def __init__(self, *, fence_size: int) -> None:
        self._fence_size = fence_size
        self._indexes: list[int] = []
        self._operations = 0
        self._bytes = fence_size

    def add(self, index: int, operations: int, length: int) -> list[int]:
        """Add a group; the indexes of a transaction that is full without it, empty while there is room."""
        full: list[int] = []
        if self._operations + operations > MAX_OPERATIONS or self._bytes + length > MAX_TRANSACTION_BYTES:
            full = self.rest()
        self._indexes.append(index)
        self._operations += operations
        self._bytes += length
        return full

    def rest(self) -> list[int]:
        """What is not in a full transaction yet; begins anew."""
        indexes, self._indexes, self._operations, self._bytes = self._indexes, [], 0, self._fence_size
        return indexes


def first_failure(answers: Iterable[object]) -> tuple[int, object] | None:
    """Place and error of the operation that failed; None if all happened."""
    for place, answer in enumerate(answers):
        if isinstance(answer, ZookeeperError) and not isinstance(answer, RolledBackError | RuntimeInconsistency):
            return place, answer
    return None


def results(
    operations: Sequence[Operation], stats: Iterator[Stat], zxid: int, session_id: int
) -> tuple[OperationResult, ...]:
    """What operations of a transaction left behind.

    Args:
        operations: those of one group.
        stats: what the transaction's sets left, in order, from the first of these operations on; taken from.
        zxid: the transaction's.
        session_id: whose it is.
    """
    found: list[OperationResult] = []
    for operation in operations:
        stat: Stat | None = None
        if isinstance(operation, Set):
            stat = next(stats)
        elif isinstance(operation, Create):
            # A transaction answers a creation with its path alone, and the rest follows from its id.
            stat = Stat(
                creation_id=zxid,
                modification_id=zxid,
                version=0,
                children_id=zxid,
                ephemeral_owner=session_id if operation.ephemeral else None,
            )
        found.append(OperationResult(operation.path, stat))
    return tuple(found)


def touched(operations: Iterable[Operation]) -> set[str]:
    """Nodes that decide whether the operations can happen."""
    paths: set[str] = set()
    for operation in operations:
        paths.add(operation.path)
        if isinstance(operation, Create):
            paths.add(parent(operation.path))
        elif isinstance(operation, Absent):
            paths.update(ancestors(operation.path))
    return paths


def refusal(operations: Iterable[Operation], nodes: dict[str, Seen | None]) -> NodeFailure | None:
    """Why a group cannot happen, given the nodes it touches; None if it can."""
    overlay = _Overlay(base=nodes)
    for operation in operations:
        if (failure := _refusal(operation, overlay)) is not None:
            return failure
    return None


def _refusal(operation: Operation, overlay: _Overlay) -> NodeFailure | None:
    if isinstance(operation, Create):
        return _refused_create(operation, overlay)
    if isinstance(operation, Absent):
        return _refused_absence(operation.path, overlay)
    path = operation.path
    seen = overlay.at(path)
    if seen is None:
        return NoNode(path)
    if operation.version is not None and seen.version != operation.version:
        return BadVersion(path, expected=operation.version, found=seen.version)
    if isinstance(operation, Set):
        overlay.changed[path] = Seen(version=seen.version + 1, ephemeral=seen.ephemeral, children=seen.children)
    if isinstance(operation, Delete):
        if seen.children:
            return NotEmpty(path)
        overlay.changed[path] = None
        overlay.count(parent(path), -1)
    return None


def _refused_absence(path: str, overlay: _Overlay) -> NodeFailure | None:
    if any(folder is not None and folder.ephemeral for folder in map(overlay.at, ancestors(path))):
        return NoNode(path, "its parent is ephemeral")
    return None if overlay.at(path) is None else NodeExists(path)


def _refused_create(operation: Create, overlay: _Overlay) -> NodeFailure | None:
    path = operation.path
    folder = overlay.at(parent(path))
    if folder is None:
        return NoNode(path, "its parent does not exist")
    if folder.ephemeral:
        return NoNode(path, "its parent is ephemeral")
    if overlay.at(path) is not None:
        return NodeExists(path)
    overlay.changed[path] = Seen(version=0, ephemeral=operation.ephemeral, children=0)
    overlay.count(parent(path), 1)
    return None
