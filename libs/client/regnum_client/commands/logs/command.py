"""`regnum logs`: the output of a process; `logs inspect`: which batches a segment file holds, and if they are whole."""

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from regnum_client.commands.habits.grammar import Group
from regnum_client.commands.invocation import (
    CommandFailedError,
    DebugOption,
    Failure,
    Output,
    OutputOption,
    completed,
    note,
    run,
    visible,
    wrong_use,
)
from regnum_client.commands.local import DataDirOption
from regnum_client.commands.looking.event_words import record_time_of
from regnum_client.commands.looking.row_stream import RowStream
from regnum_client.commands.rendering import Row, emit_rows

if TYPE_CHECKING:
    from regnum_client.commands.logs.inspection import Totals

BATCH_COLUMNS: Final = (
    "position",
    "bytes",
    "offsets",
    "epoch",
    "producer",
    "records",
    "codec",
    "crc",
    "last_time",
    "problem",
)
RECORD_COLUMNS: Final = ("position", "offset", "time", "key", "value", "headers", "problem")
_SEGMENT: Final = re.compile(r"[0-9]{20}\.log", re.ASCII)
"""Name of a segment: what else is in a replica's folder is not Regnum's."""
SHOW: Final = "show"
"""The command that a name alone means."""
ROWS_TOGETHER: Final = 500
"""Rows that are laid out and written at a time."""
CELL_CHARACTERS_MAX: Final = 60
"""What a table shows of a key or a value."""


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line."""
    text = "Output of processes of `regnum up` (regnum logs NAME), and files of a partition's log."
    group = typer.Typer(cls=ShowingGroup, no_args_is_help=True, help=text)
    group.command(SHOW)(show)
    group.command("inspect")(inspect)
    app.add_typer(group, name="logs")
    app.add_typer(group, name="log", hidden=True)


class ShowingGroup(Group):
    """What is none of the commands is the name of a process."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See Group."""
        named = bool(args) and not args[0].startswith("-") and args[0] not in self.commands
        return super().parse_args(ctx, [SHOW, *args] if named else args)


def show(
    *,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            autocompletion=completed("processes"),
            help="Name of the process, as `regnum status` shows it.",
        ),
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what it writes, until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of its last lines.")] = 50,
    data_dir: DataDirOption = None,
    output: OutputOption = Output.TABLE,
    _debug: DebugOption = False,
) -> None:
    """Show what a process of `regnum up` has written last: `regnum logs broker-1 -f`."""
    if follow and output in {Output.JSON, Output.YAML}:
        raise wrong_use("--follow has no end, and a document has; give -o jsonl, or no form")

    def emit(some: Sequence[str]) -> None:
        if output is Output.TABLE:
            sys.stdout.write("".join(f"{visible(line)}\n" for line in some))
        else:
            emit_rows([{"process": name, "line": line} for line in some], output, columns=("process", "line"))
        sys.stdout.flush()

    async def work() -> None:
        from regnum_local.controlling import log_of  # noqa: PLC0415 - help is to be there at once
        from regnum_service.clock import SystemClock  # noqa: PLC0415

        from regnum_client.commands.logs.output import last_lines, later_lines  # noqa: PLC0415

        path = log_of(data_dir, name)
        found, position = last_lines(path, lines)
        emit(found)
        if follow:
            async for some in later_lines(path, position, SystemClock()):
                emit(some)

    run(work())


