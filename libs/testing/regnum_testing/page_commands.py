"""Commands that a page shows, in order, and what they print there.

Form: in blocks ``console`` a line that begins with ``$ `` is a command, those below it are some of its output.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FIGURES: Final = re.compile(r"\d+(?:[.,]\d+)*")
_FOLDER: Final = re.compile(r"(?<=\s)/\S*/")
_BARS: Final = re.compile("[▏▎▍▌▋▊▉█]+")
_UNCERTAINTY: Final = re.compile(r"±\S+")
"""Shown where clocks leave a step of a chain open, which a page does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A command of a page."""

    command: str
    """As it is typed."""
    output: tuple[str, ...]
    """Lines of its output that the page shows."""


def commands(page: str) -> Iterator[Shown]:
    """All of a page."""
    for block in _BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *output = part.rstrip().splitlines()
            yield Shown(command=command, output=tuple(output))


def blocks(page: str, language: str) -> list[str]:
    """The blocks of code of a page in a language (``python``, ``sh``), each for itself."""
    return [code for marked, code in _CODE.findall(page) if marked == language]


def python(page: str) -> str:
    """The code of a page, all of it one program."""
    return "\n".join(blocks(page, "python"))


def shape(line: str) -> str:
    """A line without what differs from run to run: figures, folders, widths of columns, bars, uncertainties."""
    line = _UNCERTAINTY.sub(" ", _FOLDER.sub("/", line))
    return " ".join(_BARS.sub(" ", _FIGURES.sub("0", line)).split())


def missing(shown: Shown, printed: str) -> list[str]:
    """Lines that a page shows, and the command did not print in that shape."""
    shapes = {shape(line) for line in printed.splitlines()}
    return [line for line in shown.output if shape(line) not in shapes]
