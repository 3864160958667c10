"""No message of protobuf stands between Kafka's socket and the log: not in the codec, the door, or the handlers."""

import ast
from collections.abc import Iterator
from pathlib import Path

import regnum_broker
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


def path_of(module: str) -> Path | None:
    """The file of a module, or of a package; None: it is neither, but something in one."""
    place = Path(regnum_broker.__file__).parent.joinpath(*module.split(".")[1:])
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if file.exists():
            return file
    return None


def reached(*modules: str) -> dict[str, set[str]]:
    """What modules import, and those of the rooms that serve clients which they reach, by module."""
    found: dict[str, set[str]] = {}
    left = list(modules)
    while left:
        module = left.pop()
        file = path_of(module)
        if module not in found and file is not None:
            found[module] = set(imported(file))
            names = {one for name in found[module] for one in (name, name.rpartition(".")[0])}
            left += (one for one in names if one.startswith(("regnum_broker.kafka.", "regnum_broker.serving.")))
    return found


def test_nothing_between_the_socket_and_the_log_knows_a_message_of_the_log() -> None:
    found = reached(
        "regnum_broker.kafka.connection", "regnum_broker.kafka.data", "regnum_broker.kafka.produce_together"
    )
    assert {
        "regnum_broker.serving.calls.log",
        "regnum_broker.serving.calls.rights",
        "regnum_broker.serving.produce",
        "regnum_broker.serving.produce_appends",
        "regnum_broker.serving.fetching.reading",
        "regnum_broker.serving.fetching.offsets",
    } <= found.keys()
    messages = {"regnum.broker.v1.log_pb2", "regnum.broker.v1.producer_pb2"}
    assert {module for module, names in found.items() if names & messages} == set()


def test_messages_of_the_log_become_values_in_one_file_of_the_other_door() -> None:
    folder = Path(regnum_broker.__file__).parent / "servicers"
    values = ("regnum_broker.serving.produce_requests.", "regnum_broker.serving.fetching.requests.")
    makers = {
        file.name
        for file in folder.glob("*.py")
        if "regnum.broker.v1.log_pb2" in imported(file) and any(name.startswith(values) for name in imported(file))
    }
    assert makers == {"log_messages.py"}