def inspect(
    *,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Segment files (.log), or folders: all segments in them."),
    ],
    records: Annotated[
        bool, typer.Option("--records", help="Decode and show the records, too; finds those that cannot be decoded.")
    ] = False,
    output: OutputOption = Output.TABLE,
    _debug: DebugOption = False,
) -> None:
    """Show the batches of segment files and find damage. Reads only; status 1 if something is damaged.

    With -o jsonl, each line has a kind: batch, record (with --records), damage, and at the end of each file, file.
    """
    from regnum_client.commands.logs.inspection import Totals, inspect_file  # noqa: PLC0415 - loads the codecs

    paths = list(_segments(files))
    stream = RowStream(output, columns=RECORD_COLUMNS if records else BATCH_COLUMNS, empty="no batches")
    damaged: list[Totals] = []
    for path in paths:
        totals = Totals(file=str(path), size_bytes=path.stat().st_size)
        rows = inspect_file(path, with_records=records, totals=totals)
        while some := list(islice(rows, ROWS_TOGETHER)):
            stream.add(_table_rows(some, records=records) if output is Output.TABLE else some)
        if output is Output.TABLE:
            note(totals.sentence())
        else:
            stream.add([totals.row()])
        if totals.problems:
            damaged.append(totals)
    stream.close()
    if damaged:
        raise _damaged_error(damaged, len(paths))


def _segments(files: Sequence[Path]) -> Iterator[Path]:
    for file in files:
        if file.is_dir():
            inside = sorted(path for path in file.glob("*.log") if _SEGMENT.fullmatch(path.name) and path.is_file())
            if not inside:
                raise wrong_use(
                    f"{file} has no segments (*.log); give the folder of a replica, replicas/TOPIC_ID-PARTITION in the "
                    "log directory of its broker (`regnum topics describe TOPIC -o json` says the id)"
                )
            yield from inside
        elif file.suffix == ".index":
            raise wrong_use(f"{file} is an index, which brokers make anew; give the segment beside it, {file.stem}.log")
        else:
            yield file


def _damaged_error(damaged: "Sequence[Totals]", files: int) -> CommandFailedError:
    first = damaged[0]
    message = (
        f"{len(damaged)} of {files} {'file is' if files == 1 else 'files are'} damaged; {first.file} can be read up to "
        f"byte {first.readable_bytes}. A torn end is cut off when its broker starts, and a file that a running broker "
        "writes may end in the middle of a batch: look again. Otherwise the partition's other replicas have the "
        "records: see `regnum status` for replicas that their brokers cannot use"
    )
    metadata = {"file": first.file, "readable_bytes": str(first.readable_bytes)}
    return CommandFailedError(Failure(code="LOG_DAMAGED", message=message, exit_status=1, metadata=metadata))


def _table_rows(rows: Sequence[Row], *, records: bool) -> list[Row]:
    shown: list[Row] = []
    for row in rows:
        if row["kind"] == "record":
            shown.append(_record_cells(row))
        elif row["kind"] == "damage" or (records and row["problem"] is not None):
            shown.append({"position": row["position"], "bytes": row["bytes"], "problem": row["problem"]})
        elif not records:
            shown.append(_batch_cells(row))
    return shown


def _batch_cells(row: Row) -> Row:
    producer = None
    if row["producer_id"] is not None:
        producer = f"{row['producer_id']}/{row['producer_epoch']} from {row['base_sequence']}"
    return {
        **row,
        "offsets": f"{row['base_offset']}-{row['last_offset']}",
        "epoch": row["leader_epoch"],
        "producer": producer,
        "codec": f"{row['codec']} control" if row["control"] else row["codec"],
        "crc": "ok" if row["crc_ok"] else "wrong",
        "last_time": record_time_of(row["max_timestamp_ms"]),
    }


def _record_cells(row: Row) -> Row:
    return {
        "position": row["position"],
        "offset": row["offset"],
        "time": record_time_of(row["timestamp_ms"]),
        "key": _content_cell(row, "key"),
        "value": _content_cell(row, "value"),
        "headers": [f"{header['key']}={_content_cell(header, 'value')}" for header in row["headers"]],
    }


def _content_cell(row: Row, name: str) -> str | None:
    """A key or a value on one line and not too long; bytes that are no text in base 64."""
    encoded = row.get(f"{name}_base64")
    content: Any = row.get(name) if encoded is None else f"base64:{encoded}"
    if content is None:
        return None
    line = "".join(one if one.isprintable() else "?" for one in content[: CELL_CHARACTERS_MAX + 1])
    return line if len(line) <= CELL_CHARACTERS_MAX else f"{line[:CELL_CHARACTERS_MAX]}..."
