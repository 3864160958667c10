"""The rule of FindCoordinator: groups by one right, transactional ids by another; a request asks for one of the two."""

from typing import Any, Final

from regnum.types.v1 import errors_pb2

from regnum_service.access.authorization import Authorizer
from regnum_service.access.guards.rule import Passage, Rule
from regnum_service.errors import RegnumError


class Coordinators:
    """Chooses by what a request asks for."""

    in_handler: Final = False

    def __init__(self, *, groups: Rule, transactions: Rule) -> None:
        """Only assigns."""
        self.groups: Final = groups
        self.transactions: Final = transactions

    def passage(self, authorizer: Authorizer) -> Passage:
        """Of one call."""
        return _Choosing(self, authorizer)


class _Choosing(Passage):
    def __init__(self, rule: Coordinators, authorizer: Authorizer) -> None:
        self._rule: Final = rule
        self._authorizer: Final = authorizer
        self._chosen = Passage()

    async def enter(self, request: Any) -> Any | None:
        if request.group_ids and request.transactional_ids:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST, "ask for groups or for transactional ids, each in its own call"
            )
        rule = self._rule.transactions if request.transactional_ids else self._rule.groups
        self._chosen = rule.passage(self._authorizer)
        return await self._chosen.enter(request)

    async def leave(self, response: Any) -> Any:
        return await self._chosen.leave(response)
