"""What every command has in common: its options, how it runs, how it fails. Imports nothing heavy."""

import enum
import json
import re
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import typer

T = TypeVar("T")

OUT_OF_RANGE: Final = "Value out of range"
"""How protobuf says that a message has no room for a number: no broker, partition or count is as large."""

TIMEOUT_S: Final = 30.0
"""How long a command waits for the cluster by default."""

FORM: Final[ContextVar["Output"]] = ContextVar("form of the output")
"""In which form the present command shows what it shows, what is waited for among it."""

CLUSTER_IS_SAID: Final[ContextVar[bool]] = ContextVar("the command or its environment says which cluster is meant")
"""Then the profile in use says nothing."""

BROKERS: Final = ("--bootstrap", "--bootstrap-server", "--bootstrap-servers", "--broker-list", "-b")
"""Options that say which cluster is meant."""

OF_REGNUM: Final = ("--profile", "--tls-ca", "--tls-certificate", "--tls-key")
"""Options before the command that say how a cluster is reached."""

OF_THIS_MACHINE: Final = frozenset(
    {
        *("up", "down", "restart", "start", "stop", "kill", "pause", "resume", "logs", "log"),
        *("certs", "profile", "profiles"),
    }
)
"""First words of commands that are about no cluster elsewhere."""

INTERRUPTED: Final = 130
"""128 + SIGINT, as shells count."""

CLIENT_ID: Final = "regnum-admin"
"""Name by which commands call the controller when they are not told another."""


class Output(enum.StrEnum):
    """In which form data goes to stdout."""

    TABLE = "table"
    """For people."""
    JSON = "json"
    """One JSON document."""
    JSONL = "jsonl"
    """One JSON object a line."""
    YAML = "yaml"
    """YAML."""


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="Form of the data on stdout; errors are JSON too unless it is table.")
]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT,...",
        envvar="REGNUM_BOOTSTRAP",
        help="Brokers to connect to first. Default: the profile in use, or the last `regnum up`.",
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0.1, help=f"How long to wait for the cluster. Default: {TIMEOUT_S:g}."
    ),
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show a stack trace when the command fails.")]
ClientIdOption = Annotated[
    str, typer.Option("--client-id", metavar="ID", help="Name of the caller, for the controller's log.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How a command failed, as it is shown."""

    code: str
    """Name for programs: an error code of the protocol without prefix, or WRONG_USE, START_REFUSED, ..."""
    message: str
    """What is wrong and what to do next."""
    exit_status: int
    """Exit status of the command."""
    metadata: Mapping[str, str]
    """Facts for programs."""

    def as_json(self) -> dict[str, object]:
        """For ``-o json``."""
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "exit_status": self.exit_status,
                **({"metadata": dict(self.metadata)} if self.metadata else {}),
            }
        }


class CommandFailedError(Exception):
    """A command ends with this failure."""

    failure: Failure
    """What to show."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def says_cluster(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a command line or its environment says which cluster is meant, whatever profile is in use.

    >>> says_cluster(["topics", "list", "--bootstrap=h:1"], {})
    True
    """
    if environment.get("REGNUM_BOOTSTRAP") or environment.get("REGNUM_PROFILE"):
        return True
    about_this_machine = bool(arguments) and arguments[0] in OF_THIS_MACHINE
    return about_this_machine or any(one.partition("=")[0] in BROKERS for one in arguments)


class Reach(NamedTuple):
    """How a command line names its cluster, for another command line."""

    before: tuple[str, ...] = ()
    """Options of ``regnum`` itself: profile and TLS."""
    after: tuple[str, ...] = ()
    """Options of the command."""


UNSAID: Final = Reach()
"""By a command line that leaves it to the environment, or to the profile in use."""

REACH: Final[ContextVar[Reach]] = ContextVar("how the present command line names its cluster")


def reach_of(arguments: Sequence[str]) -> Reach:
    """What a command line says of its cluster; what the environment and the profile in use say, they will say again.

    >>> reach_of(["--profile", "prod", "topics", "list", "-b", "h:1"])
    Reach(before=('--profile=prod',), after=('--bootstrap=h:1',))
    """
    before, after = [], []
    for at, word in enumerate(arguments):
        option, is_whole, value = word.partition("=")
        text = value if is_whole else "".join(arguments[at + 1 : at + 2])
        if option in OF_REGNUM:
            before.append(f"{option}={text}")
        elif option in BROKERS:
            after.append(f"--bootstrap={text}")
    return Reach(tuple(before), tuple(after))


def wrong_use(message: str) -> CommandFailedError:
    """The command was called with options that do not go together."""
    return CommandFailedError(Failure(code="WRONG_USE", message=message, exit_status=2, metadata={}))


