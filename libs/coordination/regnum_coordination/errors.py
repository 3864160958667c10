"""Outcomes of store operations that are not success, by ZooKeeper's names.

    CoordinationError
    |- NodeExists            the path exists
    |- NoNode                the path, or the parent of a path to create, does not exist
    |- NotEmpty              the node has children
    |- BadVersion            the node is at another version than expected
    |- SessionExpired        the session is over; its ephemeral nodes are gone or about to go
    |- ConnectionLoss        the outcome is unknown (safety rule S1); reads may simply be repeated
    |  |- StoreFull          the same of those before it; the store says that it takes no writes
    |  `- NoAuth             the same of those before it; the store refuses this one for want of rights
    |- Compacted             the revision asked for is gone; read the tree anew
    |- InvalidRequest        the request can never succeed (bad path, a path written twice, too large)

The first four carry the path. In a multi the path is that of the first operation that failed.
"""

from typing import Final


class CoordinationError(Exception):
    """Base of everything the port raises."""


class NodeFailure(CoordinationError):  # noqa: N818 - ZooKeeper's names have no Error suffix
    """A definite refusal because of one node."""

    def __init__(self, path: str, detail: str = "") -> None:
        super().__init__(f"{type(self).__name__}: {path}{': ' if detail else ''}{detail}")
        self.path: Final = path


class NodeExists(NodeFailure):
    """The path exists."""


class NoNode(NodeFailure):
    """The path does not exist, or the parent of the path to create does not."""


class NotEmpty(NodeFailure):
    """The node has children."""


class BadVersion(NodeFailure):
    """The node is at another version than expected. ``found`` is None where the store does not say."""

    def __init__(self, path: str, *, expected: int, found: int | None = None) -> None:
        super().__init__(path, f"expected version {expected}" + ("" if found is None else f", found {found}"))
        self.expected: Final = expected
        self.found: Final = found


class SessionExpired(CoordinationError):  # noqa: N818
    """The session is over. Open a new store object; nothing of this one will work again."""


class ConnectionLoss(CoordinationError):  # noqa: N818
    """No answer: the operation may have happened, may not, or may yet happen (safety rule S1)."""


class StoreFull(ConnectionLoss):
    """The store has no space and takes no writes until a person gives it some. An attempt before may have happened."""


class NoAuth(ConnectionLoss):
    """The store refuses the session's user, or a node's access list does, until a person gives rights back.

    A person may do so at any moment, also to a process that runs: what waits for a lost connection waits for this too,
    and goes on by itself. This attempt did nothing; one before it may have happened.
    """


class Compacted(CoordinationError):  # noqa: N818
    """The revision asked for, or a change after it, is gone from the store's history: read the tree anew."""


class InvalidRequest(CoordinationError):  # noqa: N818
    """The request can never succeed as it is."""
