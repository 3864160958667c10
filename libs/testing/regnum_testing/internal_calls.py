"""ControllerService as an election process serves it, for tests that bring their own role."""

from collections.abc import Awaitable, Callable
from typing import Any

from regnum_election.history.log import EventLog
from regnum_election.servicers.admin import AdminServicer
from regnum_election.servicers.controller import ControllerServicer
from regnum_election.servicers.envelope import EnvelopeOpener
from regnum_model.ids import BrokerId
from regnum_service.access.audit import AuditLog
from regnum_service.access.authorization import Authorizer, EverybodyMay
from regnum_service.clock import SystemClock


async def nobody_reached() -> BrokerId | None:
    """No broker is reached."""
    return None


def internal_servicer(
    role: Any,
    *,
    reached_broker: Callable[[], Awaitable[BrokerId | None]] = nobody_reached,
    admin: AdminServicer | None = None,
    authorizer: Authorizer | None = None,
    audit: AuditLog | None = None,
) -> ControllerServicer:
    """The servicer; what comes in envelopes goes to ``admin``, by default one of its own."""
    says = authorizer or EverybodyMay()
    return ControllerServicer(
        role,
        EventLog(SystemClock()),
        reached_broker=reached_broker,
        envelopes=EnvelopeOpener(role, admin or AdminServicer(role), says),
        authorizer=says,
        audit=audit,
    )
