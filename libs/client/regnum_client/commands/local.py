"""`regnum up`, `regnum down`, `regnum restart`: a cluster on this machine."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from regnum_client.commands.console.command import check_installed
from regnum_client.commands.invocation import (
    CommandFailedError,
    DebugOption,
    Failure,
    Output,
    OutputOption,
    completed,
    note,
    note_wait,
    run,
)
from regnum_client.commands.rendering import emit_rows

if TYPE_CHECKING:
    from regnum_local.cluster import ProcessRow
    from regnum_local.lifecycle import ClusterView

DATA_DIR: Final = Path("regnum-data")
COLUMNS: Final = ("name", "role", "state", "pid", "addresses")

DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Folder of the cluster. Default: that of `regnum up`.")
]


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line."""
    app.command("up")(up)
    app.command("down")(down)
    app.command("restart")(restart)


def up(
    *,
    brokers: Annotated[
        int | None,
        typer.Option("--brokers", min=1, help="Number of brokers. Default: as many as the folder has, 3 in a new one."),
    ] = None,
    elections: Annotated[
        int | None, typer.Option("--elections", min=1, help="Number of election processes. Default: likewise, 3.")
    ] = None,
    metadata: Annotated[
        int | None, typer.Option("--metadata", min=1, help="Number of metadata processes. Default: likewise, 2.")
    ] = None,
    quotas: Annotated[
        int | None, typer.Option("--quotas", min=0, help="Number of quota processes. Default: likewise, 1.")
    ] = None,
    coordination: Annotated[
        str | None,
        typer.Option(
            "--coordination",
            metavar="STORE",
            # No brackets: the help is rendered as markup.
            help="etcd or zookeeper, started here; or the URL of one that runs: etcd://HOST:PORT or "
            "zookeeper://HOST:PORT, more servers after commas, then a /path of this cluster's own. "
            "Default: that of the folder, etcd in a new one.",
        ),
    ] = None,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", help="Folder for data and logs; a cluster in it comes back.")
    ] = DATA_DIR,
    port_base: Annotated[
        int | None,
        typer.Option(
            "--port-base",
            min=1,
            max=65535,
            metavar="PORT",
            help="Port of broker 1 for clients, of broker 2 the next, and so on. Default: as the folder has it.",
        ),
    ] = None,
    bind: Annotated[
        str | None,
        typer.Option(
            "--bind",
            metavar="HOST",
            help="Where clients reach the cluster: a name or address of this machine. Beyond loopback with --acl or "
            "--tls only. Default: as the folder has it, 127.0.0.1 in a new one.",
        ),
    ] = None,
    tls: Annotated[
        bool,
        typer.Option(
            "--tls",
            help="Protect every connection, with certificates made in certs/ of the folder. It comes back with that.",
        ),
    ] = False,
    acl: Annotated[
        bool,
        typer.Option(
            "--acl",
            help="Access rules, with TLS: admin may do everything, others what `regnum acls` says. "
            "It comes back with that.",
        ),
    ] = False,
    console: Annotated[
        bool, typer.Option("--console", help="Serve the console, pages for a browser, while it runs.")
    ] = False,
    output: OutputOption = Output.TABLE,
    _debug: DebugOption = False,
) -> None:
    """Start a cluster here and run it until Ctrl-C: a coordination store and all services."""
    folder = data_dir.absolute()
    note(f"starting the cluster in {folder}")

    def ready(view: "ClusterView") -> None:
        from regnum_local.named_profiles import LOCAL  # noqa: PLC0415

        from regnum_client.commands.profiles.choosing import known_profiles  # noqa: PLC0415

        emit_rows(process_rows(view.processes), output, columns=COLUMNS)
        typer.echo("", nl=False)  # flushes stdout: whoever waits for the table in a pipe gets it now
        note(f"\nThe cluster is up (bootstrap {','.join(view.bootstrap)}). Ctrl-C stops everything and keeps the data.")
        note(f"clients of Kafka: bootstrap.servers={','.join(view.kafka)}")
        note(f"coordination store: {view.coordination}")
        if view.protection.tls:
            note(f"TLS: the commands find what they show in {folder / 'certs'} by the profile")
        if view.protection.acl:
            note(f"rights: {folder / 'certs' / 'client-guest.pem'} is User:guest, with the rights that it is given:")
            note("  regnum acls add --allow User:guest --operation READ --topic greetings")
        if (elsewhere := known_profiles().current) != LOCAL:
            note(f"commands go to the profile {elsewhere}; `regnum profile use {LOCAL}` has them go to this cluster")
        note("In another terminal:")
        if view.export:
            note(f"  {view.export}")
        note("  regnum topics create greetings --partitions 3")
        note("  seq 1000 | regnum produce greetings")
        note("  regnum consume greetings --until-end")

    async def work() -> int:
        from regnum_local.lifecycle import UpOptions, run_up  # noqa: PLC0415
        from regnum_local.protection import Protection  # noqa: PLC0415
        from regnum_service.programs import in_words, missing  # noqa: PLC0415

        if console:
            check_installed()
        if absent := missing():
            message = f"services cannot run here: {in_words(absent, 'embedded')}"
            raise CommandFailedError(Failure(code="LIBRARY_MISSING", message=message, exit_status=1, metadata={}))
        options = UpOptions(
            data_dir=folder,
            brokers=brokers,
            elections=elections,
            metadata=metadata,
            quotas=quotas,
            coordination=coordination,
            port_base=port_base,
            bind=bind,
            protection=Protection(tls=tls or acl, acl=acl),
            report=note,
        )
        return await run_up(options, ready=ready, beside=_console if console else lambda _view: nullcontext())

    _end_with(run(work()))


