"""What comes from outside may be anything: a match over it has a last case, which says so or refuses it."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
OUTSIDE = {"ResetPolicy", "Codec"}
"""Enums of values that come from outside: settings, bits of batches."""


def matches() -> Iterator[tuple[str, ast.Match]]:
    """Of the libraries and the services."""
    for folder in ("libs", "services"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            text = file.read_text()
            if "match " in text and "regnum_testing" not in file.parts:
                for node in ast.walk(ast.parse(text)):
                    if isinstance(node, ast.Match):
                        yield f"{file.relative_to(ROOT)}:{node.lineno}", node


def is_of_outside(node: ast.Match) -> bool:
    """Whether it looks at numbers of the wire, at text, or at what a file or a message holds."""
    for pattern in (part for case in node.cases for part in ast.walk(case.pattern)):
        if isinstance(pattern, ast.MatchMapping):
            return True
        if isinstance(pattern, ast.MatchValue):
            value = pattern.value
            if isinstance(value, ast.Constant):
                return True
            if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
                return value.value.id.endswith("_pb2") or value.value.id in OUTSIDE
    return isinstance(node.subject, ast.Name) and any(
        isinstance(case.pattern, ast.MatchSequence) for case in node.cases
    )


def test_matches_over_what_comes_from_outside_have_a_last_case() -> None:
    looked_at, without = 0, []
    for where, node in matches():
        if not is_of_outside(node):
            continue
        looked_at += 1
        last = node.cases[-1]
        takes_all = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and last.guard is None
        if not takes_all:
            without.append(where)
    assert without == []
    assert looked_at > 20, "the matches are where this test looks for them"
