"""Every call of every service stands in the table of largest inputs, with tests that there are."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import regnum
from google.protobuf.descriptor import FileDescriptor

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "largest_inputs.md"
ROW = re.compile(r"^\| `(?P<call>[\w.]+/\w+)` \| (?P<input>[^|]+) \| (?P<tests>[^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`(?P<file>[\w/]+\.py)?::(?P<name>\w+)`")


def calls() -> Iterator[str]:
    """``broker.v1.LogService/Fetch`` and so on, of all generated modules."""
    for folder in map(Path, regnum.__path__):
        for path in folder.rglob("*_pb2.py"):
            module = importlib.import_module(".".join(("regnum", *path.relative_to(folder).with_suffix("").parts)))
            described: FileDescriptor = module.DESCRIPTOR
            for service in described.services_by_name.values():
                for method in service.methods:
                    yield f"{service.full_name.removeprefix('regnum.')}/{method.name}"


def rows() -> dict[str, str]:
    return {row["call"]: row["tests"] for row in ROW.finditer(PAGE.read_text(encoding="utf-8"))}


def test_every_call_is_in_the_table() -> None:
    assert sorted(rows()) == sorted(calls())


def test_every_test_that_is_named_is_there() -> None:
    for call, text in rows().items():
        if text == "-":
            continue
        file = ""
        found = list(TEST.finditer(text))
        assert found, call
        for test in found:
            file = test["file"] or file
            source = (ROOT / "tests" / file).read_text(encoding="utf-8")
            assert f"def {test['name']}(" in source, f"{call}: {file}::{test['name']}"
            assert "pytest.mark.alone" in source, f"{file} measures while others run"