@asynccontextmanager
async def _console(view: "ClusterView") -> AsyncIterator[None]:
    """The console of a cluster that has just started."""
    from regnum_console.serving import Options, serving  # noqa: PLC0415
    from regnum_local.plan import TRACES  # noqa: PLC0415
    from regnum_service.clock import SystemClock  # noqa: PLC0415

    options = Options(bootstrap=view.bootstrap, tls=view.tls, traces=view.data_dir / TRACES)
    async with serving(options, SystemClock()) as running:
        note(f"console: {running.address}")
        yield


def down(*, data_dir: DataDirOption = None, output: OutputOption = Output.TABLE, _debug: DebugOption = False) -> None:
    """Stop the cluster of `regnum up`; its data stays."""

    async def work() -> list[str]:
        from regnum_local.lifecycle import run_down  # noqa: PLC0415

        return await run_down(data_dir, report=note_wait)

    stopped = run(work())
    rows = [{"name": name, "state": "stopped"} for name in stopped]
    emit_rows(rows, output, columns=("name", "state"), empty="nothing was running")


def restart(
    *,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            autocompletion=completed("processes"),
            help="Name of the process, as `regnum status` shows it.",
        ),
    ],
    force: Annotated[bool, typer.Option("--force", help="End it first if it runs.")] = False,
    data_dir: DataDirOption = None,
    output: OutputOption = Output.TABLE,
    _debug: DebugOption = False,
) -> None:
    """Start one process again, as `regnum start` does; --force ends one that runs first. Done when it serves."""

    async def work() -> "ProcessRow":
        from regnum_local.lifecycle import run_restart  # noqa: PLC0415

        return await run_restart(data_dir, name, force=force, report=note_wait)

    emit_rows(process_rows([run(work())]), output, columns=COLUMNS)


def process_rows(processes: "Sequence[ProcessRow]") -> list[dict[str, Any]]:
    """Processes as rows of a table."""
    return [
        {
            "name": process.name,
            "role": process.role.value,
            "id": process.id,
            "state": process.state.value,
            "pid": process.pid,
            "addresses": {listener: str(address) for listener, address in process.addresses.items()},
        }
        for process in processes
    ]


def _end_with(exit_status: int) -> None:
    if exit_status:
        raise typer.Exit(exit_status)
