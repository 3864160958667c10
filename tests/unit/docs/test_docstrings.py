"""Docstrings say something: lists read as lists, and no field's sentence only repeats its name.

No formatter runs the items of a list together. The form that they leave alone: a labelled part (Goals, Constraints,
Algorithm, Example) begins a paragraph; rows of a table keep one column; each item of a numbered list begins a line.
"""

import ast
import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("libs", "services", "analysis", "bench", "tests")
LABEL = re.compile(r"(?:^|(?<=[.:;] ))(?:Goals|Constraints|Algorithm|Example): ")
DRAWN = re.compile(r" \| |[├└│]")
EXAMPLE = re.compile(r"\s*(?:>>>|\.\.\.) ")
GAP = re.compile(r"(?<=\S) {3,}(?=\S)")


def paragraphs(docstring: str) -> Iterator[list[str]]:
    """Lines between blank ones, with their indentation."""
    lines: list[str] = []
    for line in [*docstring.expandtabs().splitlines(), ""]:
        if line.strip():
            lines.append(line.rstrip())
        elif lines:
            yield lines
            lines = []


def labels_run_together(lines: list[str]) -> bool:
    """Whether a labelled part begins anywhere but at the start of its paragraph."""
    found = [(number, match.start()) for number, line in enumerate(lines) for match in LABEL.finditer(line.strip())]
    return bool(found) and found != [(0, 0)]


def table_broken(lines: list[str]) -> bool:
    """Whether rows of two columns do not share the second; two spaces behind a long key are no gap."""
    rows = [line for line in lines if not (DRAWN.search(line) or EXAMPLE.match(line))]
    return len({match.end() for line in rows for match in GAP.finditer(line)}) > 1


def numbers_run_together(lines: list[str]) -> bool:
    """Whether the second item of a numbered list does not begin a line."""
    text = "\n".join(line.strip() for line in lines)
    first, second = re.search(r"(?:^|\s)1\. [A-Z]", text), re.search(r"(^|.)\s?2\. [A-Z]", text, re.MULTILINE)
    return first is not None and second is not None and re.search(r"^2\. ", text, re.MULTILINE) is None


Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def documented(node: Documented) -> Iterator[Documented]:
    """A module, class or function and those within it. A walk over every expression would take ten times as long."""
    yield node
    for inner in node.body:
        if isinstance(inner, Documented):
            yield from documented(inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What all modules that are written by hand say of themselves, each with its place."""

    docstrings: tuple[tuple[str, str], ...]
    """Of modules, classes and functions."""
    fields: tuple[tuple[str, str, str], ...]
    """Declarations of fields (``timeout_s: float``) that have a sentence below them, and the sentence."""


@functools.cache
def said() -> Said:
    """Read once. Strings only: trees of that many modules are a heap that the collector walks in all later tests."""
    docstrings: list[tuple[str, str]] = []
    fields: list[tuple[str, str, str]] = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "gen" not in path.parts:
                where, module = str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))
                docstrings.extend((f"{where}:{line}", text) for line, text in docstrings_of(module))
                fields.extend((f"{where}:{line}", field, sentence) for line, field, sentence in fields_of(module))
    return Said(docstrings=tuple(docstrings), fields=tuple(fields))


def docstrings_of(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in documented(module):
        text = ast.get_docstring(node, clean=True)
        if text:
            yield getattr(node, "lineno", 1), text


def fields_of(module: ast.Module) -> Iterator[tuple[int, str, str]]:
    for body in (node.body for node in documented(module) if isinstance(node, ast.ClassDef)):
        for field, below in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and (sentence := sentence_of(below)) is not None:
                yield below.lineno, f"{ast.unparse(field.target)}: {ast.unparse(field.annotation)}", sentence


def sentence_of(node: ast.stmt) -> str | None:
    value = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def test_lists_in_docstrings_read_as_lists() -> None:
    assert len(said().docstrings) > 1_000
    wrong = {
        f"{where} {check.__name__}: {lines[0].strip()[:60]}"
        for where, text in said().docstrings
        for lines in paragraphs(text)
        for check in (labels_run_together, table_broken, numbers_run_together)
        if check(lines)
    }
    assert not wrong, "\n".join(sorted(wrong))


ARTICLES = frozenset({"the", "a", "an", "of", "its", "this", "one"})


def words(text: str) -> set[str]:
    """The words of a sentence, a name or an annotation, without a plural's s."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", text)
    return {word.rstrip("s") for word in re.findall(r"[a-z]+", spaced.replace("_", " ").lower())}


def only_repeats(field: str, sentence: str) -> bool:
    """Whether a field's sentence has no word beyond its name and its type; a typed id says enough by itself."""
    return words(sentence) - ARTICLES <= words(field)


def test_no_sentence_under_a_field_only_repeats_its_name() -> None:
    assert len(said().fields) > 500
    wrong = [f"{where}: {sentence}" for where, field, sentence in said().fields if only_repeats(field, sentence)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("field", "sentence", "repeats"),
    [
        ("key: PartitionKey", "Partition.", True),
        ("topic_id: TopicId", "The topic id.", True),
        ("keys: frozenset[PartitionKey]", "Partitions.", True),
        ("timeout_s: float", "Seconds until it is given up.", False),
        ("leader: BrokerId", "Whom it follows.", False),
    ],
)
def test_what_a_sentence_under_a_field_adds(field: str, sentence: str, repeats: bool) -> None:
    assert only_repeats(field, sentence) is repeats


RUN_TOGETHER = """
    written     the new state stands
    refused     read again, then wait for
    LeaderAndIsr unknown     keep both expired     register anew
"""


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (table_broken, RUN_TOGETHER),
        (labels_run_together, "Goals: order.\nAlgorithm: a queue."),
        (labels_run_together, "Goals: order. Algorithm: a queue."),
        (numbers_run_together, "1. Read. 2. Decide. 3. Write."),
        (numbers_run_together, "Steps: 1. Read.\nThen 2. Decide."),
    ],
)
def test_what_a_formatter_ran_together_is_seen(check, text: str) -> None:
    assert any(check(lines) for lines in paragraphs(text))


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (table_broken, "    one     first\n    two     second, which\n            goes on\n    a long key  third"),
        (labels_run_together, "Goals: order.\n\nAlgorithm: a queue."),
        (numbers_run_together, "1. Read.\n2. Decide."),
    ],
)
def test_lists_that_read_as_lists_pass(check, text: str) -> None:
    assert not any(check(lines) for lines in paragraphs(text))
