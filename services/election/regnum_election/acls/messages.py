"""Access rules in the words of the wire."""

from enum import IntEnum
from typing import TypeVar

from regnum.admin.v1 import acls_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.access import Operation, ResourceType
from regnum_model.acls.bindings import (
    ANY_HOST,
    AclBinding,
    Entry,
    PatternType,
    Permission,
    ResourcePattern,
    canonical_host,
)
from regnum_model.acls.filters import AclFilter, PatternFilter

from regnum_election.decisions.rejection import Rejection

E = TypeVar("E", bound=IntEnum)


def binding_of(message: acls_pb2.AclBinding) -> AclBinding | Rejection:
    """A rule, with what is left out as it is meant; whether it makes sense is asked elsewhere."""
    try:
        return AclBinding(
            pattern=ResourcePattern(
                type=ResourceType(message.resource_type),
                name=message.resource_name,
                pattern=PatternType(message.pattern_type or PatternType.LITERAL),
            ),
            entry=Entry(
                principal=message.principal,
                host=message.host or ANY_HOST,
                operation=Operation(message.operation),
                permission=Permission(message.permission),
            ),
        )
    except ValueError as error:
        return _wrong(
            f"{error}; a rule says a kind of resource, LITERAL or PREFIXED, an operation, and whether to allow or deny"
        )


def filter_of(message: acls_pb2.AclFilter) -> AclFilter | Rejection:
    """A filter."""
    try:
        return AclFilter(
            type=_known(ResourceType, message.resource_type),
            name=message.resource_name if message.HasField("resource_name") else None,
            pattern=PatternFilter(message.pattern_type or PatternFilter.ANY),
            principal=message.principal if message.HasField("principal") else None,
            host=canonical_host(message.host) if message.HasField("host") else None,
            operation=_known(Operation, message.operation),
            permission=_known(Permission, message.permission),
        )
    except ValueError as error:
        return _wrong(f"{error}; leave out of a filter what does not matter")


def binding_message(binding: AclBinding) -> acls_pb2.AclBinding:
    """A rule, complete."""
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


def _known(kind: type[E], number: int) -> E | None:
    return kind(number) if number else None


def _wrong(message: str) -> Rejection:
    return Rejection(code=errors_pb2.ERROR_CODE_INVALID_REQUEST, message=message)
