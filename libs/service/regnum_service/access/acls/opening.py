"""The access control that the settings of a process ask for."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from regnum_coordination.port import Store
from regnum_model.acls.index import AclIndex
from regnum_telemetry.metrics import Metrics

from regnum_service.access.acls.authorizer import AclAuthorizer
from regnum_service.access.acls.following import AclFollower
from regnum_service.access.audit import AuditLog
from regnum_service.access.authorization import Authorizer, Denials, EverybodyMay
from regnum_service.access.listener import ListenerAccess
from regnum_service.cancellation import end_task
from regnum_service.clock import Clock
from regnum_service.settings import ServiceSettings
from regnum_service.supervisor import Spawn


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControl:
    """Of one process: one authorizer for all its listeners."""

    authorizer: Authorizer
    """Says what callers may do."""
    follower: AclFollower | None
    """Keeps its rules; a task has to follow the store. None: there are none."""
    denials: Denials
    """Where refusals are counted and written down."""

    @classmethod
    def of(cls, settings: ServiceSettings, *, clock: Clock, metrics: Metrics, audit: AuditLog | None = None) -> Self:
        """Empty: until rules are read only super users pass."""
        denials = Denials(audit, metrics)
        if settings.authorizer == "none":
            return cls(authorizer=EverybodyMay(denials), follower=None, denials=denials)
        internal = settings.internal_super_user_names
        index = AclIndex(
            super_users=settings.super_user_names - internal,
            everyone_if_no_acl=settings.allow_everyone_if_no_acl_found,
        )
        authorizer = AclAuthorizer(index, denials=denials, metrics=metrics, internal_super_users=internal)
        return cls(authorizer=authorizer, follower=AclFollower(authorizer, clock), denials=denials)

    def at(self, listener: ListenerAccess) -> ListenerAccess:
        """A listener that asks this authorizer."""
        return replace(listener, authorizer=self.authorizer, denials=self.denials)

    async def run(self, wait_store: Callable[[], Awaitable[Store]]) -> None:
        """Follow one session after another; a task of the supervisor. Returns at once where there are no rules."""
        if self.follower is not None:
            await self.follower.run(wait_store)

    def start_following(self, store: Store, spawn: Spawn) -> Callable[[], object]:
        """Follow one session in a task; returns what ends that."""
        if self.follower is None:
            return lambda: None
        return partial(end_task, spawn("access rules", self.follower.follow(store)))

    def surrendered(self) -> None:
        """This process gave up what it had: see ``AclFollower.surrendered``."""
        if self.follower is not None:
            self.follower.surrendered()
