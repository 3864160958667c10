"""Where the reason of a RegnumError is lost, a comment says why it may be."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = ("libs/client", "libs/service", "libs/local", "services")


def losses(tree: ast.AST) -> Iterator[tuple[int, int]]:
    """First and last line of what drops such an error: no look at it, and it is not raised again."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is not None and "RegnumError" in ast.unparse(node.type):
            within = [part for statement in node.body for part in ast.walk(statement)]
            looked_at = any(isinstance(part, ast.Name) and part.id == node.name for part in within)
            raised = any(isinstance(part, ast.Raise) and part.exc is None for part in within)
            if not (looked_at or raised):
                yield node.lineno, node.body[-1].end_lineno or node.lineno
        if isinstance(node, ast.With) and any("suppress(RegnumError" in ast.unparse(item) for item in node.items):
            yield node.lineno - 1, node.lineno + 1


def test_no_reason_is_lost_without_a_word() -> None:
    silent, found = [], 0
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            text = file.read_text()
            if "RegnumError" in text:
                lines = text.splitlines()
                for first, last in losses(ast.parse(text)):
                    found += 1
                    if not any(line.strip().startswith("#") for line in lines[first - 1 : last]):
                        silent.append(f"{file.relative_to(ROOT)}:{first}")
    assert silent == []
    assert found > 3, "the places are where this test looks for them"
