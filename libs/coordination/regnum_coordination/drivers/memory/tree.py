"""The nodes of the memory store and the rules for changing them. Pure: no asyncio, no clock."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from regnum_coordination.errors import BadVersion, NodeExists, NoNode, NotEmpty
from regnum_coordination.paths import ROOT, ancestors, name, parent
from regnum_coordination.port import (
    Absent,
    Check,
    Children,
    Create,
    Delete,
    Node,
    Operation,
    OperationResult,
    Set,
    Stat,
)


@dataclass(slots=True, kw_only=True)
class Touched:
    """What a change touched, for watches."""

    nodes: set[str] = field(default_factory=set)
    """Paths created, set or deleted."""
    folders: set[str] = field(default_factory=set)
    """Paths whose set of children changed."""


class Tree:
    """All nodes. A multi is one change with one id."""

    def __init__(self) -> None:
        root = Stat(creation_id=0, modification_id=0, version=0, children_id=0, ephemeral_owner=None)
        self._nodes: dict[str, Node] = {ROOT: Node(data=b"", stat=root)}
        self._children: dict[str, set[str]] = {}
        self._sequences: dict[str, int] = {}
        self._last_id = 0

    def copy(self) -> "Tree":
        """A picture that later changes leave alone."""
        tree = Tree()
        tree._nodes = dict(self._nodes)
        tree._children = {path: set(names) for path, names in self._children.items()}
        tree._last_id = self._last_id
        return tree

    @property
    def last_id(self) -> int:
        """Id of the last change."""
        return self._last_id

    def get(self, path: str) -> Node | None:
        """The node, or None."""
        return self._nodes.get(path)

    def children(self, path: str) -> Children | None:
        """Children of a node, or None if there is no node."""
        node = self._nodes.get(path)
        if node is None:
            return None
        return Children(names=tuple(sorted(self._children.get(path, ()))), children_id=node.stat.children_id)

    def nodes(self) -> dict[str, Node]:
        """All nodes by path, as they are now; the root is one of them."""
        return dict(self._nodes)

    def owned_by(self, session_id: int) -> tuple[str, ...]:
        """Ephemeral nodes of a session."""
        return tuple(sorted(path for path, node in self._nodes.items() if node.stat.ephemeral_owner == session_id))

    def next_sequence(self, folder: str) -> int:
        """A number that grows by one with each call for the folder."""
        number = self._sequences.get(folder, 0)
        self._sequences[folder] = number + 1
        return number

    def refusal(self, check: Check) -> NoNode | BadVersion | None:
        """Why the check fails, or None if it holds."""
        node = self._nodes.get(check.path)
        if node is None:
            return NoNode(check.path)
        if check.version is not None and node.stat.version != check.version:
            return BadVersion(check.path, expected=check.version, found=node.stat.version)
        return None

    def apply(self, operations: Sequence[Operation], session_id: int) -> tuple[tuple[OperationResult, ...], Touched]:
        """All operations or none; raises what the first failing one raises."""
        undo: list[Callable[[], None]] = []
        touched = Touched()
        self._last_id += 1
        try:
            results = tuple(self._apply_one(operation, session_id, undo, touched) for operation in operations)
        except (NoNode, NodeExists, BadVersion, NotEmpty):
            for step in reversed(undo):
                step()
            self._last_id -= 1
            raise
        return results, touched

    def remove(self, paths: Iterable[str]) -> Touched:
        """The end of a session: its nodes go as one change."""
        touched = Touched()
        self._last_id += 1
        for path in paths:
            self._put(path, None, [], touched)
        return touched

    def overwrite(self, path: str, data: bytes) -> Touched:
        """A hand edit as by a plain ``etcdctl put``: creates without a look at the parent, and strips the owner."""
        touched = Touched()
        self._last_id += 1
        old = self._nodes.get(path)
        if old is None:
            self._put(path, self._fresh(data, None), [], touched)
        else:
            stat = replace(old.stat, modification_id=self._last_id, version=old.stat.version + 1, ephemeral_owner=None)
            self._put(path, Node(data=data, stat=stat), [], touched)
        return touched

    def _fresh(self, data: bytes, owner: int | None) -> Node:
        id = self._last_id
        return Node(
            data=data,
            stat=Stat(creation_id=id, modification_id=id, version=0, children_id=id, ephemeral_owner=owner),
        )

    def _apply_one(
        self, operation: Operation, session_id: int, undo: list[Callable[[], None]], touched: Touched
    ) -> OperationResult:
        path = operation.path
        node = self._nodes.get(path)
        match operation:
            case Check():
                self._check(operation)
                return OperationResult(path, None)
            case Absent():
                self._check_absent(path)
                return OperationResult(path, None)
            case Create():
                return self._create(operation, session_id, undo, touched)
            case Set():
                if (refusal := self.refusal(Check(path, operation.version))) is not None or node is None:
                    raise refusal or NoNode(path)
                stat = replace(node.stat, modification_id=self._last_id, version=node.stat.version + 1)
                self._put(path, Node(data=operation.data, stat=stat), undo, touched)
                return OperationResult(path, stat)
            case Delete():
                self._check(Check(path, operation.version))
                if self._children.get(path):
                    raise NotEmpty(path)
                self._put(path, None, undo, touched)
                return OperationResult(path, None)
            case _:
                assert_never(operation)

    def _check(self, check: Check) -> None:
        if (refusal := self.refusal(check)) is not None:
            raise refusal

    def _check_absent(self, path: str) -> None:
        folders = filter(None, map(self._nodes.get, ancestors(path)))
        if any(folder.stat.ephemeral_owner is not None for folder in folders):
            raise NoNode(path, "its parent is ephemeral")
        if path in self._nodes:
            raise NodeExists(path)

    def _create(
        self, operation: Create, session_id: int, undo: list[Callable[[], None]], touched: Touched
    ) -> OperationResult:
        path = operation.path
        folder = self._nodes.get(parent(path))
        if folder is None or folder.stat.ephemeral_owner is not None:
            raise NoNode(path, "its parent does not exist" if folder is None else "its parent is ephemeral")
        if path in self._nodes:
            raise NodeExists(path)
        fresh = self._fresh(operation.data, session_id if operation.ephemeral else None)
        self._put(path, fresh, undo, touched)
        return OperationResult(path, fresh.stat)

    def _put(self, path: str, node: Node | None, undo: list[Callable[[], None]], touched: Touched) -> None:
        """Store or remove a node, keep the folder in step, and note how to take it back."""
        old = self._nodes.get(path)
        undo.append(lambda: self._store(path, old))
        self._store(path, node)
        touched.nodes.add(path)
        folder = self._nodes.get(parent(path))
        if (old is None) != (node is None):
            touched.folders.add(parent(path))
            if folder is not None:
                undo.append(lambda: self._store(parent(path), folder))
                changed = replace(folder.stat, children_id=self._last_id)
                self._store(parent(path), Node(data=folder.data, stat=changed))

    def _store(self, path: str, node: Node | None) -> None:
        siblings = self._children.setdefault(parent(path), set()) if path != ROOT else set()
        if node is None:
            self._nodes.pop(path, None)
            siblings.discard(name(path))
        else:
            self._nodes[path] = node
            siblings.add(name(path))
