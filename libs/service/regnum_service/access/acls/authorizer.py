"""Decides by the rules that this process has read, and keeps its decisions until any rule changes.

Cost: a decision that was made before is one look-up; another takes those of the index. Decisions that are kept are
bounded: whoever asks for ever new names makes the process decide anew, and takes no memory.

Not read yet, or given up (``forget``): only super users pass, so that the cluster can come up; everybody else is told
to try again, for nobody knows yet what they may.
"""

from collections.abc import Collection, Iterable
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.access import CLUSTER_NAME, Operation, ResourceType
from regnum_model.acls.bindings import Entry, ResourcePattern
from regnum_model.acls.index import AclIndex, Decision
from regnum_model.acls.reach import Reach
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics

from regnum_service.access.authorization import Denials, Right
from regnum_service.access.identity import CLIENT, Caller
from regnum_service.errors import RegnumError

KEPT_MAX: Final = 50_000
"""Decisions that are kept; when there are more, they are made anew."""

REACHES_MAX: Final = 200
"""Callers whose reach is kept: 5,000 names of each at most, which the rules hold as well."""

KEPT_NAME_MAX: Final = 512
"""Characters of the longest name whose decision is kept: nothing that there is has a longer one, and a client may ask
for names of megabytes."""

_Question = tuple[str, str, Operation, ResourceType, str]


