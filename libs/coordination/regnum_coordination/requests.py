"""What a request may contain, and in which order the groups of a batch may be carried out. Pure.

Goals: refuse on every driver what one store cannot do (safety rule S5), so that no caller depends on the other store;
let the groups of a batch share transactions without one seeing half of another.

Constraints: within a transaction etcd evaluates all comparisons, also those of nested transactions, before it writes
anything, and refuses two writes of one key.

Algorithm: a group's wave is one more than the highest wave of an earlier group that writes what this one reads or
writes. A create reads its parent and changes the parent's children; a check of absence reads the parent too; a delete
reads the node's own children. Groups of one wave may share a transaction; waves are carried out one after another.

Example: [set /a], [set /b], [check /a, set /c], [create /a/x] have waves 0, 0, 1, 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from regnum_coordination.errors import InvalidRequest
from regnum_coordination.paths import ROOT, check_path, check_written_path, parent
from regnum_coordination.port import Absent, Check, Create, Delete, Group, Operation, Set

MAX_BYTES: Final = 1_000_000
"""Paths and data of one multi or group; ZooKeeper's limit is 1 MiB, etcd's 1.5 MiB."""

NODE_BYTES_MAX: Final = 900_000
"""Content of one node, for whoever plans what to write: together with its path, the checks of its group and the prefix
of a store's URL it is within MAX_BYTES and within each store's own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a group touches."""

    reads: frozenset[str]
    """Nodes whose existence or version it relies on."""
    reads_children: frozenset[str]
    """Folders whose emptiness it relies on."""
    writes: frozenset[str]
    """Nodes it creates, sets or deletes."""
    changes_children: frozenset[str]
    """Folders whose set of children it changes."""


def footprint(operations: Sequence[Operation]) -> Footprint:
    """What the operations touch."""
    reads: set[str] = set()
    reads_children: set[str] = set()
    writes: set[str] = set()
    changes_children: set[str] = set()
    for operation in operations:
        path = operation.path
        match operation:
            case Check():
                reads.add(path)
            case Absent():
                reads.update((path, parent(path)))
            case Create():
                reads.add(parent(path))
                writes.add(path)
                changes_children.add(parent(path))
            case Set():
                writes.add(path)
            case Delete():
                reads_children.add(path)
                writes.add(path)
                changes_children.add(parent(path))
            case _:
                assert_never(operation)
    return Footprint(
        reads=frozenset(reads),
        reads_children=frozenset(reads_children),
        writes=frozenset(writes),
        changes_children=frozenset(changes_children),
    )


def check_operations(operations: Sequence[Operation]) -> None:
    """Raise InvalidRequest for bad paths, too much data, a path written twice (S5) or checked after it was written.

    A path whose absence is checked counts as written, because ZooKeeper's driver writes it, but may be checked again.
    """
    if len(operations) == 1 and isinstance(only := operations[0], Set) and len(only.path) + len(only.data) < MAX_BYTES:
        check_written_path(only.path)  # the usual group of a large batch
        return
    written: set[str] = set()
    absent: set[str] = set()
    total_bytes = 0
    for operation in operations:
        path = operation.path
        total_bytes += len(path) + (len(operation.data) if isinstance(operation, Create | Set) else 0)
        if total_bytes > MAX_BYTES:
            raise InvalidRequest(f"paths and data exceed {MAX_BYTES} bytes at {path}; store less, or split the multi")
        if isinstance(operation, Check):
            check_path(path)
            if path in written:
                raise InvalidRequest(f"{path} is checked after it was written in the same multi; check it first")
            continue
        check_written_path(path)
        if path in written or (path in absent and not isinstance(operation, Absent)):
            raise InvalidRequest(f"{path} is written twice in one multi; split it into two")
        (absent if isinstance(operation, Absent) else written).add(path)


def check_batch(groups: Sequence[Group], fence: Check | None) -> None:
    """Raise InvalidRequest for a bad group, or one that writes the path that fences the whole batch."""
    if fence is not None:
        check_path(fence.path)
    for group in groups:
        if not group:
            raise InvalidRequest("a group of the batch is empty; leave it out")
        check_operations(group)
        for operation in group:
            if fence is not None and operation.path == fence.path and not isinstance(operation, Check | Absent):
                raise InvalidRequest(f"a group writes {fence.path}, which fences the batch; write it with multi")


class WavePlan:
    """Gives the groups of one batch their waves, one after another; see the head of the module."""

    def __init__(self) -> None:
        self._node_waves: dict[str, int] = {}
        self._children_waves: dict[str, int] = {}

    def place(self, group: Group) -> int:
        """Wave of the next group."""
        nodes, children = self._node_waves, self._children_waves
        wave = 0
        for operation in group:
            path = operation.path
            wave = max(wave, nodes.get(path, -1) + 1)
            if isinstance(operation, Create | Absent):
                wave = max(wave, nodes.get(parent(path), -1) + 1)
            elif isinstance(operation, Delete):
                wave = max(wave, children.get(path, -1) + 1)
        for operation in group:
            if isinstance(operation, Check | Absent):
                continue
            nodes[operation.path] = wave
            if not isinstance(operation, Set) and (folder := parent(operation.path)) != ROOT:
                children[folder] = max(wave, children.get(folder, -1))
        return wave


def waves(groups: Sequence[Group]) -> tuple[tuple[int, ...], ...]:
    """Indexes of the groups, by wave."""
    plan = WavePlan()
    result: list[list[int]] = []
    for index, group in enumerate(groups):
        wave = plan.place(group)
        while len(result) <= wave:
            result.append([])
        result[wave].append(index)
    return tuple(tuple(wave) for wave in result)
