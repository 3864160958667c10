"""May a caller do that: the port that servicers ask, and the answer where there is no access control."""

from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from regnum.types.v1 import errors_pb2
from regnum_model.access import CLUSTER_NAME, Operation, ResourceType
from regnum_model.acls.reach import Reach
from regnum_telemetry import tracing
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics

from regnum_service.access.audit import AuditLog, NoAudit
from regnum_service.access.identity import Caller, ProcessRole, caller
from regnum_service.errors import Code, RegnumError, reason_of

FAILED: Final[Mapping[ResourceType, Code]] = MappingProxyType(
    {
        ResourceType.TOPIC: errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED,
        ResourceType.GROUP: errors_pb2.ERROR_CODE_GROUP_AUTHORIZATION_FAILED,
        ResourceType.CLUSTER: errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED,
        ResourceType.TRANSACTIONAL_ID: errors_pb2.ERROR_CODE_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ResourceType.DELEGATION_TOKEN: errors_pb2.ERROR_CODE_DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ResourceType.USER: errors_pb2.ERROR_CODE_DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
"""The error that says no, by what was asked for."""


class Authorizer(Protocol):
    """Decides, from rights that it holds in memory. Belongs to one event loop."""

    def allows(
        self, who: Caller, operation: Operation, type: ResourceType, name: str = CLUSTER_NAME, *, audit: bool = True
    ) -> bool:
        """Whether the caller may do that; ``audit`` False: a no is no denial (names left out of a list)."""

    def allows_any(self, who: Caller, operation: Operation, type: ResourceType, *, audit: bool = True) -> bool:
        """Whether there may be a resource of that kind with which the caller may do that (KIP-679)."""

    def allows_all(self, who: Caller, operation: Operation, type: ResourceType) -> bool:
        """Whether the caller may do that with every such resource that there is or will be. A no is no denial."""

    def reach(self, who: Caller, operation: Operation, type: ResourceType) -> Reach | None:
        """Names outside of which the caller may do that with no such resource; within them, ask. None: unknown."""

    def deny(self, who: Caller, right: "Right", name: str = CLUSTER_NAME, *, rule: str) -> None:
        """Count and write down a refusal that something else than the access rules decided; ``rule`` says what."""

    @property
    def generation(self) -> int:
        """Another number whenever answers may be other ones than before."""


class Denials:
    """Where refusals are counted and written down. Any thread."""

    def __init__(self, audit: AuditLog | None = None, metrics: Metrics | None = None) -> None:
        """``audit``: the log; None: there is none. ``metrics``: None: nobody asks."""
        self._audit: Final = audit or NoAudit()
        self._metrics: Final = metrics or Metrics()
        # Shown as 0 where there are none: whoever watches it need not know which processes have rules.
        self._count: Final = self._metrics.counter(instruments.ACL_DENIALS)

    def note(self, who: Caller, operation: Operation, type: ResourceType, name: str, *, rule: str) -> None:
        """The call that this runs for is refused something; see ``AuditLog.denied``."""
        self._count.add()
        tracing.refuse()
        self._audit.denied(who, operation, type, name, rule=rule, call=call_name())

    def unauthenticated(self, who: Caller, error: RegnumError, *, call: str) -> None:
        """What a call showed is not believed; ``who``: whatever is known of its caller."""
        self._metrics.counter(instruments.AUTHENTICATION_FAILURES, who.listener, reason_of(error.code)).add()
        tracing.refuse()
        self._audit.unauthenticated(who, error, call=call)


class EverybodyMay:
    """No access control: everybody may do everything. What is refused for another reason is written down."""

    def __init__(self, denials: Denials | None = None) -> None:
        """``denials``: None: refusals are written down nowhere."""
        self._denials: Final = denials

    def deny(self, who: Caller, right: "Right", name: str = CLUSTER_NAME, *, rule: str) -> None:
        """Something else than access rules said no."""
        if self._denials is not None:
            self._denials.note(who, right.operation, right.type, name, rule=rule)

    @property
    def generation(self) -> int:
        """Always the same."""
        return 0

    def allows(self, *_what: object, **_how: object) -> bool:
        """Yes."""
        return True

    def allows_any(self, *_what: object, **_how: object) -> bool:
        """Yes."""
        return True

    def allows_all(self, *_what: object, **_how: object) -> bool:
        """Yes."""
        return True

    def reach(self, *_what: object, **_how: object) -> Reach | None:
        """Everywhere."""
        return None


_call: Final[ContextVar[str]] = ContextVar("call", default="")


def call_name() -> str:
    """The method that this runs for, ``AdminService/CreateTopics``; empty: not known."""
    return _call.get()


def set_call_name(name: str) -> None:
    """For the task of the call, from now on: whoever is refused something in it is refused by that name."""
    _call.set(name)


EVERYBODY: Final = EverybodyMay()
"""The answer where nothing is said of rights."""


@dataclass(frozen=True, slots=True)
class Right:
    """To do something with things of one kind."""

    operation: Operation
    type: ResourceType

    def __str__(self) -> str:
        return f"{self.operation.name} on {self.type.name}"

    def held(self, authorizer: Authorizer, name: str = CLUSTER_NAME, *, audit: bool = True) -> bool:
        """Whether who calls has it for the thing of that name."""
        return authorizer.allows(caller(), self.operation, self.type, name, audit=audit)

    def shows(self, authorizer: Authorizer) -> Callable[[str], bool] | None:
        """What of a list is shown to who calls now, by name; None: everything. A no is no denial.

        Whoever makes pages asks before a page is cut: its token names the last entry.
        """
        if authorizer.allows_all(caller(), self.operation, self.type):
            return None
        return lambda name: self.held(authorizer, name, audit=False)

    def refusal(self, name: str = CLUSTER_NAME) -> RegnumError:
        """What somebody hears who has not: the same whether there is such a thing or not."""
        what = f"{self.type.name.lower()} {name[:300]}" if self.type is not ResourceType.CLUSTER else "the cluster"
        return RegnumError(
            FAILED[self.type], f"{caller().principal} may not {self.operation.name} {what}; have the right granted"
        )

    def require(self, authorizer: Authorizer, name: str = CLUSTER_NAME) -> None:
        """Raise RegnumError unless who calls has it."""
        if not self.held(authorizer, name):
            raise self.refusal(name)


def require_role(roles: Collection[ProcessRole], right: Right, authorizer: Authorizer) -> None:
    """Raise RegnumError unless a process of one of these roles calls, or roles are not told apart here.

    ``right``: what the call needs besides, for the audit log.
    """
    who = caller()
    if who.role is ProcessRole.UNMAPPED or who.role in roles:
        return
    wanted = " and ".join(sorted(role.value for role in roles))
    found = f"the certificate of {who.subject!r} stands for {who.role.value} by process-role-mapping-rules"
    authorizer.deny(who, right, rule=f"denied: only {wanted} processes may; {found}")
    raise RegnumError(
        errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED,
        f"only {wanted} processes may call {call_name()}, and {found}",
    )
