"""An authorizer for tests: writes down what it was asked, and says what the test says."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from google.protobuf import descriptor_pool
from regnum_model.access import CLUSTER_NAME, Operation, ResourceType
from regnum_model.acls.reach import Reach
from regnum_service.access.authorization import Right
from regnum_service.access.guards.guard import Guard
from regnum_service.access.identity import Caller


@dataclass(frozen=True, slots=True)
class Asked:
    """One question."""

    operation: Operation
    type: ResourceType
    name: str
    audit: bool = True

    def __str__(self) -> str:
        return f"{self.operation.name} {self.type.name} {self.name}"


class RecordedRights:
    """Authorizer that remembers."""

    def __init__(self, held: Callable[[Asked], bool] = lambda _: False) -> None:
        """``held``: whether a right is there; may answer another way later (``generation`` says that it does)."""
        self.held = held
        self.generation = 0
        self.asked: list[Asked] = []
        self.callers: list[Caller] = []
        self.denied: list[str] = []

    def allows(
        self, who: Caller, operation: Operation, type: ResourceType, name: str = CLUSTER_NAME, *, audit: bool = True
    ) -> bool:
        """What the test says."""
        asked = Asked(operation, type, name, audit)
        self.asked.append(asked)
        self.callers.append(who)
        return self.held(asked)

    def allows_any(self, who: Caller, operation: Operation, type: ResourceType, *, audit: bool = True) -> bool:
        """What the test says of the name ``?``."""
        return self.allows(who, operation, type, "?", audit=audit)

    def allows_all(self, who: Caller, operation: Operation, type: ResourceType) -> bool:
        """What the test says of the name ``*``."""
        return self.allows(who, operation, type, "*", audit=False)

    def reach(self, _who: Caller, _operation: Operation, _type: ResourceType) -> Reach | None:
        """Nobody can say."""
        return None

    def deny(self, who: Caller, right: Right, name: str = CLUSTER_NAME, *, rule: str) -> None:
        """Kept in ``denied``."""
        self.denied.append(f"{who.subject} {right} {name}: {rule}")

    @property
    def denied_loudly(self) -> list[str]:
        """Questions that are denials when the answer is no."""
        return [str(asked) for asked in self.asked if asked.audit]


def only(*rights: str) -> Callable[[Asked], bool]:
    """Rights as ``READ TOPIC orders``; a name ``*`` is no pattern here."""
    return lambda asked: str(asked) in rights


def guarded(rights: RecordedRights, service: str, **handlers: Any) -> Any:
    """The guard of a service, as its full name says it, before these handlers."""
    methods = [one.name for one in descriptor_pool.Default().FindServiceByName(service).methods]
    return Guard(rights).before(service, SimpleNamespace(**{name: handlers.get(name) for name in methods}))
