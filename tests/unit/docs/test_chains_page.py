"""The page about chains names every step that a chain can have."""

from pathlib import Path

import pytest
from regnum_insight.attribution.steps import ALL_STEPS

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("step", ALL_STEPS)
def test_each_step_is_explained(step: str) -> None:
    rows = [line for line in (ROOT / "docs/operations/chains.md").read_text("utf-8").splitlines() if line[:2] == "| "]
    named = {name.strip() for row in rows for name in row.split("|")[1].split(",")}
    assert step.replace("_", " ") in named
