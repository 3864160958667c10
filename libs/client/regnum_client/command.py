"""The `regnum` command.

Data goes to stdout, everything else to stderr. Exit status: 0 done, 1 failed, 2 wrong use, 3 not found, 4 conflict,
5 unavailable or time-out, 6 quota, 7 not allowed, 130 interrupted. gRPC and rich are loaded by the commands that need
them: help is to be there at once. Of the commands only those are loaded and made known to typer that the first word
asks for: all of them take as long as a page of topics from a broker.
"""

import errno
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

from regnum_client.commands.habits.grammar import Command, Group
from regnum_client.commands.habits.table import first_words
from regnum_client.commands.invocation import (
    CLUSTER_IS_SAID,
    FORM,
    INTERRUPTED,
    REACH,
    CommandFailedError,
    Failure,
    Output,
    output_of,
    reach_of,
    says_cluster,
    wrong_use,
)
from regnum_client.commands.rendering import emit_failure, take_any_text

STDOUT_CLOSED: Final = Failure(
    code="SYSTEM_ERROR",
    message="stdout is closed; redirect it to a file, or to /dev/null when the output is not wanted",
    exit_status=1,
    metadata={},
)

SYSTEM_ADVICE: Final[Mapping[int, str]] = {
    errno.ENOENT: "look at the path, and that its folder is there",
    errno.ENOTDIR: "look at the path: part of it is a file, and no folder",
    errno.EISDIR: "name a file, for this is a folder",
    errno.EEXIST: "it is there already; name another one",
    errno.EACCES: "have the right given to this user, or choose another path",
    errno.EPERM: "have the right given to this user, or choose another path",
    errno.EROFS: "nothing can be written there; choose another path",
    errno.ENOSPC: "make room on the disk, and try again",
    errno.EDQUOT: "make room within the quota of this user, and try again",
    errno.EMFILE: "allow this process more open files (ulimit -n)",
}
"""What to do about an error of the operating system, by its number."""

HOMES: Final[Mapping[str, tuple[str, ...]]] = {
    "local": ("up", "down", "restart"),
    "processes.command": ("start", "stop", "kill", "pause", "resume"),
    "status.command": ("status",),
    "doctor.command": ("doctor",),
    "topics.command": ("topics", "topic"),
    "partitions": ("partitions", "partition"),
    "brokers": ("brokers", "broker"),
    "records.command": ("produce", "consume"),
    "load.command": ("load",),
    "cluster": ("cluster", "controller"),
    "quotas.command": ("quotas", "quota"),
    "configs": ("configs", "config"),
    "acls": ("acls", "acl"),
    "groups.command": ("groups", "group"),
    "looking.events": ("events", "explain"),
    "metadata.command": ("metadata",),
    "backups.command": ("backup", "restore"),
    "failovers.command": ("failovers",),
    "console.command": ("console",),
    "logs.command": ("logs", "log"),
    "profiles.command": ("profile", "profiles"),
    "certs": ("certs",),
    "tokens": ("tokens", "token"),
}
"""Module below ``commands`` -> first words of the commands that it has, in the order of the help."""


NEVER_EMPTY: Final = frozenset(
    {
        *("--bundle", "--compare", "--data-dir", "--dir", "--file", "--out", "--plan", "--png", "--tables", "--traces"),
        *("--tls-ca", "--tls-certificate", "--tls-key", "--bootstrap", "--coordination"),
        *("--serve-certificate", "--serve-key", "--tables"),
        *("--topic", "--topics", "--group", "-g", "--transactional-id", "--token", "--allow", "--deny", "--operation"),
        *("--profile", "--token-file"),
        *("--owner", "--renewer", "--client", "--host", "--kind", "--victim", "--partition", "--error"),
    }
)
"""Options that name a place or a thing: an empty text, as of a variable of a shell that is not set, would mean the
present folder, the last `regnum up`, or everything."""

OF_FILES: Final = frozenset({"logs", "log", "backup", "restore"})
"""First words of the commands whose arguments are files."""