class AclAuthorizer:
    """Authorizer by rules. Its task changes them; any thread may ask.

    A question never sees a decision that is older than the rules at the time when it began: those that are kept are
    thrown away after a rule has changed and before anybody is told that it has.
    """

    def __init__(
        self,
        index: AclIndex,
        *,
        denials: Denials | None = None,
        metrics: Metrics | None = None,
        kept_max: int = KEPT_MAX,
        internal_super_users: Collection[str] = (),
    ) -> None:
        """Only assigns.

        Args:
            index: empty at first; nobody else changes it.
            denials: where they are counted and written down; None: nowhere.
            metrics: what is shown of the rules.
            kept_max: decisions that are kept.
            internal_super_users: principals (``User:name``) who may do everything at the listeners between processes,
                and nothing by that name elsewhere. The index names none of them.
        """
        self._internal_super_users: Final = frozenset(internal_super_users)
        self._kept_max: Final = kept_max
        self._index: Final = index
        counted = metrics or Metrics()
        self._denials: Final = denials or Denials()
        self._kept: dict[_Question, Decision] = {}
        self._kept_any: dict[_Question, bool] = {}
        self._kept_reach: dict[_Question, Reach | None] = {}
        self._loaded = False
        self._generation = 1
        counted.observe(instruments.ACLS_READ, lambda: float(self._loaded))
        counted.observe(instruments.ACL_RULES, lambda: index.count)
        counted.observe(instruments.ACL_PATTERNS_UNREADABLE, lambda: len(index.unreadable))

    @property
    def generation(self) -> int:
        """Another one with every change of the rules."""
        return self._generation

    @property
    def loaded(self) -> bool:
        """Whether the rules were read."""
        return self._loaded

    @property
    def index(self) -> AclIndex:
        """The rules as they are; for questions, not for changes."""
        return self._index

    def empty_index(self) -> AclIndex:
        """One without rules, with the same super users and the same default."""
        return self._index.empty()

    def put(self, pattern: ResourcePattern, entries: Iterable[Entry] | None) -> None:
        """The rules of a pattern are these now; None: they cannot be read, and deny. Call ``changed`` afterwards."""
        self._index.put(pattern, entries)

    def changed(self) -> None:
        """Decisions that were made before count no more."""
        # New dictionaries, and not empty ones: who is about to keep a decision keeps it where nobody looks any more.
        self._kept, self._kept_any, self._kept_reach = {}, {}, {}
        self._generation += 1

    def read(self) -> None:
        """All rules were read: from now on they decide."""
        self._loaded = True
        self.changed()

    def forget(self) -> None:
        """What was read may be outdated, and nobody can tell: until it is read again only super users pass."""
        self._loaded = False
        self.changed()

    def allows(
        self, who: Caller, operation: Operation, type: ResourceType, name: str = CLUSTER_NAME, *, audit: bool = True
    ) -> bool:
        """Whether they may. Raises RegnumError for who is no super user while no rules are read."""
        if self._is_process(who):
            return True
        principal = who.principal
        question = (principal.name, who.host, operation, type, name)
        kept = self._kept
        decision = kept.get(question)
        if decision is None:
            decision = self._decide(str(principal), question)
            if len(name) > KEPT_NAME_MAX:
                kept = {}
            if len(kept) >= self._kept_max:
                kept.clear()
            kept[question] = decision
        if not decision.allowed and audit:
            self._deny(who, operation, type, name, str(decision))
        return decision.allowed

    def allows_any(self, who: Caller, operation: Operation, type: ResourceType, *, audit: bool = True) -> bool:
        """Whether there may be such a resource with which they may. Raises as ``allows``."""
        if self._is_process(who):
            return True
        question = (who.principal.name, who.host, operation, type, "any")
        kept = self._kept_any
        allowed = kept.get(question)
        if allowed is None:
            principal = str(who.principal)
            self._check_read(principal)
            allowed = kept[question] = self._index.any_allowed(principal, who.host, operation, type)
            self._bound(kept)
        if not allowed and audit:
            self._deny(who, operation, type, "*", "no rule allows it for any")
        return allowed

    def allows_all(self, who: Caller, operation: Operation, type: ResourceType) -> bool:
        """Whether they may with every such resource. Raises as ``allows``."""
        if self._is_process(who):
            return True
        question = (who.principal.name, who.host, operation, type, "all")
        kept = self._kept_any
        allowed = kept.get(question)
        if allowed is None:
            principal = str(who.principal)
            self._check_read(principal)
            allowed = kept[question] = self._index.all_allowed(principal, who.host, operation, type)
            self._bound(kept)
        return allowed

    def reach(self, who: Caller, operation: Operation, type: ResourceType) -> Reach | None:
        """Names outside of which they may with no such resource; None: nobody can say. Raises as ``allows``."""
        if self._is_process(who):
            return None
        question = (who.principal.name, who.host, operation, type, "reach")
        kept = self._kept_reach
        if question not in kept:
            principal = str(who.principal)
            self._check_read(principal)
            found = self._index.reach(principal, who.host, operation, type)
            if len(kept) >= REACHES_MAX:
                kept.clear()
            kept[question] = found
            return found
        return kept[question]

    def _decide(self, principal: str, question: _Question) -> Decision:
        self._check_read(principal)
        _, host, operation, type, name = question
        return self._index.decide(principal, host, operation, type, name)

    def _check_read(self, principal: str) -> None:
        if not self._loaded and not self._index.is_super(principal):
            raise RegnumError(
                errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
                "this process has not read the access rules from the coordination store (again) yet; until then only"
                " super users pass: try again",
            )

    def _bound(self, kept: dict[_Question, bool]) -> None:
        if len(kept) > self._kept_max:
            kept.clear()

    def _is_process(self, who: Caller) -> bool:
        """Whether that is one of the cluster's own processes, which may do everything where only these connect."""
        return who.listener != CLIENT and str(who.principal) in self._internal_super_users

    def _deny(self, who: Caller, operation: Operation, type: ResourceType, name: str, rule: str) -> None:
        if str(who.principal) in self._internal_super_users:
            rule += "; internal-super-users count at the listeners between processes alone"
        self._denials.note(who, operation, type, name, rule=rule)

    def deny(self, who: Caller, right: Right, name: str = CLUSTER_NAME, *, rule: str) -> None:
        """Something else than the rules said no."""
        self._denials.note(who, right.operation, right.type, name, rule=rule)
