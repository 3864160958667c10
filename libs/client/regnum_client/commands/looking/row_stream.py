"""Rows on stdout as they come, in the form that was asked for: a list of 20,000 things begins with the first page.

The forms are those of ``rendering.emit_rows``. A table is laid out by its first rows; later rows that need more room
make the columns wider from there on.
"""

import json
import sys
import textwrap
from collections.abc import Sequence
from typing import Final, assert_never

from regnum_client.commands.invocation import Output
from regnum_client.commands.rendering import Row, cell_of, title_of, yaml_of


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
                texts = [textwrap.indent(json.dumps(row, indent=2, ensure_ascii=False), "  ") for row in rows]
                sys.stdout.write(("[\n" if self._count == 0 else ",\n") + ",\n".join(texts))
            case Output.JSONL:
                sys.stdout.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            case Output.YAML:
                sys.stdout.write(yaml_of(list(rows)))
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
                sys.stdout.write(yaml_of([]))
            case Output.TABLE if not self._count and self._empty:
                sys.stderr.write(f"{self._empty}\n")
            case _:
                pass

    def _table(self, rows: Sequence[Row]) -> None:
        lines = [[cell_of(row.get(column)) for column in self._columns] for row in rows]
        if self._count == 0:
            lines.insert(0, [title_of(column).upper() for column in self._columns])
        columns = zip(*lines, strict=True)
        self._widths = [max(known, *map(len, cells)) for known, cells in zip(self._widths, columns, strict=True)]
        layout = "  ".join(f"{{:<{width}}}" for width in self._widths)
        sys.stdout.writelines(layout.format(*line).rstrip() + "\n" for line in lines)
