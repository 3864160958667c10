"""How a process knows its own predecessor (safety rule S5)."""

from pathlib import Path

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
