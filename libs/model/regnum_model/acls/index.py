"""May they do that: all rules of the cluster, put so that a decision takes a handful of look-ups.

Goals: the answer of Kafka's StandardAuthorizer, and which rule gave it; 100,000 rules cost a decision as much as ten; a
change of one pattern costs what that pattern holds; a pattern that nobody can read grants nothing.

Order of a decision: super users may everything; a pattern that fits and cannot be read denies; any DENY that fits
denies; any ALLOW that fits allows, also one for an operation that implies the one asked for; else the default, which is
to deny, or, with ``everyone_if_no_acl``, to allow where no rule at all is about the resource.

Algorithm: rules lie by (type, name) of their pattern, LITERAL and PREFIXED apart, and in there by (principal, host):
two sets of operations as bits, denied and allowed. For a resource those that fit are the LITERAL of its name, the
LITERAL ``*``, and one PREFIXED for each length that any prefix of that type has; in each the caller is looked up four
times: with and without name, with and without host. So a decision takes 4 * (2 + lengths of prefixes) look-ups at most,
and lengths are at most those of the name asked for: dozens where people choose prefixes by hand, 255 where somebody is
malicious. What callers ask for again and again is kept by the authorizer.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from regnum_model.access import Operation, ResourceType
from regnum_model.acls.bindings import (
    ANY_HOST,
    ANY_NAME,
    EVERYBODY,
    IMPLIED_BY,
    AclBinding,
    Entry,
    PatternType,
    Permission,
    ResourcePattern,
)
from regnum_model.acls.reach import Reach

REACH_MAX: Final = 5_000
"""Patterns of one caller that are put in order in one turn: a few milliseconds (safety rule S22)."""


class Why(enum.Enum):
    """What a decision rests on."""

    SUPER_USER = "super user"
    UNREADABLE = "rules that cannot be read"
    RULE = "rule"
    NO_ACL = "no rule about the resource, and allow-everyone-if-no-acl-found"
    DEFAULT = "no rule allows it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An answer, and its reason."""

    allowed: bool
    """Whether they may."""
    why: Why
    """What decided."""
    binding: AclBinding | None = None
    """The rule that did, where one did."""
    pattern: ResourcePattern | None = None
    """The pattern whose rules cannot be read, where that decided."""

    def __str__(self) -> str:
        verdict = "allowed" if self.allowed else "denied"
        match self.why:
            case Why.RULE:
                return f"{verdict} by the rule: {self.binding}"
            case Why.UNREADABLE:
                return f"{verdict}: the rules of {self.pattern} cannot be read; see the log, and correct their node"
            case _:
                return f"{verdict}: {self.why.value}"


_SUPER: Final = Decision(allowed=True, why=Why.SUPER_USER)
_NO_ACL: Final = Decision(allowed=True, why=Why.NO_ACL)
_DEFAULT: Final = Decision(allowed=False, why=Why.DEFAULT)

_DENYING: Final[Mapping[Operation, int]] = {one: 1 << one | 1 << Operation.ALL for one in Operation}
"""Bits of the operations of which a DENY counts against each."""
_ALLOWING: Final[Mapping[Operation, int]] = {
    one: _DENYING[one] | sum(1 << implying for implying in IMPLIED_BY.get(one, ())) for one in Operation
}
"""The same of those of which an ALLOW counts for it."""


_NOTHING: Final = (0, 0)
"""Bits of whom no rule is about."""

_Callers: TypeAlias = tuple[tuple[str, str], ...]
"""A principal and its address, with and without each."""


@dataclass(slots=True)
class _Rules:
    """The rules of one pattern; None in place of the entries: nobody can read them."""

    pattern: ResourcePattern
    by_caller: dict[tuple[str, str], tuple[int, int]] | None = field(default_factory=dict)
    """Bits of what is denied and of what is allowed, by principal and host."""
    count: int = 0

    def binding(self, caller: tuple[str, str], bits: int, permission: Permission) -> AclBinding:
        operation = next(one for one in Operation if bits >> one & 1)
        entry = Entry(principal=caller[0], host=caller[1], operation=operation, permission=permission)
        return AclBinding(pattern=self.pattern, entry=entry)


