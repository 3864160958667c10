"""kazoo's answers in the port's words; the one table of its errors. Pure."""

from collections.abc import Callable
from typing import Any, Final

from kazoo import exceptions

from regnum_coordination.drivers.session_state import expired
from regnum_coordination.errors import (
    BadVersion,
    ConnectionLoss,
    CoordinationError,
    InvalidRequest,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    StoreFull,
)
from regnum_coordination.port import Node, Stat

_NO_RIGHTS: Final = (exceptions.NoAuthError, exceptions.AuthFailedError, exceptions.InvalidACLError)
"""What a person may allow at any time."""

_INVALID: Final = (
    exceptions.BadArgumentsError,
    exceptions.MarshallingError,
    exceptions.UnimplementedError,
    exceptions.NotReadOnlyCallError,
)
"""What the same request will always be answered with."""

_ANY: Final = -1
_IMPOSSIBLE: Final = 2**31 - 1


def wire_version(version: int | None) -> int:
    """An expected version as the server takes it: -1 means any, and so must no number of ours."""
    if version is None:
        return _ANY
    return version if 0 <= version < _IMPOSSIBLE else _IMPOSSIBLE


_ABOUT_A_NODE: Final[dict[type[Exception], Callable[[str], CoordinationError]]] = {
    exceptions.NoNodeError: NoNode,
    exceptions.NoChildrenForEphemeralsError: lambda path: NoNode(path, "its parent is ephemeral"),
    exceptions.NodeExistsError: NodeExists,
    exceptions.NotEmptyError: NotEmpty,
    exceptions.QuotaExceededError: lambda path: StoreFull(
        f"ZooKeeper takes no more at {path}; raise the hard quota of a node above it (setquota), or delete that quota"
    ),
}
"""What is said by the node alone."""


def to_error(error: object, path: str, version: int | None = None) -> CoordinationError:
    """The port's error for one of kazoo's that concerns a path, expected at a version."""
    if isinstance(error, Exception) and (about := _ABOUT_A_NODE.get(type(error))) is not None:
        return about(path)
    if isinstance(error, exceptions.BadVersionError) and version is not None:
        return BadVersion(path, expected=version)
    if isinstance(error, exceptions.SessionExpiredError):
        return expired()
    reason = f"{type(error).__name__} {error}".strip()
    if isinstance(error, _NO_RIGHTS):
        return NoAuth(f"ZooKeeper refuses {path}: {reason}; see its access list, and user= in the URL")
    if isinstance(error, _INVALID):
        return InvalidRequest(f"ZooKeeper refuses {path}: {reason}")
    return ConnectionLoss(f"ZooKeeper: {reason}; a write may have happened, resolve by repeating it")


def stat_of(found: Any) -> Stat:
    """A stat."""
    return Stat(
        creation_id=found.czxid,
        modification_id=found.mzxid,
        version=found.version,
        children_id=found.pzxid,
        ephemeral_owner=found.ephemeralOwner or None,
    )


def node_of(found: Any) -> Node:
    """A node from its data, which hand-made nodes may lack, and stat."""
    data, stat = found
    return Node(data=data or b"", stat=stat_of(stat))
