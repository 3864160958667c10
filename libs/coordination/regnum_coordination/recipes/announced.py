"""What changed below ``/config/changes``: which nodes, or that anything may have.

Each change is announced by a node with the next number, which says the path that changed. Whoever has seen number 7
and finds 8 and 9 has missed nothing and reads what these two name. Where a number is missing, or somebody announced by
hand (a node of any name, with any content), everything has to be read again.
"""

from collections.abc import Sequence

from regnum_model.nodes import MalformedNodeError
from regnum_model.nodes.reading import loaded
from regnum_model.quotas import CHANGES, CLIENTS, USERS, QuotaEntity, change_number

from regnum_coordination.errors import InvalidRequest
from regnum_coordination.paths import check_path
from regnum_coordination.port import Node
from regnum_coordination.recipes.stored_quotas import Reader


class Announced:
    """Announcements as one follower has seen them; one for each session."""

    def __init__(self) -> None:
        """Only assigns: nothing has been seen."""
        self._names: frozenset[str] | None = None
        self._newest = 0

    async def look(self, reader: Reader, names: Sequence[str]) -> frozenset[str] | None:
        """Paths that changed since the last look; None: anything may have. Raises what the reader raises.

        Args:
            reader: reads the announcements.
            names: children of ``/config/changes`` as the watch shows them.
        """
        before, newest = self._names, self._newest
        numbers = {name: change_number(name) for name in names}
        self._names = frozenset(names)
        self._newest = max((number for number in numbers.values() if number is not None), default=0)
        if before is None or self._newest < newest:
            # Who removed the newest may have numbered anew from the first, under names that were seen.
            return None
        new = [name for name in names if name not in before]
        found = sorted(number for name in new if (number := numbers[name]) is not None)
        if len(found) < len(new) or found != list(range(newest + 1, newest + 1 + len(found))):
            return None
        nodes = await reader.read_many([f"{CHANGES}/{name}" for name in new])
        paths = [_path(node) for node in nodes.values()]
        return None if len(paths) < len(new) or None in paths else frozenset(path for path in paths if path)


def touches_quotas(changed: frozenset[str] | None) -> bool:
    """Whether quotas may have changed, by what ``Announced.look`` found."""
    return changed is None or any(map(_has_quotas, changed))


def _has_quotas(path: str) -> bool:
    # The cluster's node says what windows quotas are measured in.
    return path == QuotaEntity().path or path.startswith((USERS, CLIENTS))


def _path(node: Node) -> str | None:
    try:
        content = loaded(node.data)
    except (MalformedNodeError, ValueError):
        return None
    path = content.get("path") if isinstance(content, dict) else None
    if not isinstance(path, str):
        return None
    try:
        check_path(path)
    except InvalidRequest:
        # No read of it could succeed.
        return None
    return path