class AclIndex:
    """All rules. Changed by one task; ``decide`` may be asked by any thread: it sees each pattern before or after."""

    def __init__(self, *, super_users: Iterable[str] = (), everyone_if_no_acl: bool = False) -> None:
        """Empty.

        Args:
            super_users: principals (``User:name``) who may do everything, whatever rules say.
            everyone_if_no_acl: a resource that no rule is about may be used by everybody.
        """
        self._super_users: Final = frozenset(super_users)
        self._everyone_if_no_acl: Final = everyone_if_no_acl
        self._literal: Final[dict[tuple[ResourceType, str], _Rules]] = {}
        self._prefixed: Final[dict[tuple[ResourceType, str], _Rules]] = {}
        self._lengths: Final[dict[ResourceType, Counter[int]]] = {one: Counter() for one in ResourceType}
        self._sorted: dict[ResourceType, tuple[int, ...]] = dict.fromkeys(ResourceType, ())
        self._of_caller: Final[dict[tuple[ResourceType, str, str], dict[ResourcePattern, _Rules]]] = {}
        """Patterns with a rule for that principal and host."""
        self._count = 0
        self._unreadable: Final[set[ResourcePattern]] = set()

    @property
    def count(self) -> int:
        """Rules that are there."""
        return self._count

    @property
    def unreadable(self) -> frozenset[ResourcePattern]:
        """Patterns whose rules nobody can read: they deny."""
        return frozenset(self._unreadable)

    def empty(self) -> "AclIndex":
        """One without rules, with the same super users and the same default."""
        return AclIndex(super_users=self._super_users, everyone_if_no_acl=self._everyone_if_no_acl)

    def is_super(self, principal: str) -> bool:
        """Whether they may do everything."""
        return principal in self._super_users

    def put(self, pattern: ResourcePattern, entries: Iterable[Entry] | None) -> None:
        """These are the rules of a pattern from now on; none: it has none. None: they cannot be read, and deny."""
        rules = _Rules(pattern)
        if entries is None:
            rules.by_caller = None
        else:
            by_caller: dict[tuple[str, str], tuple[int, int]] = {}
            for entry in frozenset(entries):
                caller = (entry.principal, entry.host)
                denied, allowed = by_caller.get(caller, (0, 0))
                if entry.permission is Permission.DENY:
                    denied |= 1 << entry.operation
                else:
                    allowed |= 1 << entry.operation
                by_caller[caller] = (denied, allowed)
                rules.count += 1
            rules.by_caller = by_caller
        self._place(pattern, None if entries is not None and not rules.count else rules)

    def _place(self, pattern: ResourcePattern, rules: _Rules | None) -> None:
        prefixed = pattern.pattern is PatternType.PREFIXED
        at, key = self._prefixed if prefixed else self._literal, (pattern.type, pattern.name)
        before = at.get(key)
        self._count += (rules.count if rules else 0) - (before.count if before else 0)
        if before is not None:
            for caller in before.by_caller or ():
                self._forget_caller((pattern.type, *caller), pattern)
        if rules is not None:
            for caller in rules.by_caller or ():
                self._of_caller.setdefault((pattern.type, *caller), {})[pattern] = rules
        self._unreadable.discard(pattern)
        if rules is not None and rules.by_caller is None:
            self._unreadable.add(pattern)
        if rules is not None:
            at[key] = rules
        else:
            at.pop(key, None)
        if prefixed and (before is None) != (rules is None):
            lengths = self._lengths[pattern.type]
            lengths[len(pattern.name)] += 1 if before is None else -1
            self._sorted[pattern.type] = tuple(sorted(length for length, count in lengths.items() if count > 0))

    def _forget_caller(self, key: tuple[ResourceType, str, str], pattern: ResourcePattern) -> None:
        patterns = self._of_caller[key]
        del patterns[pattern]
        if not patterns:
            del self._of_caller[key]

    def decide(self, principal: str, host: str, operation: Operation, type: ResourceType, name: str) -> Decision:
        """Whether the principal, calling from that address, may do that with the resource of that name."""
        if principal in self._super_users:
            return _SUPER
        callers = _callers(principal, host)
        denying, allowing = _DENYING[operation], _ALLOWING[operation]
        granted: Decision | None = None
        found = False
        denied: Decision | None = None
        for rules in self._fitting(type, name):
            by_caller = rules.by_caller
            if by_caller is None:
                return Decision(allowed=False, why=Why.UNREADABLE, pattern=rules.pattern)
            found = True
            if denied is not None:
                continue
            for caller in callers:
                said = by_caller.get(caller)
                if said is None:
                    continue
                if bits := said[0] & denying:
                    denied = Decision(allowed=False, why=Why.RULE, binding=rules.binding(caller, bits, Permission.DENY))
                    break
                if granted is None and (bits := said[1] & allowing):
                    granted = Decision(
                        allowed=True, why=Why.RULE, binding=rules.binding(caller, bits, Permission.ALLOW)
                    )
        return denied or granted or (_NO_ACL if self._everyone_if_no_acl and not found else _DEFAULT)

    def any_allowed(self, principal: str, host: str, operation: Operation, type: ResourceType) -> bool:
        """Whether there may be a resource of that type with which they may do that (KIP-679).

        As Kafka's authorizeByResourceType: a rule that allows counts unless rules that deny cover all that it is about.
        Goes through the patterns with rules for this caller or for everybody.
        """
        if principal in self._super_users:
            return True
        callers = _callers(principal, host)
        if _denies(self._literal.get((type, ANY_NAME)), callers, operation):
            return False
        if self._everyone_if_no_acl:
            return True
        allowing = _ALLOWING[operation]
        for caller in callers:
            for rules in tuple(self._of_caller.get((type, *caller), {}).values()):
                said = (rules.by_caller or {}).get(caller)
                if said and said[1] & allowing and not self._is_covered(rules.pattern, callers, operation):
                    return True
        return False

    def all_allowed(self, principal: str, host: str, operation: Operation, type: ResourceType) -> bool:
        """Whether they may do that with every resource of the type that there is or will be.

        True where a rule about all of them allows it, no rule of any pattern denies it, and all can be read.
        """
        if principal in self._super_users:
            return True
        callers = _callers(principal, host)
        # Most who may not use everything have no such rule, and no other rule of theirs is looked at.
        everything = self._literal.get((type, ANY_NAME))
        if everything is None or everything.by_caller is None:
            return False
        allowing, denying = _ALLOWING[operation], _DENYING[operation]
        if not any(everything.by_caller.get(caller, _NOTHING)[1] & allowing for caller in callers):
            return False
        if any(pattern.type is type for pattern in tuple(self._unreadable)):
            return False
        return not any(
            (rules.by_caller or {}).get(caller, _NOTHING)[0] & denying
            for caller in callers
            for rules in tuple(self._of_caller.get((type, *caller), {}).values())
        )

    def reach(self, principal: str, host: str, operation: Operation, type: ResourceType) -> Reach | None:
        """Names outside of which they may not do that with any resource of the type.

        None: that cannot be said, or not in few words: a super user, a rule about every name, a default that allows, or
        more than ``REACH_MAX`` patterns with rules for this caller and for everybody.
        """
        if principal in self._super_users or self._everyone_if_no_acl:
            return None
        allowing = _ALLOWING[operation]
        mine = [(caller, self._of_caller.get((type, *caller), {})) for caller in _callers(principal, host)]
        if sum(len(patterns) for _, patterns in mine) > REACH_MAX:
            return None
        names: list[str] = []
        prefixes: list[str] = []
        for caller, patterns in mine:
            for pattern, rules in tuple(patterns.items()):
                if not (rules.by_caller or {}).get(caller, _NOTHING)[1] & allowing:
                    continue
                if pattern.pattern is PatternType.PREFIXED:
                    prefixes.append(pattern.name)
                elif pattern.name == ANY_NAME:
                    return None
                else:
                    names.append(pattern.name)
        return Reach.of(names, prefixes)

    def _is_covered(self, pattern: ResourcePattern, callers: _Callers, operation: Operation) -> bool:
        """Whether rules deny all that a pattern is about."""
        type, name = pattern.type, pattern.name
        if pattern.pattern is PatternType.LITERAL:
            if _denies(self._literal.get((type, name)), callers, operation):
                return True
            if name == ANY_NAME:
                # Everything but some: there may be others.
                return False
        return any(
            _denies(self._prefixed.get((type, name[:length])), callers, operation)
            for length in self._sorted[type]
            if length <= len(name)
        )

    def _fitting(self, type: ResourceType, name: str) -> Iterator[_Rules]:
        literal = self._literal
        if (rules := literal.get((type, name))) is not None:
            yield rules
        if name != ANY_NAME and (rules := literal.get((type, ANY_NAME))) is not None:
            yield rules
        length_max = len(name)
        for length in self._sorted[type]:
            if length > length_max:
                return
            if (rules := self._prefixed.get((type, name[:length]))) is not None:
                yield rules


def _callers(principal: str, host: str) -> _Callers:
    return ((principal, host), (principal, ANY_HOST), (EVERYBODY, host), (EVERYBODY, ANY_HOST))


def _denies(rules: _Rules | None, callers: _Callers, operation: Operation) -> bool:
    """Whether the rules of a pattern deny it, or cannot be read."""
    if rules is None:
        return False
    by_caller, denying = rules.by_caller, _DENYING[operation]
    return by_caller is None or any(by_caller.get(caller, _NOTHING)[0] & denying for caller in callers)
