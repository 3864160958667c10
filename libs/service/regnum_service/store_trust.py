"""Whether the coordination store may be relied on for access rules: asked once, when a process starts.

A process that decides by the rules in the store decides by what anybody wrote there who reaches the store, unless the
store asks who that is. A store that asks nobody is warned of, in the log and by ``regnum status``, where other machines
reach it; with ``require_store_authentication`` nothing is started with it, wherever it is.
"""

from collections.abc import Awaitable, Collection
from typing import Final, Protocol
from urllib.parse import parse_qs, urlsplit

import structlog
from regnum_coordination.admission import Admission, Examination
from regnum_coordination.errors import ConnectionLoss, InvalidRequest
from regnum_coordination.opening import examine_store
from regnum_model.paths import PERSISTENT_FOLDERS

from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.settings import ServiceSettings

ANSWER_WITHIN_S: Final = 5.0
"""Seconds that a server has to let a stranger in or not."""

OPEN: Final = (
    "asks nobody who connects, so that whoever reaches it may change access rules and everything else: give it TLS with"
    ' certificates of clients, or users (docs/operations/access.md, "Access to the store")'
)
"""The end of a sentence that begins with the store."""


class _Examine(Protocol):
    def __call__(self, url: str, *, nodes: Collection[str], timeout_s: float) -> Awaitable[Examination]: ...


class StoreTrust:
    """One for each process."""

    def __init__(self, told: ServiceSettings, *, examine: _Examine = examine_store) -> None:
        """Only assigns.

        Args:
            told: what the process is told.
            examine: finds out whom a store lets in.
        """
        self._told: Final = told
        self._examine: Final = examine
        self._settled = not self._matters()
        self.warnings: tuple[str, ...] = ()
        """What is wrong with the store, each as the end of a sentence that begins with it."""

    def _matters(self) -> bool:
        told = self._told
        has_user = "user" in parse_qs(urlsplit(told.coordination).query)
        return told.authorizer == "acl" or told.require_store_authentication or has_user

    async def check(self) -> None:
        """Ask, unless that is done; a session must be up.

        Raises StartRefusedError for a store that asks nobody where one that does is required, ConnectionLoss where that
        could not be found out.
        """
        if self._settled:
            return
        told = self._told
        try:
            found = await self._examine(told.coordination, nodes=PERSISTENT_FOLDERS, timeout_s=ANSWER_WITHIN_S)
        except (ValueError, InvalidRequest) as error:
            raise StartRefusedError(f"--coordination: {error}", exit_status=ExitStatus.WRONG_USE) from error
        if found.admission is Admission.ADMITTED and told.require_store_authentication:
            raise StartRefusedError(
                f"require-store-authentication is set, and the coordination store {OPEN}",
                exit_status=ExitStatus.WRONG_USE,
            )
        if found.admission is Admission.UNANSWERED and told.require_store_authentication:
            raise ConnectionLoss("it could not be found out whether the store asks who connects, which is required")
        is_open = found.admission is Admission.ADMITTED and told.authorizer == "acl" and not found.loopback
        self.warnings = (*((OPEN,) if is_open else ()), *found.weaknesses)
        self._settled = found.admission is not Admission.UNANSWERED
        for warning in self.warnings:
            structlog.get_logger("store").warning("the coordination store is not to be relied on", because=warning)
