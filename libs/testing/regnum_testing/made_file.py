"""Files of the checkout that are made from code: each has a tool that looks at it, or writes it (``make proto``)."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
"""The checkout."""


def look_or_write(file: Path, text: Callable[[], str], arguments: Sequence[str], *, tool: str) -> int:
    """Exit status of the tool: 0 where the file is what code makes of it, 1 where it is not, 2 for wrong use.

    Args:
        file: which.
        text: what it is to say.
        arguments: of the command line: none, or ``--write``.
        tool: name of its module.
    """
    if list(arguments) not in ([], ["--write"]):
        print(f"usage: python -m regnum_testing.{tool} [--write]", file=sys.stderr)  # noqa: T201
        return 2
    wanted = text()
    if arguments:
        file.write_text(wanted, encoding="utf-8")
    elif not file.exists() or file.read_text(encoding="utf-8") != wanted:
        print(f"{file.relative_to(ROOT)} is not what the code makes of it; run `make proto`", file=sys.stderr)  # noqa: T201
        return 1
    return 0
