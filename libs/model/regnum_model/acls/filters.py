"""Which rules somebody means: to list them, and to take them away."""

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from regnum_model.access import Operation, ResourceType
from regnum_model.acls.bindings import ANY_NAME, AclBinding, PatternType, Permission, ResourcePattern


class PatternFilter(enum.IntEnum):
    """How a filter compares patterns, with Kafka's numbers.

    >>> about_orders = AclFilter(type=AclResourceType.TOPIC, name="orders", pattern=AclPatternFilter.MATCH)
    """

    ANY = 1
    """Of whatever type, named exactly so."""
    MATCH = 2
    """Every pattern that a resource of that name fits: LITERAL, ``*`` and PREFIXED."""
    LITERAL = 3
    """LITERAL, named exactly so."""
    PREFIXED = 4
    """PREFIXED, named exactly so."""


_EXACT: Final = {PatternFilter.LITERAL: PatternType.LITERAL, PatternFilter.PREFIXED: PatternType.PREFIXED}


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Rules that fit everything that is said; None says nothing.

    >>> of_guests = AclFilter(principal="User:guest")
    >>> removed = admin.delete_acls(of_guests)
    >>> admin.describe_acls(of_guests).bindings
    ()
    """

    type: ResourceType | None = None
    """Kind of resource."""
    name: str | None = None
    """Name in the pattern; with MATCH, of a resource."""
    pattern: PatternFilter = PatternFilter.ANY
    """How the name is compared."""
    principal: str | None = None
    """Exactly this one: ``User:*`` means the rules for everybody, not all rules."""
    host: str | None = None
    """Exactly this one."""
    operation: Operation | None = None
    """Exactly this one: ALL means the rules about ALL."""
    permission: Permission | None = None
    """What they say."""

    def takes_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether rules of that pattern are meant."""
        if self.type is not None and pattern.type is not self.type:
            return False
        if self.pattern is PatternFilter.MATCH:
            # Without a name every resource is meant, and each pattern has one that fits.
            return self.name is None or pattern.fits(pattern.type, self.name) or self._is_any(pattern)
        wanted = _EXACT.get(self.pattern)
        return (wanted is None or pattern.pattern is wanted) and self.name in {None, pattern.name}

    def _is_any(self, pattern: ResourcePattern) -> bool:
        return self.name == ANY_NAME and pattern.pattern is PatternType.LITERAL and pattern.name == ANY_NAME

    def takes(self, binding: AclBinding) -> bool:
        """Whether that rule is meant."""
        entry = binding.entry
        return (
            self.takes_pattern(binding.pattern)
            and self.principal in {None, entry.principal}
            and self.host in {None, entry.host}
            and self.operation in {None, entry.operation}
            and self.permission in {None, entry.permission}
        )

    def among(self, bindings: Iterable[AclBinding]) -> Iterator[AclBinding]:
        """Those of the rules that are meant."""
        return filter(self.takes, bindings)
