"""What elects, what commits and what deletes is what the tables of docs/invariants.md name, and nothing else."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (
    (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8").partition("## What elects")[2].partition("\n## ")[0]
)
ROOMS = ("services/broker", "services/election", "libs/model")
# They read a state out of a message of the controller's.
READERS = {"orders/reading.py::read", "standby/states.py::state"}


def name_of(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def elects(call: ast.Call) -> bool:
    builds = name_of(call.func) in {"replace", "LeaderAndIsr"}
    return builds and {"leader", "leader_epoch"} <= {keyword.arg for keyword in call.keywords}


def commits(call: ast.Call) -> bool:
    on_partition = isinstance(call.func, ast.Attribute) and "partition" in ast.unparse(call.func.value)
    named = name_of(call.func)
    return (named == "take_high_watermark" and isinstance(call.func, ast.Attribute)) or (
        named == "commit" and on_partition
    )


def deletes(call: ast.Call) -> bool:
    return name_of(call.func) == "delete" and "storage" in ast.unparse(call.func).lower()


KINDS: dict[str, tuple[Callable[[ast.Call], bool], str]] = {
    "What elects": (elects, "leader="),
    "What commits": (commits, "commit(|take_high_watermark("),
    "What deletes": (deletes, "storage.delete("),
}


def functions(path: Path, is_one: Callable[[ast.Call], bool]) -> Iterator[str]:
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(
            isinstance(node, ast.Call) and is_one(node) for node in ast.walk(function)
        ):
            yield f"{path.parent.name}/{path.name}::{function.name}"


@pytest.mark.parametrize("kind", KINDS)
def test_each_table_names_all_functions_that_do_it(kind: str) -> None:
    is_one, needles = KINDS[kind]
    files = [
        path
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if any(needle in path.read_text(encoding="utf-8") for needle in needles.split("|"))
    ]
    found = {function for path in files for function in functions(path, is_one)} - READERS
    # ``commit`` itself is how a leader's own ``advance`` moves it.
    found.discard("replication/partition.py::commit")
    table = PAGE.partition(f"**{kind}**")[2].partition("\n**")[0]
    assert found == set(re.findall(r"^\| `([\w/]+\.py::\w+)`", table, re.MULTILINE))


def test_every_mutant_that_is_named_exists() -> None:
    files = (ROOT / "libs/testing/regnum_testing/simulation/mutants").glob("*.py")
    texts = [path.read_text(encoding="utf-8") for path in files]
    known = {name for text in texts for name in re.findall(r'Mutant\(\s*name="([a-z-]+)"', text)}
    cells = re.findall(r"\| ([^|\n]*) \|$", PAGE, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`([a-z-]+)`", cell)}
    assert named <= known
    assert len(named) > 15
