"""The tool that guards generated code."""

from pathlib import Path

import pytest
from regnum_testing.regenerate import Target, differences, generate, generated_files, main, stubs_of, write

PROTO = 'syntax = "proto3";\npackage regenerate.test.v1;\nmessage Thing { string name = 1; }\n'


@pytest.fixture
def target(tmp_path: Path) -> Target:
    sources = tmp_path / "sources"
    (sources / "regenerate_test" / "v1").mkdir(parents=True)
    (sources / "regenerate_test" / "v1" / "thing.proto").write_text(PROTO)
    generated = tmp_path / "generated"
    generated.mkdir()
    return Target(
        sources=sources, below="regenerate_test/*/*.proto", generated=generated, typed=True, called_only=False
    )


def test_missing_stale_and_left_over_files_are_named(target: Target, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    generate(target, fresh)
    names = {"regenerate_test/v1/thing_pb2.py", "regenerate_test/v1/thing_pb2.pyi"}
    assert generated_files(fresh).keys() == names
    assert {Path(name).relative_to(target.generated).as_posix() for name in differences(target, fresh)} == names
    write(target, fresh)
    assert differences(target, fresh) == []
    (target.generated / "regenerate_test/v1/thing_pb2.py").write_text("edited")
    (target.generated / "old_pb2.py").write_text("left over")
    assert differences(target, fresh) == [
        str(target.generated / "old_pb2.py"),
        str(target.generated / "regenerate_test/v1/thing_pb2.py"),
    ]
    write(target, fresh)
    assert differences(target, fresh) == []


def test_of_somebody_elses_services_only_what_calls_them_is_kept() -> None:
    code = """import grpc

if grpc:
    pass


class KVStub(object):
    \"\"\"Calls.\"\"\"


class KVServicer(object):
    def Range(self):
        pass


def add_KVServicer_to_server(servicer, server):
    pass


# This class is part of an EXPERIMENTAL API.
class KV(object):
    pass


class LeaseStub(object):
    pass
"""
    kept = stubs_of(code)
    assert [line for line in kept.splitlines() if line.startswith(("class", "def", "import"))] == [
        "import grpc",
        "class KVStub(object):",
        "class LeaseStub(object):",
    ]
    assert "Servicer" not in kept
    assert "EXPERIMENTAL" not in kept


def test_wrong_use() -> None:
    assert main(["--wrote"]) == 2
