"""Descriptors shared by threads."""

import os

import pytest
from regnum_broker.log.disk.descriptors import Descriptors


def is_open(descriptor: int, path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def test_a_file_is_opened_once_and_closed_at_the_end(tmp_path):
    files, path = Descriptors(4), tmp_path / "a"
    first = files.pin(str(path), create=True)
    assert files.pin(str(path)) is first
    files.unpin(first)
    files.unpin(first)
    assert is_open(first.descriptor, path)
    files.drop_all()
    assert not is_open(first.descriptor, path)


@pytest.mark.parametrize("how", ["drop", "drop_all", "evict"])
def test_a_file_in_use_is_closed_by_its_last_user(tmp_path, how):
    files, path = Descriptors(1), tmp_path / "a"
    used = files.pin(str(path), create=True)
    match how:
        case "drop":
            files.drop(str(path))
        case "drop_all":
            files.drop_all()
        case "evict":
            files.unpin(files.pin(str(tmp_path / "b"), create=True))
    assert is_open(used.descriptor, path)
    files.unpin(used)
    assert not is_open(used.descriptor, path)
    files.drop_all()


def test_the_file_used_longest_ago_is_closed_first(tmp_path):
    files = Descriptors(2)
    opened = {}
    for name in ("a", "b", "a", "c"):
        opened[name] = files.pin(str(tmp_path / name), create=True)
        files.unpin(opened[name])
    assert [is_open(opened[name].descriptor, tmp_path / name) for name in "abc"] == [True, False, True]
    files.drop_all()


def test_a_missing_file_is_not_made_by_reading(tmp_path):
    with pytest.raises(FileNotFoundError):
        Descriptors(1).pin(str(tmp_path / "a"))