def application(word: str | None = None) -> typer.Typer:
    """The command line; with a first word of HOMES only the part of it that the word is about."""
    app = typer.Typer(
        cls=Group,
        name="regnum",
        help="A replicated log that survives kill -9.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    part = {module: words for module, words in HOMES.items() if word in words}
    for module in part or HOMES:
        import_module(f"regnum_client.commands.{module}").add_to(app)
    if part:
        # The other names of the same commands would be built as well.
        app.registered_groups = [one for one in app.registered_groups if one.name == word]
        app.registered_commands = [one for one in app.registered_commands if one.name == word]
    _set_grammar(app)
    return app


def _set_grammar(app: typer.Typer) -> None:
    """All commands below are parsed alike."""
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _set_grammar(group.typer_instance)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the option's value
    if wanted:
        from regnum_telemetry.build import this_build  # noqa: PLC0415

        sys.stdout.write(f"{this_build()}\n")
        raise typer.Exit


def _into(variable: str) -> Callable[[Path | None], None]:
    """What an option of all commands says goes where the SDK looks for it."""

    def put(path: Path | None) -> None:
        if path is not None:
            os.environ[variable] = str(path.absolute())

    return put


def _choose_profile(name: str | None) -> None:
    if name is None and CLUSTER_IS_SAID.get():
        return
    from regnum_client.commands.profiles.choosing import choose  # noqa: PLC0415 - most command lines say it

    choose(name)


def _tls_option(name: str, help_text: str) -> Any:
    variable = f"REGNUM_TLS_{name.upper()}"
    return typer.Option(f"--tls-{name}", metavar="FILE", envvar=variable, callback=_into(variable), help=help_text)


def _root(
    *,
    _tls_ca: Annotated[
        Path | None, _tls_option("ca", "PEM file with the authorities of the brokers' certificates; with it, TLS.")
    ] = None,
    _tls_certificate: Annotated[
        Path | None, _tls_option("certificate", "PEM file with the client's certificate.")
    ] = None,
    _tls_key: Annotated[Path | None, _tls_option("key", "PEM file with its key.")] = None,
    _profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            callback=_choose_profile,
            help="Cluster of that name (`regnum profile list`). Default: the one in use.",
        ),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and the commit, and exit."
        ),
    ] = False,
) -> None:
    """A replicated log that survives kill -9."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    arguments = first_words(sys.argv[1:] if arguments is None else arguments)
    output = output_of(arguments)
    FORM.set(output)
    CLUSTER_IS_SAID.set(says_cluster(arguments, os.environ))
    REACH.set(reach_of(arguments))
    # gRPC in C tells on stderr what it does; what goes wrong comes as an error.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    debug = "--debug" in arguments
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - until the process ends
    take_any_text(sys.stdout)
    take_any_text(sys.stderr)
    if not debug:
        sys.excepthook = _unexpected(output)
    if sys.stdout is None:
        emit_failure(STDOUT_CLOSED, output)
        return STDOUT_CLOSED.exit_status
    try:
        return _run(arguments)
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has seen enough (`| head`).
        _discard_stdout()
        return 0
    except (CommandFailedError, typer.TyperException, OSError) as error:
        if isinstance(error, OSError):
            _discard_stdout()
        if debug:
            traceback.print_exception(error)
        failure = _failure(error)
        if failure.message:
            emit_failure(failure, output)
        return failure.exit_status


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Raise CommandFailedError for an empty text where a place or a thing is to be named."""
    for before, argument in pairwise(("", *arguments)):
        option, equals, value = argument.partition("=")
        if argument == "":
            option = before
        elif not equals or value:
            continue
        if option in NEVER_EMPTY:
            raise wrong_use(f"{option} is empty; leave it out or give it a value")
        if argument == "" and arguments[0] in OF_FILES:
            raise wrong_use("the name of a file is empty; give one (. is the present folder)")


def _run(arguments: Sequence[str]) -> int:
    _refuse_empty(arguments)
    try:
        app = application(arguments[0] if arguments else None)
        status: Any = get_command(app).main(args=arguments, prog_name="regnum", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as ended:
        # typer's own answer to a closed pipe.
        if isinstance(ended.__context__, BrokenPipeError):
            raise ended.__context__ from None
        raise
    return status if isinstance(status, int) else 0


def _failure(error: CommandFailedError | typer.TyperException | OSError) -> Failure:
    match error:
        case CommandFailedError():
            return error.failure
        case OSError():
            what = error.strerror or str(error)
            where = "" if error.filename is None else f" ({error.filename})"
            advice = SYSTEM_ADVICE.get(error.errno or 0, "mend that, and try again")
            message = f"the operating system refuses: {what}{where}; {advice}"
            return Failure(code="SYSTEM_ERROR", message=message, exit_status=1, metadata={})
        case _:
            return _wrong_use(error)


def _wrong_use(error: typer.TyperException) -> Failure:
    """An empty message: called without a command, and the help has been printed in its place."""
    from regnum_client.commands.habits.mistakes import wrong_value  # noqa: PLC0415 - most command lines are right

    message = error.format_message()
    return Failure(
        code="WRONG_USE",
        message=message and wrong_value(message, "regnum"),
        exit_status=error.exit_code,
        metadata={},
    )


def _discard_stdout() -> None:
    """What is still buffered cannot be written; the attempt at exit would be one more failure."""
    if sys.__stdout__ is not None:
        sys.stdout = sys.__stdout__
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _unexpected(
    output: Output,
) -> Callable[[type[BaseException], BaseException, TracebackType | None], None]:
    """sys.excepthook for what nobody expected: without the trace, which only a developer can read."""

    def show(kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
        message = f"internal error: {kind.__name__}: {error}. Run it again with --debug for the stack trace."
        emit_failure(Failure(code="INTERNAL_ERROR", message=message, exit_status=1, metadata={}), output)

    return show
