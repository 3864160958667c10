"""Every test can fail by what it asserts, not only by what it happens to call."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(module: ast.Module) -> list[Function]:
    """All of a module, also those within others and in classes."""
    return [node for node in ast.walk(module) if isinstance(node, Function)]


def called(node: ast.AST) -> Iterator[str]:
    """Names that are called anywhere below: ``f`` for ``f()`` and for ``a.f()``, ``pytest.raises`` as it is written."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            match call.func:
                case ast.Attribute(value=ast.Name(id="pytest"), attr=name):
                    yield f"pytest.{name}"
                case ast.Attribute(attr=name) | ast.Name(id=name):
                    yield name


def asserts(node: Function, helpers: set[str]) -> bool:
    """Whether it asserts: itself, by ``pytest.raises``, by a call of ``assert_...`` or of one of these helpers."""
    return any(isinstance(below, ast.Assert) for below in ast.walk(node)) or any(
        name in {"pytest.raises", "pytest.fail"} | helpers or name.startswith("assert_") for name in called(node)
    )


def without_asserts(source: str) -> list[str]:
    """Names of the tests of a module that assert nothing, with their lines."""
    found = functions(ast.parse(source))
    helpers: set[str] = set()
    while new := {
        one.name
        for one in found
        if not one.name.startswith("test_") and one.name not in helpers and asserts(one, helpers)
    }:
        helpers |= new
    return [f"{one.lineno} {one.name}" for one in found if one.name.startswith("test_") and not asserts(one, helpers)]


def test_every_test_asserts_what_it_promises() -> None:
    modules = sorted(TESTS.rglob("test_*.py"))
    assert len(modules) > 400, "the tests are where this test looks for them"
    found = {str(path.relative_to(TESTS)): without_asserts(path.read_text(encoding="utf-8")) for path in modules}
    assert {path: tests for path, tests in found.items() if tests} == {}


@pytest.mark.parametrize(
    "body",
    [
        "assert f() == 1",
        "with pytest.raises(ValueError):\n        f()",
        "run_measured(f).assert_free()",
        "holds()",
        "World().through()",
        "def inner():\n        assert f()\n    inner()",
    ],
)
def test_these_assert(body: str) -> None:
    helpers = "def holds():\n    assert f()\nclass World:\n    def through(self):\n        holds()\n"
    assert without_asserts(f"{helpers}\ndef test_it():\n    {body}\n") == []


@pytest.mark.parametrize("body", ["f()", "await until(lambda: f())", "for _ in range(3):\n        f()", "holds"])
def test_these_do_not(body: str) -> None:
    helpers = "def holds():\n    assert f()\n"
    assert without_asserts(f"{helpers}\nasync def test_it():\n    {body}\n") == ["4 test_it"]
