"""Tables for a terminal of some width. Pure.

Goals: nothing that a cell says is ever cut, and what belongs together stays on one line where that is possible.

Algorithm: a table that fits is printed as it is. One that does not gets narrower columns whose cells go on in the next
line, broken between words only: every column has at least the width of its longest word, and what is left over goes to
those that need the least more. Where the longest words alone do not fit, each row becomes a block: a line for each
column.

Example: of BROKER, SAFE and a REASON of 90 characters, at 80 columns the reason takes two lines; a table of 12 columns
of numbers and addresses becomes blocks.
"""

import textwrap
import unicodedata
from collections.abc import Sequence
from typing import Final

GAP: Final = 2
"""Spaces between two columns."""
BOLD: Final = "\x1b[1m"
PLAIN: Final = "\x1b[0m"


def table_lines(rows: Sequence[Sequence[str]], titles: Sequence[str], *, width: int, bold: bool) -> list[str]:
    """The lines of a table.

    Args:
        rows: cells of each row.
        titles: of the columns, in capitals.
        width: columns of the terminal.
        bold: whether titles are set in bold.
    """
    rows = [[_printable(cell) for cell in row] for row in rows]
    columns = [[title, *(row[index] for row in rows)] for index, title in enumerate(titles)]
    widths = _fitted([max(map(_width, column)) for column in columns], [_least(column) for column in columns], width)
    if widths is None:
        return _blocks(rows, titles, bold=bold)
    head = [_bold(line, bold=bold) for line in _wrapped(titles, widths)]
    return [*head, *(line for row in rows for line in _wrapped(row, widths))]


def _fitted(natural: Sequence[int], least: Sequence[int], width: int) -> list[int] | None:
    """Widths of the columns; None: their longest words do not fit."""
    left = width - GAP * (len(natural) - 1) - sum(least)
    if left < 0:
        return None
    widths = list(least)
    for index in sorted(range(len(natural)), key=lambda one: natural[one] - least[one]):
        more = min(natural[index] - least[index], left)
        widths[index] += more
        left -= more
    return widths


def _wrapped(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The lines of one row."""
    parts = [_parts(cell, width) for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for number in range(max(map(len, parts))):
        shown = [part[number] if number < len(part) else "" for part in parts]
        padded = (text + " " * (width - _width(text) + GAP) for text, width in zip(shown, widths, strict=True))
        lines.append("".join(padded).rstrip())
    return lines


def _parts(cell: str, width: int) -> list[str]:
    if _width(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False) or [""]


def _blocks(rows: Sequence[Sequence[str]], titles: Sequence[str], *, bold: bool) -> list[str]:
    widest = max(map(_width, titles))
    lines: list[str] = []
    for row in rows:
        lines += [""] if lines else []
        for title, cell in zip(titles, row, strict=True):
            lines.append((_bold(title.ljust(widest + GAP), bold=bold) + cell).rstrip())
    return lines


def _least(column: Sequence[str]) -> int:
    """Width of the longest word."""
    return max((_width(word) for cell in column for word in cell.split()), default=1) or 1


def _bold(text: str, *, bold: bool) -> str:
    return f"{BOLD}{text}{PLAIN}" if bold else text


def _printable(cell: str) -> str:
    """What a name may hold must not move the cursor or change colours."""
    return cell if cell.isprintable() else "".join(one if one.isprintable() else "?" for one in cell)


def _width(text: str) -> int:
    """Columns that a text takes: some letters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)
