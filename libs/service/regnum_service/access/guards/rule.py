"""The rule of a method: what a passage through it asks, on the way in and on the way out."""

from typing import Any, Final, Protocol

from regnum_service.access.authorization import Authorizer, Right, require_role
from regnum_service.access.identity import ProcessRole


class Passage:
    """One call on its way through a guard. As it stands it lets everything pass; rules change what they need to.

    A stream goes in and out with each message, so that a right that is revoked ends it.
    """

    over = False
    """The answer that was given last is the last one of the stream."""

    def begin(self) -> None:
        """Before the handler of a request stream begins. Raises RegnumError to refuse the call."""

    async def enter(self, request: Any) -> Any | None:
        """Before the servicer sees a request: None lets it on, perhaps without some items; else the whole answer.

        Raises RegnumError to refuse the call.
        """
        del request
        return None

    async def leave(self, response: Any) -> Any:
        """What the caller gets of the one answer. Raises RegnumError; never after something was changed."""
        return response

    async def step(self, response: Any) -> Any:
        """What the caller gets of one answer of a stream; None: nothing. Raises RegnumError to end the call."""
        return await self.leave(response)


class Rule(Protocol):
    """What a method needs. Stateless: each call gets a passage of its own."""

    @property
    def in_handler(self) -> bool:
        """The handler asks for itself: nothing stands before it."""

    def passage(self, authorizer: Authorizer) -> Passage:
        """For one call."""


class Open:
    """Whoever can connect may call it, and learns nothing that rights are about."""

    in_handler: Final = False

    def __init__(self, why: str) -> None:
        """``why``: for readers of the table."""
        self.why: Final = why

    def passage(self, authorizer: Authorizer) -> Passage:
        """Lets everything pass."""
        del authorizer
        return Passage()


class InHandler:
    """The handler asks: it meets names only on its way."""

    in_handler: Final = True

    def __init__(self, right: Right | None, where: str) -> None:
        """``right``: what it asks for, None: several; ``where``: the module that does, for readers of the table."""
        self.right: Final = right
        self.where: Final = where

    def passage(self, authorizer: Authorizer) -> Passage:
        """Lets everything pass."""
        del authorizer
        return Passage()


class _Requiring(Passage):
    def __init__(self, rule: "OnCluster", authorizer: Authorizer) -> None:
        self._rule: Final = rule
        self._authorizer: Final = authorizer

    def begin(self) -> None:
        if self._rule.roles is not None:
            require_role(self._rule.roles, self._rule.right, self._authorizer)
        self._rule.right.require(self._authorizer)

    async def enter(self, request: Any) -> Any | None:
        del request
        self.begin()
        return None

    async def leave(self, response: Any) -> Any:
        if self._rule.again:
            self.begin()
        return response

    async def step(self, response: Any) -> Any:
        self.begin()
        return response


class OnCluster:
    """One right on the cluster: the whole call, or nothing."""

    in_handler: Final = False

    def __init__(self, right: Right, *, again: bool = False, roles: frozenset[ProcessRole] | None = None) -> None:
        """Only assigns.

        Args:
            right: of resource type CLUSTER.
            again: an answer that was waited for asks once more.
            roles: of the processes that call it, where processes are told apart; None: it is not for processes alone.
        """
        self.right: Final = right
        self.again: Final = again
        self.roles: Final = roles

    def passage(self, authorizer: Authorizer) -> Passage:
        """Asks with each message of a stream, in and out."""
        return _Requiring(self, authorizer)
