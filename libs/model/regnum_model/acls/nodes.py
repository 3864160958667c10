"""Access rules as the store holds them: one node for each pattern, with all its rules.

    /acl/literal/topic/orders       {"version":1,"rules":[{"principal":"User:alice","host":"*","operation":"READ",
                                                           "permission":"ALLOW"}]}
    /acl/literal/topic/%2A          topics of any name
    /acl/prefixed/topic/billing.    topics whose names begin so
    /acl/literal/cluster/kafka-cluster

Names are percent-encoded. A node may have the log of its mutations besides (``regnum_model.mutations``). People write
nodes by hand: what cannot be read as a whole grants nothing, and denies everything that its path is about.
"""

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

from regnum_model.access import Operation, ResourceType
from regnum_model.acls.bindings import (
    AclBinding,
    Entry,
    InvalidAclError,
    PatternType,
    Permission,
    ResourcePattern,
    check_binding,
    check_resource_name,
)
from regnum_model.nodes.reading import NODE_VERSION, MalformedNodeError, dumped, loaded, object_of, versioned

ACLS: Final = "/acl"

FOLDERS: Final = tuple(
    f"{ACLS}/{pattern.name.lower()}/{type.name.lower()}" for pattern in PatternType for type in ResourceType
)
"""Where patterns lie."""

RULES_MAX: Final = 2_000
"""Rules of one pattern: its node stays far below the megabyte that a store takes, and takes milliseconds to read."""


def folder_of(type: ResourceType, pattern: PatternType) -> str:
    """Where the patterns of that kind lie."""
    return f"{ACLS}/{pattern.name.lower()}/{type.name.lower()}"


def path_of(pattern: ResourcePattern) -> str:
    """The node of a pattern. Raises InvalidAclError for a name that no pattern has."""
    check_resource_name(pattern.name)
    # quote leaves a star alone where it is told to, and dots always: two names are folders of their own kind.
    encoded = quote(pattern.name, safe="")
    encoded = encoded.replace(".", "%2E") if encoded in {".", ".."} else encoded
    return f"{folder_of(pattern.type, pattern.pattern)}/{encoded}"


def pattern_at(path: str) -> ResourcePattern:
    """The pattern whose node that is. Raises MalformedNodeError where it is none that we write."""
    parts = path.split("/")
    if len(parts) != 5 or f"/{parts[1]}" != ACLS:
        raise MalformedNodeError(f"{path[:200]!r} is no node of access rules")
    try:
        name = unquote_to_bytes(parts[4]).decode("utf-8")
        pattern = ResourcePattern(type=ResourceType[parts[3].upper()], name=name, pattern=PatternType[parts[2].upper()])
        if path_of(pattern) != path:
            raise MalformedNodeError(f"{path[:200]!r} is not percent-encoded as we write it")
    except (KeyError, UnicodeDecodeError, InvalidAclError) as error:
        raise MalformedNodeError(f"{path[:200]!r} is no node of access rules: {error}") from None
    return pattern


def encode_rules(entries: Iterable[Entry]) -> bytes:
    """Content of a node."""
    rules = [
        {
            "principal": entry.principal,
            "host": entry.host,
            "operation": entry.operation.name,
            "permission": entry.permission.name,
        }
        for entry in sorted(entries, key=lambda one: (one.principal, one.host, one.operation, one.permission))
    ]
    return dumped({"version": 1, "rules": rules})


def decode_rules(pattern: ResourcePattern, data: bytes) -> frozenset[Entry]:
    """The rules of a pattern's node; none in one that stands for its log, or is empty. Raises MalformedNodeError."""
    if not data:
        return frozenset()
    try:
        content = object_of(loaded(data), "the node")
        versioned(content, "the node")
    except ValueError as error:
        raise MalformedNodeError(f"not access rules: {str(error)[:300]}") from None
    if content.get("version") != NODE_VERSION:
        # What somebody wrote by hand has to say that it is one: rules are not guessed at.
        raise MalformedNodeError(f"version is {str(content.get('version'))[:40]}, and 1 is the one that is known")
    rules = content.get("rules", [])
    if not isinstance(rules, list) or len(rules) > RULES_MAX:
        raise MalformedNodeError(f"rules is a list of at most {RULES_MAX}")
    return frozenset(_entry(pattern, rule) for rule in rules)


def _entry(pattern: ResourcePattern, rule: Any) -> Entry:
    try:
        entry = Entry(
            principal=_text(rule["principal"]),
            host=_text(rule["host"]),
            operation=Operation[rule["operation"]],
            permission=Permission[rule["permission"]],
        )
        check_binding(AclBinding(pattern=pattern, entry=entry))
    except (KeyError, TypeError, InvalidAclError) as error:
        raise MalformedNodeError(
            f"{str(rule)[:200]} is no rule ({error}); write for example "
            '{"principal":"User:alice","host":"*","operation":"READ","permission":"ALLOW"}'
        ) from None
    return entry


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
