"""The `regnum` command.

Data goes to stdout, everything else to stderr. Exit status: 0 done, 1 failed, 2 wrong use, 3 not found, 4 conflict, 5
unavailable or time-out,
6 quota, 7 not allowed, 130 interrupted. gRPC and rich are loaded by the commands that need them: help is to be there
at once.
"""

import os
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

from regnum_client.commands import cluster, failovers, local, records, topics
from regnum_client.invocation import CommandFailedError, Failure, Output, note, output_of
from regnum_client.rendering import emit_failure

INTERRUPTED: Final = 130
"""128 + SIGINT, as shells count."""

app = typer.Typer(
    name="regnum",
    help="A replicated log that survives kill -9.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
local.add_to(app)
topics.add_to(app)
records.add_to(app)
cluster.add_to(app)
failovers.add_to(app)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the option's value
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415

        sys.stdout.write(f"regnum {version('regnum')}\n")
        raise typer.Exit


@app.callback()
def _root(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """A replicated log that survives kill -9."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    output = output_of(arguments)
    debug = "--debug" in arguments
    if not debug:
        sys.excepthook = _unexpected
    try:
        status: Any = get_command(app).main(args=arguments, prog_name="regnum", standalone_mode=False)
        sys.stdout.flush()
    except CommandFailedError as error:
        if debug:
            raise
        emit_failure(error.failure, output)
        return error.failure.exit_status
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except typer.TyperException as error:
        return _wrong_use(error, output_failure=output)
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as ended:
        # typer's own answer to a closed pipe.
        if isinstance(ended.__context__, BrokenPipeError):
            return _reader_gone()
        raise
    return status if isinstance(status, int) else 0


def _reader_gone() -> int:
    """Whoever read us has seen enough (`| head`). Nothing may be flushed into the closed pipe at exit."""
    sys.stdout = sys.__stdout__
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _wrong_use(error: typer.TyperException, *, output_failure: Output) -> int:
    context: typer.Context | None = getattr(error, "ctx", None)
    path = "regnum" if context is None else context.command_path
    message = error.format_message().strip()
    if not message:
        # Called without a command: the help has been printed in its place.
        return error.exit_code
    failure = Failure(
        code="WRONG_USE", message=f"{message} See `{path} --help`.", exit_status=error.exit_code, metadata={}
    )
    emit_failure(failure, output_failure)
    return failure.exit_status


def _unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """sys.excepthook: what nobody expected, without the trace that only a developer can read."""
    del trace
    note(f"regnum: internal error: {kind.__name__}: {error}. Run it again with --debug for the stack trace.")
