"""How a process knows its own predecessor (safety rule S5)."""

from pathlib import Path

import structlog
from regnum_service.incarnation import Incarnations


def test_without_a_run_directory_there_is_no_predecessor() -> None:
    incarnations = Incarnations(None, "metadata-1")
    incarnations.remember("a")
    assert incarnations.previous() == frozenset()


def test_the_last_two_incarnations_are_known(tmp_path: Path) -> None:
    for number in "abc":
        Incarnations(tmp_path / "run", "metadata-1").remember(number)
    assert Incarnations(tmp_path / "run", "metadata-1").previous() == {"b", "c"}


def test_processes_that_share_a_folder_do_not_mix(tmp_path: Path) -> None:
    Incarnations(tmp_path, "metadata-1").remember("a")
    assert Incarnations(tmp_path, "metadata-2").previous() == frozenset()


def test_a_note_that_cannot_be_written_or_read_keeps_no_process_from_registering(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    incarnations = Incarnations(tmp_path / "file", "election-1")
    with structlog.testing.capture_logs() as lines:
        incarnations.remember("a")
        assert incarnations.previous() == frozenset()
    assert [line["event"] for line in lines] == [
        "incarnation not read",
        "incarnation not noted",
        "incarnation not read",
    ]
    (tmp_path / "election-1.incarnations").write_bytes(b"\xff\xfe")
    damaged = Incarnations(tmp_path, "election-1")
    assert damaged.previous() == frozenset()
    damaged.remember("b")
    assert damaged.previous() == {"b"}
