"""Kafka's rules of access as one reads them, without any index: what the engine is compared with."""

from collections.abc import Sequence

from regnum_model.access import Operation, ResourceType
from regnum_model.acls.bindings import AclBinding, PatternType, Permission

IMPLIES = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


def allowed(
    rules: Sequence[AclBinding],
    supers: frozenset[str],
    default: bool,  # noqa: FBT001 - as the tests have it
    who: tuple[str, str, Operation, ResourceType, str],
) -> bool:
    """Whether they may."""
    principal, host, operation, type, name = who
    if principal in supers:
        return True
    fitting = [rule for rule in rules if rule.pattern.type == type and about(rule, name)]
    mine = [r for r in fitting if r.entry.principal in (principal, "User:*") and r.entry.host in (host, "*")]
    if any(r.entry.permission is Permission.DENY and r.entry.operation in (operation, Operation.ALL) for r in mine):
        return False
    enough = (operation, Operation.ALL, *IMPLIES.get(operation, ()))
    if any(r.entry.permission is Permission.ALLOW and r.entry.operation in enough for r in mine):
        return True
    return default and not fitting


def about(rule: AclBinding, name: str) -> bool:
    """Whether a rule is about a resource of that name."""
    if rule.pattern.pattern is PatternType.PREFIXED:
        return name.startswith(rule.pattern.name)
    return rule.pattern.name in (name, "*")
