"""`regnum acls`: who may do what (add, remove, list, check)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from regnum_client.commands.habits.grammar import Group
from regnum_client.commands.invocation import (
    TIMEOUT_S,
    BootstrapOption,
    DebugOption,
    Output,
    OutputOption,
    TimeoutOption,
    note,
    run,
    wrong_use,
)
from regnum_client.commands.rendering import emit_one, emit_rows

if TYPE_CHECKING:
    from regnum_client.admin.acls.values import AclBinding, AclCheck, AclFilter, Acls

COLUMNS: Final = ("permission", "operation", "principal", "host", "resource_type", "pattern", "name")

NOT_ALLOWED: Final = 7
"""Exit status of a check that ends with a denial."""

TopicOption = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="About this topic; * means all.")]
GroupOption = Annotated[str | None, typer.Option("--group", metavar="NAME", help="About this consumer group.")]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="About the cluster itself.")]
TransactionalIdOption = Annotated[
    str | None, typer.Option("--transactional-id", metavar="ID", help="About this transactional id.")
]
TokenOption = Annotated[str | None, typer.Option("--token", metavar="ID", help="About this delegation token.")]
UserOption = Annotated[
    str | None, typer.Option("--user", metavar="PRINCIPAL", help="About this user (tokens made for them).")
]
PrefixedOption = Annotated[
    bool, typer.Option("--prefixed", help="About everything whose name begins with the name that was given.")
]
HostOption = Annotated[
    str | None, typer.Option("--host", metavar="IP", help="Only for calls from this address; * means any.")
]
OperationsOption = Annotated[
    list[str] | None,
    typer.Option("--operation", metavar="OP", help="READ, WRITE, DESCRIBE, ALL, ...; may stand more than once."),
]
AllowOption = Annotated[
    list[str] | None, typer.Option("--allow", metavar="PRINCIPAL", help="Principal to allow: User:name, or User:*.")
]
DenyOption = Annotated[
    list[str] | None, typer.Option("--deny", metavar="PRINCIPAL", help="Principal to deny, whatever else allows it.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Check only; change nothing.")]

group = typer.Typer(cls=Group, help="Access rules: add, remove, list, check.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line; the singular works too."""
    app.add_typer(group, name="acls")
    app.add_typer(group, name="acl", hidden=True)


