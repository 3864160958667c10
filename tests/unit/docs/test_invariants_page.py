"""The page of invariants names tests and rules that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "invariants.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:unit|contract|integration)/[\w/]+\.py(?:::\w+)?)`", PAGE)))


@pytest.mark.parametrize("named", NAMED)
def test_every_named_test_exists(named: str) -> None:
    path, _, function = named.partition("::")
    text = (ROOT / "tests" / path).read_text()
    assert not function or re.search(rf"^(async )?def {function}\(", text, re.MULTILINE)


def test_every_rule_is_stated_and_every_cited_rule_is_known() -> None:
    stated = {int(number) for number in re.findall(r"\*\*S(\d+)[.*]", PAGE)}
    assert stated == set(range(1, 23))
    cited = set()
    for folder in ("libs", "services"):
        for path in (ROOT / folder).rglob("*.py"):
            cited |= {int(number) for number in re.findall(r"safety rules? S(\d+)", path.read_text())}
    assert cited
    assert cited <= stated


def test_rules_that_code_carries_have_a_test() -> None:
    tabled = {int(number) for number in re.findall(r"^\| S(\d+) \|", PAGE, re.MULTILINE)}
    assert set(range(1, 19)) <= tabled
