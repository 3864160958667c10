r"""Operations as comparisons, and the reading of a failed transaction. Pure.

Goals: ZooKeeper's rules inside one etcd transaction (parents exist and are persistent, no node with children is
deleted), and on failure the first operation that ZooKeeper would have named.

Constraints: etcd evaluates all comparisons before it writes; it does not say which one failed; it counts comparisons,
operations and reads of the failure branch against one limit each.

Algorithm: each operation adds conditions; a condition is one comparison on one key or range and the same test in
Python. What an earlier operation of the same multi does is taken into account here: a parent created before needs no
comparison, deleted children are cut out of the range that must be empty, and what can no longer succeed gets a
comparison that never holds. The failure branch reads every compared key, without values; the first operation with a
test that fails names the error.

Example: delete /a/b, delete /a: /a must exist, and ["/a/", "/a/b") and ["/a/b\0", "/a0") must be empty.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from etcd3 import transactions
from etcd3.etcdrpc import rpc_pb2

from regnum_coordination.drivers.etcd.keys import Keys
from regnum_coordination.errors import BadVersion, NodeExists, NodeFailure, NoNode, NotEmpty
from regnum_coordination.paths import ROOT, ancestors, parent
from regnum_coordination.port import Absent, Check, Create, Delete, Operation, Set

_IMPOSSIBLE: Final = 2**62
"""No node is set so often."""

Interval = tuple[bytes, bytes | None]
"""A key, or a key and the end of a range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the failure branch read at one key or range."""

    version: int
    """etcd's version of the first key there; 0 if there is none."""
    lease: int
    """Its lease; 0 if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One comparison and the same test on what was read."""

    at: Interval
    """Where."""
    comparison: Any
    """``Compare`` message."""
    failure: Callable[[Seen], NodeFailure | None]
    """Why it does not hold; None if it does."""


@dataclass(slots=True, kw_only=True)
class _Overlay:
    """What earlier operations of the same multi have done."""

    created: dict[str, bool] = field(default_factory=dict)
    """Path and whether it is ephemeral."""
    deleted: set[str] = field(default_factory=set)
    """Paths."""


def exists(key: bytes) -> Any:
    """Comparison: the key exists."""
    return (transactions.Create(key) > 0).build_message()


def wire_version(version: int) -> int:
    """An expected version as etcd counts, from 1; what no node can have is -1, since etcd's 0 means absent."""
    return version + 1 if 0 <= version < _IMPOSSIBLE else -1


def at_count(key: bytes, count: int) -> Any:
    """Comparison: the key was put so many times since it was created; 0 means absent."""
    # Not through etcd3's builder, which takes four times as long: every group of a batch has one.
    return rpc_pb2.Compare(target=rpc_pb2.Compare.VERSION, result=rpc_pb2.Compare.EQUAL, key=key, version=count)


def _without_lease(key: bytes) -> Any:
    return rpc_pb2.Compare(target=rpc_pb2.Compare.LEASE, result=rpc_pb2.Compare.EQUAL, key=key, lease=0)


def _empty(start: bytes, end: bytes) -> Any:
    return (transactions.Version(start, end) == 0).build_message()


def conditions(operations: Sequence[Operation], keys: Keys) -> list[Condition]:
    """What must hold for all operations to succeed, in the order in which ZooKeeper would look."""
    overlay = _Overlay()
    result: list[Condition] = []
    for operation in operations:
        path = operation.path
        match operation:
            case Check(version=version):
                if path != ROOT:
                    result.append(_present(path, version, keys))
            case Absent():
                result += _below_no_ephemeral(path, keys, overlay)
                result.append(_absent(path, keys))
            case Create(ephemeral=ephemeral):
                result += _parent(path, keys, overlay)
                result.append(_absent(path, keys))
                overlay.created[path] = ephemeral
            case Set(version=version):
                result.append(_present(path, version, keys))
            case Delete(version=version):
                result.append(_present(path, version, keys))
                result += _childless(path, keys, overlay)
                overlay.deleted.add(path)
            case _:
                assert_never(operation)
    return result


def _present(path: str, version: int | None, keys: Keys) -> Condition:
    key = keys.key(path)

    def failure(seen: Seen) -> NodeFailure | None:
        if seen.version == 0:
            return NoNode(path)
        if version is not None and seen.version != version + 1:
            return BadVersion(path, expected=version, found=seen.version - 1)
        return None

    comparison = exists(key) if version is None else at_count(key, wire_version(version))
    return Condition(at=(key, None), comparison=comparison, failure=failure)


def _absent(path: str, keys: Keys) -> Condition:
    key = keys.key(path)

    def failure(seen: Seen) -> NodeFailure | None:
        return NodeExists(path) if seen.version else None

    return Condition(at=(key, None), comparison=at_count(key, 0), failure=failure)


def _parent(path: str, keys: Keys, overlay: _Overlay) -> list[Condition]:
    folder = parent(path)
    if folder == ROOT or overlay.created.get(folder) is False:
        return []
    if folder in overlay.deleted or overlay.created.get(folder):
        return [_never(path, keys, NoNode(path, "its parent is deleted or ephemeral in the same multi"))]
    key = keys.key(folder)

    def missing(seen: Seen) -> NodeFailure | None:
        return None if seen.version else NoNode(path, "its parent does not exist")

    return [
        Condition(at=(key, None), comparison=exists(key), failure=missing),
        _persistent(path, key),
    ]


def _persistent(path: str, folder: bytes) -> Condition:
    """The key of a folder has no lease, or is missing."""

    def ephemeral(seen: Seen) -> NodeFailure | None:
        return NoNode(path, "its parent is ephemeral") if seen.lease else None

    return Condition(at=(folder, None), comparison=_without_lease(folder), failure=ephemeral)


def _below_no_ephemeral(path: str, keys: Keys, overlay: _Overlay) -> list[Condition]:
    folders = tuple(ancestors(path))
    if any(overlay.created.get(folder) for folder in folders):
        return [_never(path, keys, NoNode(path, "its parent is ephemeral"))]
    return [_persistent(path, keys.key(folder)) for folder in folders if folder not in overlay.deleted]


def _childless(path: str, keys: Keys, overlay: _Overlay) -> list[Condition]:
    if any(parent(created) == path for created in overlay.created):
        return [_never(path, keys, NotEmpty(path))]

    def failure(seen: Seen) -> NodeFailure | None:
        return NotEmpty(path) if seen.version else None

    start, end = keys.below(path)
    result: list[Condition] = []
    for gone in sorted(keys.key(deleted) for deleted in overlay.deleted if deleted.startswith(path + "/")):
        if start < gone:
            result.append(Condition(at=(start, gone), comparison=_empty(start, gone), failure=failure))
        start = gone + b"\0"
    result.append(Condition(at=(start, end), comparison=_empty(start, end), failure=failure))
    return result


def _never(path: str, keys: Keys, error: NodeFailure) -> Condition:
    key = keys.key(path)
    return Condition(
        at=(key, None), comparison=(transactions.Version(key) < 0).build_message(), failure=lambda _: error
    )


def places(wanted: Sequence[Condition]) -> list[Interval]:
    """Keys and ranges the conditions speak of, each once: what the failure branch reads."""
    return list(dict.fromkeys(condition.at for condition in wanted))


def first_failure(wanted: Sequence[Condition], seen: dict[Interval, Seen]) -> NodeFailure | None:
    """Why the first operation that fails does; None if all conditions hold by now."""
    for condition in wanted:
        if (failure := condition.failure(seen[condition.at])) is not None:
            return failure
    return None
