"""What an access rule says: who may, or may not, do what from where, with the resources of one pattern.

- ``User:alice`` from ``*`` ALLOW READ topics that begin with ``billing.`` (PREFIXED)
- ``User:*`` from ``10.0.0.7`` DENY WRITE topic ``ledger`` (LITERAL)
"""

import enum
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from regnum_model.access import CLUSTER_NAME, Operation, ResourceType
from regnum_model.principals import NAME_LENGTH_MAX, USER

ANY_NAME: Final = "*"
"""Name of a LITERAL pattern that every resource of its type fits."""

ANY_HOST: Final = "*"
"""Host of a rule that counts wherever the caller is."""

EVERYBODY: Final = f"{USER}:*"
"""Principal of a rule that counts for every user."""

RESOURCE_NAME_MAX: Final = 255
"""Characters of a resource's name in a rule: names of topics have 249, of groups 255."""


class PatternType(enum.IntEnum):
    """How a pattern names resources, with Kafka's numbers.

    >>> AclResourcePattern(type=AclResourceType.TOPIC, name="billing.", pattern=AclPatternType.PREFIXED).name
    'billing.'
    """

    LITERAL = 3
    """The one of that name; of the name ``*``, all."""
    PREFIXED = 4
    """Those whose names begin so."""


class Permission(enum.IntEnum):
    """What a rule says, with Kafka's numbers.

    >>> AclPermission.DENY < AclPermission.ALLOW
    True
    """

    DENY = 2
    ALLOW = 3


class InvalidAclError(ValueError):
    """A rule that makes no sense; the text says what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePattern:
    """Which resources.

    >>> orders = AclResourcePattern(type=AclResourceType.TOPIC, name="orders")
    >>> orders.fits(AclResourceType.TOPIC, "orders")
    True
    """

    type: ResourceType
    """Of what kind."""
    name: str
    """Name, or its beginning."""
    pattern: PatternType = PatternType.LITERAL
    """How it is meant."""

    def fits(self, type: ResourceType, name: str) -> bool:
        """Whether a resource of that name is one of them."""
        if type is not self.type:
            return False
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in {name, ANY_NAME}

    def __str__(self) -> str:
        return f"{self.type.name} {self.pattern.name} {self.name!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One rule of a pattern.

    >>> entry = AclEntry(
    ...     principal="User:guest", host="*", operation=AclOperation.READ, permission=AclPermission.ALLOW
    ... )
    """

    principal: str
    """``User:name``, or ``User:*`` for everybody."""
    host: str
    """IP address of the caller, or ``*``. No host names and no networks."""
    operation: Operation
    """What it is about; ALL: every operation."""
    permission: Permission
    """What it says of that."""

    def __str__(self) -> str:
        return f"{self.permission.name} {self.operation.name} to {self.principal} from {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclBinding:
    """A whole rule.

    >>> binding = AclBinding(
    ...     pattern=AclResourcePattern(type=AclResourceType.TOPIC, name="orders"),
    ...     entry=AclEntry(
    ...         principal="User:guest", host="*", operation=AclOperation.READ, permission=AclPermission.ALLOW
    ...     ),
    ... )
    >>> admin.create_acl(binding)
    """

    pattern: ResourcePattern
    entry: Entry

    def __str__(self) -> str:
        return f"{self.entry} on {self.pattern}"


IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = MappingProxyType(
    {
        Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
        Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
    }
)
"""Who is allowed one of these is allowed the key. Nobody who is denied one of them is denied the key."""

OPERATIONS_OF: Final[Mapping[ResourceType, frozenset[Operation]]] = MappingProxyType(
    {
        ResourceType.TOPIC: frozenset(
            {
                Operation.READ,
                Operation.WRITE,
                Operation.CREATE,
                Operation.DELETE,
                Operation.ALTER,
                Operation.DESCRIBE,
                Operation.DESCRIBE_CONFIGS,
                Operation.ALTER_CONFIGS,
            }
        ),
        ResourceType.GROUP: frozenset({Operation.READ, Operation.DELETE, Operation.DESCRIBE}),
        ResourceType.CLUSTER: frozenset(
            {
                Operation.CREATE,
                Operation.ALTER,
                Operation.DESCRIBE,
                Operation.CLUSTER_ACTION,
                Operation.DESCRIBE_CONFIGS,
                Operation.ALTER_CONFIGS,
                Operation.IDEMPOTENT_WRITE,
            }
        ),
        ResourceType.TRANSACTIONAL_ID: frozenset({Operation.WRITE, Operation.DESCRIBE}),
        ResourceType.DELEGATION_TOKEN: frozenset({Operation.DESCRIBE}),
        ResourceType.USER: frozenset({Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS}),
    }
)
"""What can be done with each kind of resource; ALL besides. A rule about anything else would never count."""


def check_binding(binding: AclBinding) -> None:
    """Raise InvalidAclError unless the rule can ever count."""
    pattern, entry = binding.pattern, binding.entry
    check_resource_name(pattern.name)
    if pattern.type is ResourceType.CLUSTER and (
        pattern.name != CLUSTER_NAME or pattern.pattern is not PatternType.LITERAL
    ):
        raise InvalidAclError(f"the one resource of type CLUSTER is {CLUSTER_NAME!r}, LITERAL; not {pattern}")
    check_principal(entry.principal)
    check_host(entry.host)
    known = OPERATIONS_OF[pattern.type]
    if entry.operation is not Operation.ALL and entry.operation not in known:
        names = ", ".join(one.name for one in sorted(known))
        raise InvalidAclError(
            f"{entry.operation.name} is nothing that is done with a {pattern.type.name}; choose ALL, {names}"
        )


def check_resource_name(name: str) -> None:
    """Raise InvalidAclError unless a rule may name a resource so."""
    if not name or len(name) > RESOURCE_NAME_MAX or not name.isprintable():
        raise InvalidAclError(
            f"a resource's name has 1 to {RESOURCE_NAME_MAX} printable characters, not {name[:80]!r}; * means all"
        )


def check_principal(principal: str) -> None:
    """Raise InvalidAclError unless it is ``User:name`` or ``User:*``."""
    type, colon, name = principal.partition(":")
    if type != USER or not colon or not name or len(principal) > NAME_LENGTH_MAX or not name.isprintable():
        raise InvalidAclError(f"{principal[:80]!r} is no principal of a rule; write User:name, or User:* for everybody")


def check_host(host: str) -> None:
    """Raise InvalidAclError unless it is an IP address as callers are known by it, or ``*``."""
    if host == ANY_HOST:
        return
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise InvalidAclError(
            f"{host[:80]!r} is no host of a rule; write one IP address, or * for any: names and networks do not count"
        ) from None
    canonical = canonical_host(host)
    if canonical != host:
        raise InvalidAclError(f"write the host as {canonical}: callers are compared letter by letter, not as {host!r}")


def canonical_host(text: str) -> str:
    """An IP address as rules have it; what is none stays as it is."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
