"""docs/use/errors.md sorts codes as the table of errors does."""

import re
from pathlib import Path
from typing import Final

import pytest
from regnum_service.errors import ErrorTraits, code_of, traits_of

PAGE: Final = Path(__file__).parents[3] / "docs/use/errors.md"
GRPC: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})


def rows() -> dict[str, list[ErrorTraits]]:
    """What to do, and the traits of all codes for which the page says it."""
    found: dict[str, list[ErrorTraits]] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        match = re.match(r"\| (.*) \| .*?\*\*(\w+)", line)
        if match:
            codes = [code_of(name) for name in re.findall(r"\b[A-Z]{2,}(?:_[A-Z]+)+\b", match[1]) if name not in GRPC]
            assert None not in codes, line
            found[match[2]] = [traits_of(code) for code in codes if code is not None]
    return found


def test_there_are_six_lines() -> None:
    assert list(rows()) == ["refresh", "retry", "unknown", "wait", "join", "give"]


@pytest.mark.parametrize(
    ("line", "retriable", "known"),
    [
        ("refresh", True, True),
        ("retry", True, True),
        ("unknown", True, False),
        ("wait", True, True),
        ("join", False, True),
        ("give", False, True),
    ],
)
def test_codes_of_a_line_have_its_traits(line: str, retriable: bool, known: bool) -> None:
    assert rows()[line]
    assert all(traits.retriable is retriable and traits.outcome_known is known for traits in rows()[line])
    assert line != "refresh" or all(traits.refresh_metadata for traits in rows()[line])