def conflict(code: str, message: str) -> CommandFailedError:
    """Somebody else wants something else, and is not overruled."""
    return CommandFailedError(Failure(code=code, message=message, exit_status=4, metadata={}))


def broken_off(message: str) -> CommandFailedError:
    """Ctrl-C ended the command, and what it had begun goes on: the message says what, and what to do about it."""
    return CommandFailedError(Failure(code="INTERRUPTED", message=message, exit_status=INTERRUPTED, metadata={}))


def completed(kind: str) -> Callable[[typer.Context, str], list[str]]:
    """Have a shell complete names of that kind (``completing.NAMES``), which is loaded by then."""

    def names(ctx: typer.Context, incomplete: str) -> list[str]:
        from regnum_client.commands.habits.completing import NAMES  # noqa: PLC0415 - only a shell needs it

        return NAMES[kind](ctx, incomplete)

    return names


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work on an event loop; whatever is an answer to the user becomes CommandFailedError."""
    try:
        return _run(work)
    finally:
        # Ctrl-C may have come before it began; Python would complain that it was never awaited.
        work.close()


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio  # noqa: PLC0415 - help is to be there at once

    from regnum_local.profile import ProfileError  # noqa: PLC0415 - gRPC is loaded when there is something to do
    from regnum_service.errors import RegnumError, StartRefusedError  # noqa: PLC0415

    from regnum_client.commands.rendering import show_waits  # noqa: PLC0415

    try:
        with show_waits():
            return asyncio.run(work)
    except RegnumError as error:
        raise CommandFailedError(failure_of(error)) from error
    except StartRefusedError as error:
        raise CommandFailedError(
            Failure(code="START_REFUSED", message=str(error), exit_status=int(error.exit_status), metadata={})
        ) from error
    except UnicodeEncodeError as error:
        # An argument, as the shell passed it: what is sent has to be text.
        raise wrong_use(f"{error.object[:40]!a} is not UTF-8, so it names nothing; write it in UTF-8") from error
    except ValueError as error:
        what, _, number = str(error).partition(": ")
        if what != OUT_OF_RANGE:
            raise
        raise wrong_use(f"{number} is too large: no broker, partition or count is; give a smaller number") from error
    except ProfileError as error:
        raise CommandFailedError(
            Failure(code="PROFILE_UNREADABLE", message=str(error), exit_status=1, metadata={})
        ) from error


def failure_of(error: BaseException) -> Failure:
    """How an error of the SDK is shown; anything else is not expected here and is raised on."""
    from regnum_service.errors import RegnumError, reason_of  # noqa: PLC0415

    if not isinstance(error, RegnumError):
        raise error
    return Failure(
        code=reason_of(error.code),
        message=error.message,
        exit_status=int(error.traits.exit_status),
        metadata=error.metadata,
    )


def config_values(texts: Sequence[str], *, option: str) -> dict[str, str]:
    """Settings as they are given on the command line, by name.

    Args:
        texts: ``NAME=VALUE`` each.
        option: what they were given as, for the error; empty: arguments.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or name in values:
            what = f"{option} {text!r}".strip()
            raise wrong_use(f"{what} is not NAME=VALUE, or stands twice; give min.insync.replicas=2, once")
        values[name] = value
    return values


def output_of(arguments: Sequence[str]) -> Output:
    """The form asked for, read from the bare arguments: errors have to be shown before (and when) they do not parse."""
    wanted = ""
    for index, argument in enumerate(arguments):
        if argument in {"-o", "--output"} and index + 1 < len(arguments):
            wanted = arguments[index + 1]
        elif argument.startswith("--output="):
            wanted = argument.removeprefix("--output=")
        elif argument.startswith("-o") and not argument.startswith("--"):
            wanted = argument.removeprefix("-o") or wanted
    return Output(wanted) if wanted in {form.value for form in Output} else Output.TABLE


_UNSEEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that move a cursor, change colours, hide or turn text around, without the tabulator and the line feed."""
_OF_LINES: Final = re.compile("[\t\n]")


def visible(text: str, *, one_line: bool = False) -> str:
    r"""The text without characters that a terminal obeys: as JSON escapes them (``\u001b``), in JSON still the same.

    Names come from others, and what goes into a pipe is shown by what reads it. ``one_line``: line feeds and
    tabulators, too.
    """
    text = _UNSEEN.sub(_escaped, text)
    return _OF_LINES.sub(_escaped, text) if one_line else text


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


def note_wait(text: str) -> None:
    """What is waited for, for people: programs that ask for JSON find one document on stderr, or nothing."""
    if FORM.get(Output.TABLE) is Output.TABLE or sys.stderr.isatty():
        note(text)


def note(text: str) -> None:
    """A line for people, on stderr."""
    sys.stderr.write(f"{visible(text)}\n")
    sys.stderr.flush()
