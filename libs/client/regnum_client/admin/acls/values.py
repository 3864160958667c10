"""Access rules as callers have them, and as the wire does."""

from dataclasses import dataclass
from typing import Final, TypeAlias

from regnum.admin.v1 import acls_pb2
from regnum_model.access import CLUSTER_NAME, Operation, ResourceType
from regnum_model.acls.bindings import AclBinding, Entry, PatternType, Permission, ResourcePattern
from regnum_model.acls.filters import AclFilter, PatternFilter

__all__ = [
    "CLUSTER_NAME",
    "AclBinding",
    "AclCheck",
    "AclEntry",
    "AclFilter",
    "AclOperation",
    "AclPatternFilter",
    "AclPatternType",
    "AclPermission",
    "AclResourcePattern",
    "AclResourceType",
    "Acls",
    "Entry",
    "Operation",
    "PatternFilter",
    "PatternType",
    "Permission",
    "ResourcePattern",
    "ResourceType",
]

# As the SDK calls them: there, they stand beside names of other things.
AclEntry: TypeAlias = Entry
AclOperation: TypeAlias = Operation
AclPatternFilter: TypeAlias = PatternFilter
AclPatternType: TypeAlias = PatternType
AclPermission: TypeAlias = Permission
AclResourcePattern: TypeAlias = ResourcePattern
AclResourceType: TypeAlias = ResourceType

EXACTLY: Final = {PatternType.LITERAL: PatternFilter.LITERAL, PatternType.PREFIXED: PatternFilter.PREFIXED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Acls:
    """Rules, and patterns whose rules cannot be read.

    >>> def principals(acls: Acls) -> set[str]:
    ...     return {one.entry.principal for one in acls.bindings}
    >>> principals(Acls(bindings=(), unreadable={}))
    set()
    """

    bindings: tuple[AclBinding, ...]
    """By pattern."""
    unreadable: dict[str, str]
    """What is wrong with nodes in the store, by their paths: all that they are about is denied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclCheck:
    """Whether a principal may do something.

    >>> check = AclCheck(allowed=False, reason="no rule allows it", rule=None, enforced=True)
    >>> check.allowed or not check.enforced
    False
    """

    allowed: bool
    reason: str
    """What decides, for people."""
    rule: AclBinding | None
    """The rule that does; None: something else."""
    enforced: bool
    """Whether the cluster enforces rules at all."""


def binding_to_wire(binding: AclBinding) -> acls_pb2.AclBinding:
    """A rule."""
    pattern, entry = binding.pattern, binding.entry
    return acls_pb2.AclBinding(
        resource_type=acls_pb2.AclResourceType.ValueType(pattern.type),
        resource_name=pattern.name,
        pattern_type=acls_pb2.AclPatternType.ValueType(pattern.pattern),
        principal=entry.principal,
        host=entry.host,
        operation=acls_pb2.AclOperation.ValueType(entry.operation),
        permission=acls_pb2.AclPermission.ValueType(entry.permission),
    )


def binding_from_wire(message: acls_pb2.AclBinding) -> AclBinding | None:
    """A rule; None: one of a later release, of which this one knows too little."""
    try:
        return AclBinding(
            pattern=ResourcePattern(
                type=ResourceType(message.resource_type),
                name=message.resource_name,
                pattern=PatternType(message.pattern_type),
            ),
            entry=Entry(
                principal=message.principal,
                host=message.host,
                operation=Operation(message.operation),
                permission=Permission(message.permission),
            ),
        )
    except ValueError:
        return None


def filter_to_wire(wanted: AclFilter) -> acls_pb2.AclFilter:
    """A filter."""
    return acls_pb2.AclFilter(
        resource_type=acls_pb2.AclResourceType.ValueType(wanted.type or 0),
        resource_name=wanted.name,
        pattern_type=acls_pb2.AclPatternType.ValueType(wanted.pattern),
        principal=wanted.principal,
        host=wanted.host,
        operation=acls_pb2.AclOperation.ValueType(wanted.operation or 0),
        permission=acls_pb2.AclPermission.ValueType(wanted.permission or 0),
    )


def exactly(binding: AclBinding) -> AclFilter:
    """The filter that chooses that rule and no other."""
    pattern, entry = binding.pattern, binding.entry
    return AclFilter(
        type=pattern.type,
        name=pattern.name,
        pattern=EXACTLY[pattern.pattern],
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission=entry.permission,
    )