@group.command("add")
def add(
    *,
    allow: AllowOption = None,
    deny: DenyOption = None,
    operation: OperationsOption = None,
    topic: TopicOption = None,
    of_group: GroupOption = None,
    cluster: ClusterOption = False,
    transactional_id: TransactionalIdOption = None,
    token: TokenOption = None,
    user: UserOption = None,
    prefixed: PrefixedOption = False,
    host: HostOption = None,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Add rules: each principal, operation and resource that is named makes one. In force at once, at every process."""
    resource = _one_resource(topic, of_group, transactional_id, token, user, cluster=cluster)
    if not (allow or deny) or not operation:
        raise wrong_use("a rule allows or denies a principal an operation; give --allow or --deny, and --operation")
    bindings = _bindings(allow or [], deny or [], operation, resource, prefixed=prefixed, host=host or "*")

    async def work() -> None:
        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            for error in (await admin.create_acls(bindings, validate_only=dry_run)).values():
                if error is not None:
                    raise error

    run(work())
    emit_rows(list(map(_row, bindings)), output, columns=COLUMNS)
    count = f"{len(bindings)} rule{'s'[: len(bindings) != 1]} in force"
    note("nothing was changed; run it again without --dry-run" if dry_run else count)


@group.command("remove")
def remove(
    *,
    allow: AllowOption = None,
    deny: DenyOption = None,
    operation: OperationsOption = None,
    topic: TopicOption = None,
    of_group: GroupOption = None,
    cluster: ClusterOption = False,
    transactional_id: TransactionalIdOption = None,
    token: TokenOption = None,
    user: UserOption = None,
    prefixed: PrefixedOption = False,
    host: HostOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove what fits. Default: only show which.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Remove rules: all that fit what is named. Without --yes it shows them, and removes none."""
    resources = _resources(topic, of_group, transactional_id, token, user, cluster=cluster)
    filters = _filters(allow or [], deny or [], operation or [], resources, prefixed=prefixed, host=host)
    if not (allow or deny or operation or resources or host):
        raise wrong_use("which rules? Name a resource, a principal, an operation or a host")

    async def look() -> "list[AclBinding]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            found = [binding for wanted in filters for binding in (await admin.describe_acls(wanted)).bindings]
            return list(dict.fromkeys(found))

    async def work() -> None:
        from regnum_client.admin.acls.values import exactly  # noqa: PLC0415
        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            for binding in found:
                # What was shown, and nothing that came since.
                for error in (await admin.delete_acls(exactly(binding))).values():
                    if error is not None:
                        raise error

    found = run(look())
    emit_rows(list(map(_row, found)), output, columns=COLUMNS, empty="no rule fits")
    if not found or not yes:
        note("nothing was changed" + ("; run it again with --yes to remove these rules" if found else ""))
        return
    run(work())
    note(f"{len(found)} rules are gone")


@group.command("list")
def list_(
    *,
    allow: AllowOption = None,
    deny: DenyOption = None,
    operation: OperationsOption = None,
    topic: TopicOption = None,
    of_group: GroupOption = None,
    cluster: ClusterOption = False,
    transactional_id: TransactionalIdOption = None,
    token: TokenOption = None,
    user: UserOption = None,
    prefixed: PrefixedOption = False,
    match: Annotated[
        bool, typer.Option("--match", help="Every rule that is about the named resource, also by * or a prefix.")
    ] = False,
    host: HostOption = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show rules: all, or those that fit what is named."""
    if match and prefixed:
        raise wrong_use("--match names a resource and --prefixed a pattern; give one of them")
    resources = _resources(topic, of_group, transactional_id, token, user, cluster=cluster)
    filters = _filters(allow or [], deny or [], operation or [], resources, prefixed=prefixed, host=host, match=match)

    async def work() -> "list[Acls]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            return [await admin.describe_acls(wanted) for wanted in filters]

    found = run(work())
    bindings = list(dict.fromkeys(binding for acls in found for binding in acls.bindings))
    emit_rows(list(map(_row, bindings)), output, columns=COLUMNS, empty="no rule fits")
    for path, reason in {path: reason for acls in found for path, reason in acls.unreadable.items()}.items():
        note(f"{path} cannot be read, and all that it is about is denied: {reason}")


@group.command("check")
def check(
    *,
    principal: Annotated[str, typer.Argument(metavar="PRINCIPAL", help="Who: User:name, known or not.")],
    operation: Annotated[str, typer.Argument(metavar="OP", help="Would do what: READ, WRITE, DESCRIBE, ...")],
    topic: TopicOption = None,
    of_group: GroupOption = None,
    cluster: ClusterOption = False,
    transactional_id: TransactionalIdOption = None,
    token: TokenOption = None,
    user: UserOption = None,
    host: Annotated[str, typer.Option("--host", metavar="IP", help="Calling from this address.")] = "",
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Say whether a principal may do something, and which rule decides. Exit status 7: it may not."""
    type, name = _one_resource(topic, of_group, transactional_id, token, user, cluster=cluster)
    wanted = _operation(operation)

    async def work() -> "AclCheck":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            return await admin.check_acl(principal, wanted, type, name, host=host)

    found = run(work())
    emit_one(
        {
            "allowed": found.allowed,
            "reason": found.reason,
            "rule": None if found.rule is None else str(found.rule),
            "enforced": found.enforced,
        },
        output,
    )
    if not found.enforced:
        note("this cluster enforces no rules (authorizer none): every client may do everything")
    if not found.allowed:
        raise typer.Exit(NOT_ALLOWED)


def _resources(
    topic: str | None,
    of_group: str | None,
    transactional_id: str | None,
    token: str | None,
    user: str | None,
    *,
    cluster: bool,
) -> list[tuple[Any, str]]:
    from regnum_model.access import CLUSTER_NAME, ResourceType  # noqa: PLC0415

    named = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: of_group,
        ResourceType.CLUSTER: CLUSTER_NAME if cluster else None,
        ResourceType.TRANSACTIONAL_ID: transactional_id,
        ResourceType.DELEGATION_TOKEN: token,
        ResourceType.USER: user,
    }
    return [(type, name) for type, name in named.items() if name is not None]


def _one_resource(
    topic: str | None,
    of_group: str | None,
    transactional_id: str | None,
    token: str | None,
    user: str | None,
    *,
    cluster: bool,
) -> tuple[Any, str]:
    named = _resources(topic, of_group, transactional_id, token, user, cluster=cluster)
    if len(named) != 1:
        raise wrong_use("about what? Give one of --topic, --group, --cluster, --transactional-id, --token and --user")
    return named[0]


def _operation(text: str) -> Any:
    from regnum_model.access import Operation  # noqa: PLC0415

    try:
        return Operation[text.upper().replace("-", "_")]
    except KeyError:
        raise wrong_use(f"{text} is no operation; there are {', '.join(one.name for one in Operation)}") from None


def _bindings(
    allow: Sequence[str],
    deny: Sequence[str],
    operations: Sequence[str],
    resource: tuple[Any, str],
    *,
    prefixed: bool,
    host: str,
) -> "list[AclBinding]":
    from regnum_model.acls.bindings import (  # noqa: PLC0415
        AclBinding,
        Entry,
        InvalidAclError,
        PatternType,
        Permission,
        ResourcePattern,
        check_binding,
    )

    type, name = resource
    pattern = ResourcePattern(type=type, name=name, pattern=PatternType.PREFIXED if prefixed else PatternType.LITERAL)
    bindings = [
        AclBinding(
            pattern=pattern,
            entry=Entry(principal=principal, host=host, operation=_operation(operation), permission=permission),
        )
        for permission, principals in ((Permission.ALLOW, allow), (Permission.DENY, deny))
        for principal in principals
        for operation in operations
    ]
    for binding in bindings:
        try:
            check_binding(binding)
        except InvalidAclError as error:
            raise wrong_use(str(error)) from None
    return bindings


def _filters(
    allow: Sequence[str],
    deny: Sequence[str],
    operations: Sequence[str],
    resources: Sequence[tuple[Any, str]],
    *,
    prefixed: bool,
    host: str | None,
    match: bool = False,
) -> "list[AclFilter]":
    from regnum_model.acls.bindings import Permission  # noqa: PLC0415
    from regnum_model.acls.filters import AclFilter, PatternFilter  # noqa: PLC0415

    if match:
        pattern = PatternFilter.MATCH
    else:
        pattern = PatternFilter.PREFIXED if prefixed else PatternFilter.ANY
        if resources and not prefixed:
            pattern = PatternFilter.LITERAL
    whom: list[tuple[Any, str | None]] = [
        *((Permission.ALLOW, principal) for principal in allow),
        *((Permission.DENY, principal) for principal in deny),
    ]
    named: list[tuple[Any, str | None]] = [*resources] or [(None, None)]
    wanted: list[str | None] = [*operations] or [None]
    return [
        AclFilter(
            type=type,
            name=name,
            pattern=pattern,
            principal=principal,
            host=host,
            operation=None if operation is None else _operation(operation),
            permission=permission,
        )
        for type, name in named
        for permission, principal in whom or [(None, None)]
        for operation in wanted
    ]


def _row(binding: "AclBinding") -> dict[str, Any]:
    pattern, entry = binding.pattern, binding.entry
    return {
        "permission": entry.permission.name,
        "operation": entry.operation.name,
        "principal": entry.principal,
        "host": entry.host,
        "resource_type": pattern.type.name,
        "pattern": pattern.pattern.name,
        "name": pattern.name,
    }
