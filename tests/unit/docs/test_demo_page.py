"""What docs/demo.md shows has the shape of what the demo prints: its scenes, the rows of its tables, the steps."""

import re
from pathlib import Path
from typing import Final

from regnum_insight.attribution.steps import ALL_STEPS

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "docs/demo.md").read_text(encoding="utf-8")
CODE: Final = "\n".join(
    path.read_text(encoding="utf-8") for path in sorted((ROOT / "libs/local/regnum_local/demo").glob("*.py"))
)


def rows(title: str) -> list[str]:
    """First cells of the tables below a title."""
    tables = re.findall(rf"^{title}\n(.*?)^[└]", PAGE, re.MULTILINE | re.DOTALL)
    return [row.strip() for table in tables for row in re.findall(r"^[│] ([^│]+?)│", table, re.MULTILINE)]


def test_rows_about_records_are_those_of_the_code() -> None:
    found = rows("what became of the records")
    assert len(found) > 8
    assert [row for row in found if f'"{row}"' not in CODE] == []


def test_every_step_is_one_that_a_chain_can_have() -> None:
    found = {row for row in rows("where the time went, by the traces") if not row.startswith(("total", "longest"))}
    assert found - {step.replace("_", " ") for step in ALL_STEPS} == set()
    assert {"failed", "noticed", "acknowledged"} <= found


def test_its_scenes_are_those_of_the_code() -> None:
    told = [line for line in re.findall(r"^> (.*)$", PAGE, re.MULTILINE) if not re.search(r"\d", line)]
    assert len(told) > 3
    assert [line for line in told if f'"{line}' not in CODE] == []
    steps = re.findall(r'\.step\("([a-z ]+)"\)', CODE)
    assert [step for step in steps if f"> {step}\n" not in PAGE] == []
