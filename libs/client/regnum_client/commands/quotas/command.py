"""`regnum quotas`: set, describe, remove; `top` and `calibrate` stand next door."""

import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from regnum_client.commands.habits.grammar import Group
from regnum_client.commands.invocation import (
    REACH,
    TIMEOUT_S,
    UNSAID,
    BootstrapOption,
    DebugOption,
    Output,
    OutputOption,
    Reach,
    TimeoutOption,
    note,
    run,
    wrong_use,
)
from regnum_client.commands.quotas.calibrate import calibrate
from regnum_client.commands.quotas.top import top
from regnum_client.commands.rendering import emit_rows

if TYPE_CHECKING:
    from regnum_model.quotas import QuotaEntity

    from regnum_client.admin.quotas import ClientQuota

RATE: Final = "controller_mutation_rate"
BURST: Final = "controller_mutation_burst"
PRODUCED: Final = "producer_byte_rate"
CONSUMED: Final = "consumer_byte_rate"
PERCENTAGE: Final = "request_percentage"
KEYS: Final = (RATE, BURST, PRODUCED, CONSUMED, PERCENTAGE)
WHOSE: Final = (
    "whose quota? Give --user NAME or --default-user, --client-id ID or --default-client-id, one of each for a pair, "
    "or --cluster"
)

UserOption = Annotated[str | None, typer.Option("--user", metavar="NAME", help="The quota of this user.")]
DefaultUserOption = Annotated[
    bool, typer.Option("--default-user", help="The quota of every user without one of its own.")
]
ClientIdOption = Annotated[
    str | None, typer.Option("--client-id", metavar="ID", help="The quota of this client id, or of the user with it.")
]
DefaultClientIdOption = Annotated[
    bool, typer.Option("--default-client-id", help="The quota of every client id without one of its own.")
]
ClusterOption = Annotated[
    bool, typer.Option("--cluster", help="The quota of all together; it counts besides those of each.")
]

group = typer.Typer(
    cls=Group,
    help="Quotas: topic mutations, bytes in and out, request time of brokers.",
    no_args_is_help=True,
)


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line; the singular works too."""
    group.command("top")(top)
    group.command("calibrate")(calibrate)
    app.add_typer(group, name="quotas")
    app.add_typer(group, name="quota", hidden=True)


@group.command("set")
def set_quota(
    *,
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientIdOption = None,
    default_client_id: DefaultClientIdOption = False,
    cluster: ClusterOption = False,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="PARTITIONS_PER_S", help="Partitions that may be created or deleted a second."),
    ] = None,
    burst: Annotated[
        float | None,
        typer.Option(
            "--burst",
            metavar="PARTITIONS",
            help="So many at once after an idle time. Default: 11 s of the rate, unless the cluster says so otherwise.",
        ),
    ] = None,
    producer_byte_rate: Annotated[
        float | None,
        typer.Option(metavar="BYTES_PER_S", help="Bytes that may be produced a second, through each broker."),
    ] = None,
    consumer_byte_rate: Annotated[
        float | None,
        typer.Option(metavar="BYTES_PER_S", help="Bytes that may be fetched a second, from each broker."),
    ] = None,
    request_percentage: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", help="Time of each broker's threads that calls may take; 100: one thread."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only; set nothing.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Set a quota; what is not named stays. In force at once."""
    given = (rate, burst, producer_byte_rate, consumer_byte_rate, request_percentage)
    limits = {key: value for key, value in zip(KEYS, given, strict=True) if value is not None}
    if not limits:
        raise wrong_use(
            "nothing to set; give --rate PARTITIONS_PER_S, --burst PARTITIONS, --producer-byte-rate or"
            " --consumer-byte-rate BYTES_PER_S, or --request-percentage PERCENT"
        )
    named = _named(user, client_id, default_user=default_user, default_client_id=default_client_id, cluster=cluster)
    if not named:
        raise wrong_use(WHOSE)

    async def work() -> "tuple[tuple[ClientQuota, ...], tuple[ClientQuota, ...]]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415
        from regnum_client.admin.quotas import ClientQuota, QuotaAlteration  # noqa: PLC0415

        entity = _entity(user, client_id, default_user=default_user, default_client_id=default_client_id)
        alteration = QuotaAlteration(entity=entity, set=limits)
        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            before = await admin.describe_client_quotas(entity)
            answers = await admin.alter_client_quotas([alteration], validate_only=dry_run)
            error = answers[entity]
            if error is not None:
                raise error
            if dry_run:
                return before, (ClientQuota(entity=entity, values=limits),)
            return before, await admin.describe_client_quotas(entity)

    before, quotas = run(work())
    was = limits_of(before)
    changed = [key for key, limit in limits.items() if was.get(key) != limit]
    undo = "" if dry_run else undoing(quotas[0].entity, was, changed, REACH.get())
    rows = [{**_row(quota), "was": {key: was.get(key) for key in limits}, "undo": undo or None} for quota in quotas]
    emit_rows(rows, output, columns=_columns(rows))
    if output is Output.TABLE:
        _note_changes(was, limits, undo)
    if dry_run:
        note("nothing was changed; run it again without --dry-run")
    elif any(BURST in quota.values and RATE not in quota.values for quota in quotas):
        note("a burst without a rate limits nothing; set --rate too")


