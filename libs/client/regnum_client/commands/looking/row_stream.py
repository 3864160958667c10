"""Rows on stdout as they come, in the form that was asked for: a list of 20,000 things begins with the first page.

The forms are those of ``rendering.emit_rows``. A table is laid out by its first rows; later rows that need more room
make the columns wider from there on.
"""

import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Final, assert_never

from regnum_client.commands.invocation import Output, visible
from regnum_client.commands.rendering import Row, cell_of, title_of, write_yaml


class RowStream:
    """``add`` as often as there is something, then ``close``."""

    def __init__(self, output: Output, *, columns: Sequence[str], empty: str = "") -> None:
        """Only assigns.

        Args:
            output: the form.
            columns: fields of a table.
            empty: tells people that there is nothing.
        """
        self._output: Final = output
        self._columns: Final = columns
        self._empty: Final = empty
        self._widths = [0] * len(columns)
        self._count = 0

    @property
    def is_empty(self) -> bool:
        """Whether no row has come."""
        return self._count == 0

    def add(self, rows: Sequence[Row]) -> None:
        """Some more rows."""
        if not rows:
            return
        match self._output:
            case Output.TABLE:
                self._table(rows)
            case Output.JSON:
                texts = list(map(_indented, rows))
                sys.stdout.write(("[\n" if self._count == 0 else ",\n") + visible(",\n".join(texts)))
            case Output.JSONL:
                sys.stdout.write(visible("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)))
            case Output.YAML:
                write_yaml(list(rows))
            case _:
                assert_never(self._output)
        self._count += len(rows)
        sys.stdout.flush()

    def close(self) -> None:
        """That was all."""
        match self._output:
            case Output.JSON:
                sys.stdout.write("\n]\n" if self._count else "[]\n")
            case Output.YAML if not self._count:
                write_yaml([])
            case Output.TABLE if not self._count and self._empty:
                sys.stderr.write(f"{self._empty}\n")
            case _:
                pass

    def _table(self, rows: Sequence[Row]) -> None:
        # Column by column: 20,000 rows are laid out in half the time that it takes row by row.
        laid_out: list[list[str]] = []
        for place, column in enumerate(self._columns):
            cells = [cell_of(row.get(column)) for row in rows]
            if self._count == 0:
                cells.insert(0, title_of(column).upper())
            width = self._widths[place] = max(self._widths[place], *map(len, cells))
            laid_out.append([cell.ljust(width) for cell in cells])
        # One write: with PYTHONUNBUFFERED, as containers have it, each would be a call of the system.
        sys.stdout.write("".join("  ".join(line).rstrip() + "\n" for line in zip(*laid_out, strict=True)))


_FLAT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",\n    ", ": "))
"""Puts each field on a line of its own without the indent that would have json encode in Python instead of in C."""


def _indented(row: Row) -> str:
    """An object as an item of an indented list."""
    if row and not any(isinstance(value, Mapping | list | tuple) for value in row.values()):
        return f"  {{\n    {_FLAT.encode(row)[1:-1]}\n  }}"
    return textwrap.indent(json.dumps(row, indent=2, ensure_ascii=False), "  ")
