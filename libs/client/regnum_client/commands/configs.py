"""`regnum configs` (describe, set, unset, alter) and `regnum topics config` (show, set, unset)."""

from collections.abc import Collection, Mapping, Sequence
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
    completed,
    config_values,
    note,
    run,
    wrong_use,
)
from regnum_client.commands.rendering import emit_rows

if TYPE_CHECKING:
    from regnum_client.admin.configs import ConfigEntry, ConfigResource

COLUMNS: Final = ("resource", "name", "value", "source")
BROKER_COLUMNS: Final = ("name", "value", "source", "read_only", "documentation")

TopicOption = Annotated[
    str | None,
    typer.Option("--topic", metavar="NAME", autocompletion=completed("topics"), help="The settings of this topic."),
]
BrokerOption = Annotated[
    int | None, typer.Option("--broker", metavar="ID", min=0, max=2**31 - 1, help="The settings of this broker.")
]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The settings of the cluster.")]

NameArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", autocompletion=completed("topics"), help="Name of the topic.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Check only; change nothing.")]

group = typer.Typer(cls=Group, help="Settings of the cluster, of brokers and of topics.", no_args_is_help=True)
of_topic = typer.Typer(cls=Group, help="Settings of one topic: show, set, unset.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line; the singular works too."""
    app.add_typer(group, name="configs")
    app.add_typer(group, name="config", hidden=True)


def add_to_topics(topics: typer.Typer) -> None:
    """Hang those of one topic into `regnum topics`."""
    topics.add_typer(of_topic, name="config")
    topics.add_typer(of_topic, name="configs", hidden=True)


@group.command("describe")
def describe(
    *,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    cluster: ClusterOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show what is in force: of the cluster and of topics with settings of their own, or of the one that is named.

    Of a broker, everything that it runs with, as it says itself; secrets are left out.
    """
    named = _named(topic, broker, cluster=cluster)

    async def work() -> "list[tuple[ConfigResource, tuple[ConfigEntry, ...]]]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            if broker is not None:
                # Raises BROKER_ID_NOT_REGISTERED where nobody knows it.
                await admin.describe_broker(broker)
            if named:
                return [(resource := _resource(topic, broker), await admin.describe_config(resource))]
            return _or_raise(await admin.describe_configs())

    emit_rows(_rows(run(work())), output, columns=BROKER_COLUMNS if broker is not None else COLUMNS)


@group.command("set")
def set_of_any(
    *,
    values: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="Settings and their new values.")],
    topic: TopicOption = None,
    broker: BrokerOption = None,
    cluster: ClusterOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Set settings of a topic, a broker or the cluster. In force at once, without a restart."""
    resource = _one_resource(topic, broker, cluster=cluster)
    wanted = config_values(values, option="")
    _alter(resource, wanted, [], dry_run=dry_run, output=output, bootstrap=bootstrap, timeout=timeout)


@group.command("unset")
def unset_of_any(
    *,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Settings that go back to their default.")],
    topic: TopicOption = None,
    broker: BrokerOption = None,
    cluster: ClusterOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Unset settings: of a topic or a broker to the cluster's, of the cluster to the defaults."""
    resource = _one_resource(topic, broker, cluster=cluster)
    _check_once(names)
    _alter(resource, {}, names, dry_run=dry_run, output=output, bootstrap=bootstrap, timeout=timeout)


@group.command("alter")
def alter(
    *,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    cluster: ClusterOption = False,
    set_values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Give a setting a value; may stand more than once."),
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", metavar="NAME", help="Take a setting back to its default; may stand more than once."),
    ] = None,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Change settings, some set and some taken back; what is not named stays. In force at once."""
    resource = _one_resource(topic, broker, cluster=cluster)
    if not set_values and not delete:
        raise wrong_use("nothing to change; give --set NAME=VALUE, --delete NAME, or both")
    values = config_values(set_values or [], option="--set")
    if both := sorted(values.keys() & set(delete or [])):
        raise wrong_use(f"--set and --delete both name {', '.join(both)}; give one of them")

    _alter(resource, values, delete or [], dry_run=dry_run, output=output, bootstrap=bootstrap, timeout=timeout)


@of_topic.command("show")
def show(
    *,
    topic: NameArgument,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show every setting that is in force for a topic, where it comes from, and what it may be."""

    async def work() -> "tuple[ConfigEntry, ...]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            return await admin.describe_config(_resource(topic))

    emit_rows(_rows([(_resource(topic), run(work()))]), output, columns=("name", "value", "source", "valid_values"))


@of_topic.command("set")
def set_(
    *,
    topic: NameArgument,
    values: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="Settings and their new values.")],
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Set settings of a topic. In force at once."""
    wanted = config_values(values, option="")
    _alter(_resource(topic), wanted, [], dry_run=dry_run, output=output, bootstrap=bootstrap, timeout=timeout)


@of_topic.command("unset")
def unset(
    *,
    topic: NameArgument,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Settings that go back to the cluster's.")],
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Unset settings of a topic: the cluster's apply again, or the defaults."""
    _check_once(names)
    _alter(_resource(topic), {}, names, dry_run=dry_run, output=output, bootstrap=bootstrap, timeout=timeout)


def _check_once(names: Sequence[str]) -> None:
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise wrong_use(f"{', '.join(repeated)} stands twice; give each setting once")


def _alter(
    resource: "ConfigResource",
    values: Mapping[str, str],
    delete: Sequence[str],
    *,
    dry_run: bool,
    output: Output,
    bootstrap: str | None,
    timeout: float | None,
) -> None:
    """Change settings of one resource; show what became of them, and how that is undone."""

    async def work() -> "tuple[tuple[ConfigEntry, ...], tuple[ConfigEntry, ...]]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415
        from regnum_client.admin.configs import ConfigAlteration  # noqa: PLC0415

        alteration = ConfigAlteration(resource=resource, set=values, delete=delete)
        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            before = await admin.describe_config(resource)
            await admin.alter_config(alteration, validate_only=dry_run)
            return before, before if dry_run else await admin.describe_config(resource)

    before, after = run(work())
    rows = _rows([(resource, after)])
    if dry_run:
        _show_changes(rows, values, delete, output)
    else:
        _show_changed(resource, rows, before, [*values, *delete], output)


def _show_changed(
    resource: "ConfigResource",
    rows: list[dict[str, Any]],
    entries: "Sequence[ConfigEntry]",
    named: Collection[str],
    output: Output,
) -> None:
    """What was beside what is; people see only what was named."""
    before = {entry.name: entry for entry in entries}
    undo = undoing(resource, before, named, REACH.get())
    left = {row["name"] for row in rows}
    # Some settings without a value are not described.
    gone = _rows([(resource, tuple(before[name] for name in named if name in before.keys() - left))])
    rows += [{**row, "value": None, "source": None} for row in gone]
    for row in rows:
        was = before.get(row["name"])
        row["was"] = None if was is None or was.sensitive else was.value
        row["changed"] = row["name"] in named and (
            was is None or was.sensitive or (was.value, was.source.value) != (row["value"], row["source"])
        )
        row["undo"] = undo if row["changed"] else None
    if output is not Output.TABLE:
        emit_rows(rows, output, columns=())
        return
    shown = [{**row, "was": "-" if row["was"] is None else row["was"]} for row in rows if row["name"] in named]
    emit_rows(shown, output, columns=("resource", "name", "was", "value", "source"))
    if not any(row["changed"] for row in rows):
        note("nothing has changed: these were the values before")
        return
    if undo:
        note(f"undo: {undo}")
    if secrets := sorted(name for name in named if name in before and before[name].sensitive):
        note(f"what {', '.join(secrets)} was is a secret, and is not known")


def undoing(
    resource: "ConfigResource",
    before: "Mapping[str, ConfigEntry]",
    named: Collection[str],
    reach: Reach = UNSAID,
) -> str:
    """The command that takes a change of some settings back; empty: none does. Pure.

    Secrets are not in it: what they were is not known.
    """
    import shlex  # noqa: PLC0415 - every listing of topics loads this module

    from regnum_client.admin.configs import ConfigSource  # noqa: PLC0415

    whose, own = ["--cluster"], ConfigSource.CLUSTER
    if resource.topic is not None:
        whose, own = ["--topic", resource.topic], ConfigSource.TOPIC
    elif resource.broker is not None:
        whose, own = ["--broker", str(resource.broker)], ConfigSource.BROKER
    known = {name: before.get(name) for name in named}
    had = {name: was for name, was in known.items() if was is not None and was.source is own and not was.sensitive}
    sets = [f"{name}={was.value}" for name, was in had.items()]
    unsets = [name for name, was in known.items() if was is None or was.source is not own]
    whose += reach.after
    if sets and unsets:
        options = [word for text in sets for word in ("--set", text)]
        options += [word for name in unsets for word in ("--delete", name)]
        return shlex.join(["regnum", *reach.before, "configs", "alter", *whose, *options])
    if not sets and not unsets:
        return ""
    return shlex.join(["regnum", *reach.before, "configs", "set" if sets else "unset", *whose, *sets, *unsets])


def _show_changes(rows: list[dict[str, Any]], values: Mapping[str, str], delete: Sequence[str], output: Output) -> None:
    """What is in force beside what would be; people see only what would change."""
    for row in rows:
        named = row["name"] in values
        row["would_change"] = named or row["name"] in delete
        row["would_be"] = values[row["name"]] if named and not row["sensitive"] else None
    if output is Output.TABLE:
        back, secret = "its default", "(a secret)"
        rows = [
            {**row, "would_be": secret if row["sensitive"] and row["name"] in values else row["would_be"] or back}
            for row in rows
            if row["would_change"]
        ]
    emit_rows(rows, output, columns=("resource", "name", "value", "source", "would_be"))
    note("nothing was changed; run it again without --dry-run")


def _named(topic: str | None, broker: int | None, *, cluster: bool) -> bool:
    """Whether the options name a resource; raises on those that exclude one another."""
    named = (topic is not None) + (broker is not None) + cluster
    if named > 1:
        raise wrong_use("--topic names one topic, --broker one broker, --cluster all of them; give one of them")
    return named == 1


def _one_resource(topic: str | None, broker: int | None, *, cluster: bool) -> "ConfigResource":
    if not _named(topic, broker, cluster=cluster):
        raise wrong_use("whose settings? Give --cluster, --broker ID, or --topic NAME")
    return _resource(topic, broker)


def _resource(topic: str | None, broker: int | None = None) -> "ConfigResource":
    from regnum_client.admin.configs import ConfigResource  # noqa: PLC0415

    return ConfigResource(topic=topic, broker=broker)


def _or_raise(
    answers: "Any",
) -> "list[tuple[ConfigResource, tuple[ConfigEntry, ...]]]":
    found = []
    for resource, entries in answers.items():
        if isinstance(entries, Exception):
            raise entries
        found.append((resource, entries))
    return found


def _rows(found: "Sequence[tuple[ConfigResource, tuple[ConfigEntry, ...]]]") -> list[dict[str, Any]]:
    return [
        {
            "resource": str(resource).removeprefix("the "),
            "topic": resource.topic,
            "broker": resource.broker,
            "name": entry.name,
            "value": entry.value,
            "source": entry.source.value,
            "valid_values": entry.valid_values,
            "documentation": entry.documentation,
            "read_only": entry.read_only,
            "sensitive": entry.sensitive,
        }
        for resource, entries in found
        for entry in entries
    ]
