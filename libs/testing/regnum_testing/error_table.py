"""The table of error codes in docs/api.md, made from the one table that the code goes by.

python -m regnum_testing.error_table            exit 1 when the page says something else
python -m regnum_testing.error_table --write    put it there; ``make proto``
"""

import re
import sys
from collections.abc import Sequence
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_service.error_advice import advice_of
from regnum_service.errors import ERRORS, Code, reason_of

from regnum_testing.made_file import ROOT, look_or_write

PAGE: Final = ROOT / "docs" / "api.md"
PROTO: Final = ROOT / "proto" / "regnum" / "types" / "v1" / "errors.proto"
HEAD: Final = ("| code | number | gRPC status | retriable | outcome | meaning | what a client does |", "|---" * 7 + "|")
_VALUE: Final = re.compile(r"((?:^ +//.*\n)+) +ERROR_CODE_(\w+) = (-?\d+);$", re.MULTILINE)


def meanings() -> dict[str, str]:
    """What errors.proto says of each code, by its name without prefix."""
    found: dict[str, str] = {}
    for comment, name, _ in _VALUE.findall(PROTO.read_text(encoding="utf-8")):
        lines = [line.strip().removeprefix("//").strip() for line in comment.splitlines()]
        found[name] = " ".join(line for line in lines if not line.startswith("buf:"))
    return found


def table() -> list[str]:
    """All lines of the table, codes by number; a failure that nobody expected last."""
    means = meanings()

    def order(code: Code) -> tuple[bool, int]:
        return code < 0, code

    return [*HEAD, *(_row(code, means[reason_of(code)]) for code in sorted(ERRORS, key=order))]


def _row(code: Code, meaning: str) -> str:
    traits = ERRORS[code]
    outcome = "done" if code == errors_pb2.ERROR_CODE_NONE else "not done" if traits.outcome_known else "unknown"
    cells = (
        reason_of(code),
        str(code),
        traits.status.name,
        "yes" if traits.retriable else "no",
        outcome,
        meaning,
        advice_of(code),
    )
    return "| " + " | ".join(cells) + " |"


def with_table(page: str) -> str:
    """A page with the table in place of the one that it has. Raises ValueError when it has none."""
    lines = page.split("\n")
    begin = lines.index(HEAD[0])
    end = next(number for number in range(begin, len(lines)) if not lines[number].startswith("|"))
    return "\n".join([*lines[:begin], *table(), *lines[end:]])


def main(arguments: Sequence[str]) -> int:
    """Exit status of the tool."""
    return look_or_write(PAGE, lambda: with_table(PAGE.read_text(encoding="utf-8")), arguments, tool="error_table")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
