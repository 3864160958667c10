"""What clients call stands on nothing that is internal to a cluster, and every file says where its code goes."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import regnum
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto

PUBLIC = {"regnum.admin.v1", "regnum.broker.v1", "regnum.metadata.v1", "regnum.types.v1"}
INTERNAL = {
    "regnum.election.v1",
    "regnum.groups.v1",
    "regnum.propagation.v1",
    "regnum.quota.v1",
    "regnum.replication.v1",
}
PAGE = Path(__file__).parents[3] / "docs" / "api.md"


def files() -> Iterator[FileDescriptor]:
    for folder in map(Path, regnum.__path__):
        for path in sorted(folder.rglob("*_pb2.py")):
            parts = ("regnum", *path.relative_to(folder).with_suffix("").parts)
            yield importlib.import_module(".".join(parts)).DESCRIPTOR


FILES = list(files())


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_a_public_file_needs_public_ones_only(file: FileDescriptor) -> None:
    assert file.package in PUBLIC | INTERNAL, "say whether it is public, here and in docs/api.md"
    if file.package in PUBLIC:
        needed = {one.package for one in file.dependencies}
        assert needed <= PUBLIC | {"google.protobuf", "google.rpc"}


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_every_file_says_where_its_code_goes(file: FileDescriptor) -> None:
    described = FileDescriptorProto()
    file.CopyToProto(described)
    _, area, version = file.package.split(".")
    options = described.options
    assert options.go_package == f"regnum/{area}/{version};{area}{version}"
    assert options.csharp_namespace == f"Regnum.{area.capitalize()}.{version.capitalize()}"
    assert (options.java_package, options.java_multiple_files) == (file.package, True)


def test_the_page_lists_every_service_where_it_belongs() -> None:
    public, internal = PAGE.read_text(encoding="utf-8").split("What the processes of a cluster call", 1)
    for file in FILES:
        for service in file.services_by_name.values():
            listed = public if file.package in PUBLIC else internal
            assert f"| `{service.full_name}` |" in listed, service.full_name
