"""`regnum backup` and `regnum restore`.

They speak to the store itself: a restore is for when there is no controller to ask.
"""

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from regnum_client.commands.invocation import (
    CommandFailedError,
    DebugOption,
    Failure,
    Output,
    OutputOption,
    note,
    run,
    wrong_use,
)
from regnum_client.commands.rendering import emit_one

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from regnum_coordination.port import Store

    from regnum_client.commands.backups.files import BackupSpool
    from regnum_client.commands.backups.restore import Restored

CoordinationOption = Annotated[
    str | None,
    typer.Option(
        "--coordination",
        metavar="URL",
        envvar="REGNUM_COORDINATION",
        help="The store, as the services are told it: etcd://..., zookeeper://..., with the options for TLS and users. "
        "Default: that of the cluster that `regnum up` runs.",
    ),
]
NODES_PER_NOTE: Final = 20_000
"""Nodes between two words of progress."""

SESSION_S: Final = 30.0
"""Session time-out of these commands: nobody waits for the end of their sessions."""

T = TypeVar("T")


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line."""
    app.command("backup")(backup)
    app.command("restore")(restore)


def backup(
    *,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Where to; there must be no such file yet. -: stdout, once it is whole."),
    ],
    coordination: CoordinationOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
    output: OutputOption = Output.TABLE,
    _debug: DebugOption = False,
) -> None:
    """Write what the coordination store holds into one file: topics, states, settings, quotas, ACLs, tokens.

    Records are not in it. The cluster may run meanwhile. The file has mode 0600: it holds who may do what. With -
    the backup alone goes to stdout, and what is said of it to stderr.
    """
    from regnum_client.commands.backups.files import STDOUT_NAMES, BackupFile, BackupSpool  # noqa: PLC0415

    spool = BackupSpool() if file in STDOUT_NAMES else None
    if spool is not None and sys.stdout.isatty():
        raise wrong_use(
            "a backup holds access rules and is for no terminal; send stdout elsewhere (> FILE), or name a file. "
            "With kubectl exec: without -t"
        )
    path = Path(file)
    if spool is None and path.exists():
        raise wrong_use(f"{file} exists already; a backup never takes the place of another. Name another file")
    url = store_of(coordination)

    async def work() -> Mapping[str, object]:
        from regnum_client.commands.backups.backup import back_up  # noqa: PLC0415 - loaded when there is something to do

        target, told = spool or BackupFile(path), _progress(quiet=quiet)
        return await with_store(url, lambda store: back_up(store, url, file, target, told))

    try:
        taken = run(work())
        if spool is not None:
            # After the session with the store has ended: who reads may take its time.
            _send(spool)
    finally:
        if spool is not None:
            spool.close()
    if taken["topics"] and not taken["brokers"]:
        note(
            "no broker was registered: what their logs were is not in this backup, and after a restore each partition "
            "waits for `regnum partitions recover`. Take it while the brokers run, if they still can"
        )
    with contextlib.nullcontext() if spool is None else contextlib.redirect_stdout(sys.stderr):
        emit_one(taken, output)


def _send(spool: "BackupSpool") -> None:
    sys.stdout.flush()
    try:
        spool.send(sys.stdout.fileno())
    except BrokenPipeError as error:
        # Not as with `| head`: who has half a backup has none.
        raise _failed("READER_GONE", "its reader ended before it had all of the backup: it is not whole", 1) from error


def restore(
    *,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A backup; with --in-place a new file, which then holds one.")
    ],
    coordination: CoordinationOption = None,
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place",
            help="Treat the tree that is in the store as a restored one: for a store that was put back to an earlier "
            "state by other means.",
        ),
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it. Default: check, and tell what would be done.")
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Delete the tree that is in the store: one of the same cluster, or without topics."
        ),
    ] = False,
    without_tokens: Annotated[
        bool,
        typer.Option("--without-tokens", help="Leave delegation tokens out: those revoked since would be valid again."),
    ] = False,
    broker: Annotated[
        list[int] | None,
        typer.Option(
            "--broker",
            metavar="ID",
            min=0,
            max=2**31 - 1,
            help="A broker that joined after the backup: it may have the newest records. May repeat.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
    output: OutputOption = Output.TABLE,
    _debug: DebugOption = False,
) -> None:
    """Restore a backup into an empty coordination store, or what it holds (--in-place). Changes need --execute.

    Stop every process of the cluster first, and start all of them afterwards, with this store. No partition has a
    leader until every broker has said what its log holds; then the newest log leads. `regnum status` shows what is
    waited for.
    """
    from regnum_client.commands.backups.files import why_unreadable  # noqa: PLC0415

    if in_place and (file.exists() or replace):
        raise wrong_use(
            f"--in-place backs the tree up into {file} before it changes anything: name a file that does not exist, "
            "and leave --replace out. One that was cut off goes on with that file, --replace and --execute"
        )
    if not in_place and (reason := why_unreadable(file)):
        raise wrong_use(reason)
    url = store_of(coordination)

    async def work() -> "Restored":
        from regnum_client.commands.backups.restore import Wish, restore_from, restore_in_place  # noqa: PLC0415

        wish = Wish(
            file=file,
            execute=execute,
            replace=replace,
            without_tokens=without_tokens,
            more_brokers=frozenset(broker or ()),
        )
        told = _progress(quiet=quiet)
        if in_place:
            return await with_store(url, lambda store: restore_in_place(store, url, wish, told))
        return await with_store(url, lambda store: restore_from(store, wish, told))

    done = run(work())
    emit_one(done.row, output)
    if output is Output.TABLE:
        for line in done.words:
            note(line)
    if done.objection is not None:
        raise _failed("RESTORE_REFUSED", done.objection, 4)


def store_of(coordination: str | None) -> str:
    """The URL that was given, else that of the cluster that runs here; refused where there is none."""
    from regnum_local.profile import ProfileError, read_profile  # noqa: PLC0415

    if coordination:
        return coordination
    try:
        profile = read_profile()
    except ProfileError as error:
        raise wrong_use(f"--coordination was not given, and {error}") from error
    if profile is None or not profile.is_current():
        raise wrong_use("no cluster of `regnum up` runs here; give the URL of the store: --coordination URL")
    return profile.coordination


async def with_store(coordination: str, work: "Callable[[Store], Awaitable[T]]") -> T:
    """Do it with a session of the store; its errors become those of a command."""
    from regnum_coordination import open_store  # noqa: PLC0415 - drivers are loaded when there is something to do
    from regnum_coordination.backup.restoring import RestoreRefusedError  # noqa: PLC0415
    from regnum_coordination.backup.taking import NoTreeError  # noqa: PLC0415
    from regnum_coordination.errors import CoordinationError, InvalidRequest, NoAuth  # noqa: PLC0415
    from regnum_model.backup.lines import MalformedBackupError  # noqa: PLC0415

    try:
        store = await open_store(coordination, session_timeout_s=SESSION_S)
    except (ValueError, InvalidRequest, NoAuth) as error:
        raise wrong_use(f"--coordination: {error}") from error
    except ModuleNotFoundError as error:
        raise _failed("LIBRARY_MISSING", str(error), 1) from error
    except CoordinationError as error:
        raise _failed("STORE_UNAVAILABLE", f"no store answers at --coordination: {error}", 5) from error
    try:
        return await work(store)
    except NoTreeError as error:
        raise _failed("NO_TREE", str(error), 3) from error
    except RestoreRefusedError as error:
        raise _failed("RESTORE_REFUSED", str(error), 4) from error
    except MalformedBackupError as error:
        raise _failed("BACKUP_DAMAGED", str(error), 1) from error
    except CoordinationError as error:
        raise _failed("STORE_UNAVAILABLE", f"the store failed: {error}", 5) from error
    finally:
        await store.close()


def _progress(*, quiet: bool) -> "Callable[[int], None]":
    told = 0

    def tell(nodes: int) -> None:
        nonlocal told
        if not quiet and nodes >= told + NODES_PER_NOTE:
            told = nodes
            note(f"{nodes} nodes")

    return tell


def _failed(code: str, message: str, exit_status: int) -> CommandFailedError:
    return CommandFailedError(Failure(code=code, message=message, exit_status=exit_status, metadata={}))
