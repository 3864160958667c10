"""Where protobuf stands between Kafka's socket and the log: in two files, and nowhere in the codec."""

import ast
from collections.abc import Iterator
from pathlib import Path

import regnum_broker.kafka
import regnum_kafka_wire


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{one.name}" for one in node.names)


def files_of(package: object) -> list[Path]:
    (folder,) = package.__path__  # type: ignore[attr-defined]
    return sorted(Path(folder).rglob("*.py"))


def test_the_codec_knows_no_protobuf() -> None:
    files = files_of(regnum_kafka_wire)
    assert len(files) > 50
    found = {name for file in files for name in imported(file) if name.startswith(("google.", "regnum.", "grpc"))}
    assert found == set()


def test_messages_of_the_log_are_made_and_read_in_two_files_of_the_data_path() -> None:
    found = {
        file.name
        for file in files_of(regnum_broker.kafka)
        if file.parent.name == "kafka" and "regnum.broker.v1.log_pb2" in imported(file)
    }
    assert found == {"data.py", "produce_together.py"}