@group.command("describe")
def describe(
    *,
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientIdOption = None,
    default_client_id: DefaultClientIdOption = False,
    cluster: ClusterOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show the quotas that are set: all, or those of exactly the one that is named."""
    named = _named(user, client_id, default_user=default_user, default_client_id=default_client_id, cluster=cluster)

    async def work() -> "tuple[ClientQuota, ...]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        entity = _entity(user, client_id, default_user=default_user, default_client_id=default_client_id)
        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            return await admin.describe_client_quotas(entity if named else None)

    rows = [_row(quota) for quota in run(work())]
    emit_rows(
        rows,
        output,
        columns=_columns(rows),
        empty="no such quota; set one with `regnum quotas set --client-id ID --rate 5`",
    )


@group.command("remove")
def remove(
    *,
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientIdOption = None,
    default_client_id: DefaultClientIdOption = False,
    cluster: ClusterOption = False,
    rate: Annotated[bool, typer.Option("--rate", help="Only the rate: nothing is limited then.")] = False,
    burst: Annotated[bool, typer.Option("--burst", help="Only the burst: it follows from the rate then.")] = False,
    producer_byte_rate: Annotated[bool, typer.Option(help="Only the rate of bytes produced.")] = False,
    consumer_byte_rate: Annotated[bool, typer.Option(help="Only the rate of bytes fetched.")] = False,
    request_percentage: Annotated[bool, typer.Option(help="Only the share of the brokers' time.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only; remove nothing.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Remove a quota: all of it, or what is named."""
    named = _named(user, client_id, default_user=default_user, default_client_id=default_client_id, cluster=cluster)
    if not named:
        raise wrong_use(WHOSE)
    named_keys = (rate, burst, producer_byte_rate, consumer_byte_rate, request_percentage)
    chosen_keys = [key for key, chosen in zip(KEYS, named_keys, strict=True) if chosen]

    async def work() -> "tuple[QuotaEntity, dict[str, float]]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415
        from regnum_client.admin.quotas import QuotaAlteration  # noqa: PLC0415

        entity = _entity(user, client_id, default_user=default_user, default_client_id=default_client_id)
        keys = chosen_keys or [key for key in KEYS if key in entity.keys]
        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            was = limits_of(await admin.describe_client_quotas(entity))
            # Whatever was described: what cannot be read is not, and can be removed.
            alteration = QuotaAlteration(entity=entity, remove=keys)
            error = (await admin.alter_client_quotas([alteration], validate_only=dry_run))[entity]
            if error is not None:
                raise error
        return entity, {key: was[key] for key in keys if key in was}

    entity, was = run(work())
    named_as = "to_remove" if dry_run else "removed"
    undo = "" if dry_run else undoing(entity, was, was, REACH.get())
    row = {**_whose(entity), named_as: list(was), "was": was, "undo": undo or None}
    emit_rows([row], output, columns=("entity", named_as, "was"))
    if not was:
        note("no such quota was in force; see `regnum quotas describe` for those that are")
    elif undo and output is Output.TABLE:
        note(f"undo: {undo}")
    if dry_run:
        note("nothing was changed; run it again without --dry-run")


def _note_changes(was: Mapping[str, float], limits: Mapping[str, float], undo: str) -> None:
    for key, limit in limits.items():
        note(f"{key}: {_told(was.get(key))} -> {_told(limit)}")
    if undo:
        note(f"undo: {undo}")


def undoing(entity: "QuotaEntity", was: Mapping[str, float], changed: Iterable[str], reach: Reach = UNSAID) -> str:
    """The command, or two, that take a change of some limits back; empty: nothing was changed. Pure."""
    whose = [*_options(entity), *reach.after]
    lost = [key for key in changed if key not in was]
    sets = [word for key in changed if key in was for word in (_option(key), _told(was[key]))]
    commands = [["regnum", *reach.before, "quotas", "set", *whose, *sets]] if sets else []
    if lost:
        commands.append(["regnum", *reach.before, "quotas", "remove", *whose, *map(_option, lost)])
    return " && ".join(map(shlex.join, commands))


def limits_of(quotas: "Iterable[ClientQuota]") -> dict[str, float]:
    """The limits of one entity, as they were described. Pure."""
    return {key: value for quota in quotas for key, value in quota.values.items()}


def _options(entity: "QuotaEntity") -> list[str]:
    from regnum_model.quotas import DEFAULT  # noqa: PLC0415

    options = []
    for name, of in (("user", entity.user), ("client-id", entity.client_id)):
        if of is DEFAULT:
            options.append(f"--default-{name}")
        elif isinstance(of, str):
            options.append(f"--{name}={of}")
    return options or ["--cluster"]


def _option(key: str) -> str:
    return {RATE: "--rate", BURST: "--burst"}.get(key, f"--{key.replace('_', '-')}")


def _told(limit: float | None) -> str:
    """A limit as the options take it."""
    return "none" if limit is None else f"{limit:.15g}"


def _named(
    user: str | None, client_id: str | None, *, default_user: bool, default_client_id: bool, cluster: bool
) -> bool:
    """Whether the options name an entity; raises on those that exclude one another."""
    if user is not None and default_user:
        raise wrong_use("--user names one user, --default-user all others; give one of them")
    if client_id is not None and default_client_id:
        raise wrong_use("--client-id names one client id, --default-client-id all others; give one of them")
    one = user is not None or client_id is not None or default_user or default_client_id
    if cluster and one:
        raise wrong_use("--cluster is the quota of all together; leave out the options for users and client ids")
    return one or cluster


def _entity(user: str | None, client_id: str | None, *, default_user: bool, default_client_id: bool) -> "QuotaEntity":
    from regnum_model.quotas import DEFAULT, QuotaEntity  # noqa: PLC0415

    return QuotaEntity(user=DEFAULT if default_user else user, client_id=DEFAULT if default_client_id else client_id)


def _columns(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """Of limits that nobody has, only those of changes are shown to people."""
    return ("entity", *(key for key in KEYS if key in (RATE, BURST) or any(row[key] is not None for row in rows)))


def _row(quota: "ClientQuota") -> dict[str, Any]:
    limits = {key: quota.values.get(key) for key in KEYS}
    return {**_whose(quota.entity), **limits, **quota.values}


def _whose(entity: "QuotaEntity") -> dict[str, Any]:
    from regnum_model.quotas import DEFAULT  # noqa: PLC0415

    return {
        "entity": str(entity),
        "user": entity.user if isinstance(entity.user, str) else None,
        "default_user": entity.user is DEFAULT,
        "client_id": entity.client_id if isinstance(entity.client_id, str) else None,
        "default_client_id": entity.client_id is DEFAULT,
    }
