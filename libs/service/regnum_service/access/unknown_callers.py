"""Calls whose caller is not known are counted and audited: nothing else would show that somebody tries tokens."""

from dataclasses import dataclass
from typing import Final

from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics

from regnum_service.access.audit import AuditLog, NoAudit
from regnum_service.access.identity import Caller
from regnum_service.errors import RegnumError, reason_of


@dataclass(frozen=True, slots=True)
class UnknownCallers:
    """Takes down refusals of one process. Any thread."""

    audit: AuditLog
    """Where they are written down."""
    metrics: Metrics
    """Where they are counted."""

    def refused(self, where: Caller, error: RegnumError, *, call: str) -> None:
        """A call was refused with that error, before anything of it was read.

        Args:
            where: the listener and the host that it came from, and no principal.
            error: what its caller is told.
            call: its method, ``AdminService/CreateTopics``.
        """
        reason = reason_of(error.code)
        self.metrics.counter(instruments.AUTHENTICATION_FAILURES, where.listener, reason).add()
        self.audit.unauthenticated(where, result=reason, detail=error.message, call=call)


UNHEARD: Final = UnknownCallers(NoAudit(), Metrics())
"""Where nobody asks."""
