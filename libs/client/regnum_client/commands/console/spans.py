"""Where a command takes spans from: options that several commands have."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

TracesDirOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--traces",
        metavar="DIR",
        help="Folder into which processes write their traces. Default: that of the cluster of `regnum up`.",
    ),
]
OtlpOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--otlp",
        metavar="HOST:PORT",
        help="Take spans by OTLP over gRPC there, from processes or a collector. Default: from --traces alone.",
    ),
]
