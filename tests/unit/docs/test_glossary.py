"""Every word of the glossary is one that another page uses; each has one entry, and so has every step of a chain."""

import re
from pathlib import Path
from typing import Final

from regnum_insight.attribution.steps import ALL_STEPS

DOCS: Final = Path(__file__).parents[3] / "docs"
WORDS: Final = re.findall(r"^\| (?!word|---)([^|]+?) \|", (DOCS / "glossary.md").read_text("utf-8"), re.MULTILINE)
PAGES: Final = "\n".join(
    page.read_text("utf-8").lower()
    for page in (DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md")))
    if page.name != "glossary.md" and page.parent.name != "decisions"
)


def test_each_word_is_used() -> None:
    assert len(WORDS) > 60
    forms = [form for word in WORDS for form in re.sub(r" \(.*\)", "", word).lower().split(", ")]
    assert [form for form in forms if re.search(rf"\b{re.escape(form)}", PAGES) is None] == []


def test_there_is_one_entry_for_each_in_the_order_of_the_alphabet() -> None:
    assert sorted(set(WORDS), key=str.lower) == WORDS


def test_every_step_of_a_chain_has_an_entry() -> None:
    assert {step.replace("_", " ") for step in ALL_STEPS} - set(WORDS) == set()
