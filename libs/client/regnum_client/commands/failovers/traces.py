"""Where commands find traces, and how they end without them."""

from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from regnum_client.commands.invocation import CommandFailedError, Failure
from regnum_client.commands.local import DATA_DIR

NO_TRACES_STATUS: Final = 3
"""Exit status where there is no trace."""
CODES: Final = {1: "JOB_FAILED", 3: "NO_TRACES", 5: "SPARK_UNAVAILABLE"}
"""Names of the failures by their exit status."""

TracesOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--traces",
        metavar="PATH",
        help="Folder of traces, or one file: OTLP as JSON or protobuf, plain, gzip or zstd. "
        "Default: traces of the cluster of `regnum up`.",
    ),
]


def traces_of(traces: Path | None) -> Path:
    """The folder that is named, or that of the cluster of `regnum up`."""
    from regnum_local.profile import read_profile  # noqa: PLC0415

    profile = read_profile() if traces is None else None
    return traces or (DATA_DIR if profile is None else profile.data_dir) / "traces"


def failed(status: int, message: str) -> CommandFailedError:
    """A failure of a command that reads traces, by its exit status."""
    return CommandFailedError(Failure(code=CODES[status], message=message, exit_status=status, metadata={}))
