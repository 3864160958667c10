"""The profile file."""

import fcntl
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from regnum_local.identity import ProcessIdentity
from regnum_local.profile import (
    Profile,
    ProfileError,
    leave_profile,
    profile_path,
    read_profile,
    remove_profile,
    write_profile,
)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "conf" / "regnum" / "profile.json"


def profile(data_dir: Path) -> Profile:
    return Profile(
        bootstrap=("127.0.0.1:15001", "127.0.0.1:15002"),
        elections=("127.0.0.1:15003",),
        coordination="etcd://127.0.0.1:15004",
        data_dir=data_dir,
        launcher=ProcessIdentity.of_self(),
    )


def test_written_read_removed(path, tmp_path):
    assert read_profile(path) is None
    write_profile(profile(tmp_path), path)
    assert read_profile(path) == profile(tmp_path)
    assert read_profile(path).is_current()
    assert remove_profile(tmp_path, path)
    assert read_profile(path) is None
    assert not remove_profile(tmp_path, path)


def test_the_profile_of_another_cluster_stays(path, tmp_path):
    write_profile(profile(tmp_path / "a"), path)
    assert not remove_profile(tmp_path / "b", path)
    assert read_profile(path) is not None


def test_of_two_starts_at_once_one_has_the_commands_and_the_other_hears_of_it(path, tmp_path, monkeypatch):
    """The place is looked at and taken in one step."""
    monkeypatch.setenv("REGNUM_PROFILE", str(path))
    path.parent.mkdir(parents=True)
    first, second = profile(tmp_path / "first"), profile(tmp_path / "second")
    heard: list[Profile | None] = []
    starting = threading.Thread(target=lambda: heard.append(leave_profile(second)))
    folder = os.open(path.parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    starting.start()
    starting.join(0.05)
    assert not path.exists(), "the second waits for the first, which has looked and not written yet"
    write_profile(first, path)
    os.close(folder)
    starting.join()
    assert heard == [first]
    assert read_profile(path) == first


def test_a_profile_whose_launcher_is_gone_is_not_current(tmp_path):
    gone = replace(ProcessIdentity.of_self(), start_ticks=1)
    assert not replace(profile(tmp_path), launcher=gone).is_current()


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"version": 1}', '{"version": 9, "bootstrap": []}'])
def test_an_unreadable_profile_says_what_to_do(path, text):
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ProfileError, match=f"{path}.*remove the file"):
        read_profile(path)


def test_where_the_profile_is():
    assert profile_path({"REGNUM_PROFILE": "/p.json", "XDG_CONFIG_HOME": "/c"}) == Path("/p.json")
    assert profile_path({"XDG_CONFIG_HOME": "/c"}) == Path("/c/regnum/profile.json")
    assert profile_path({}) == Path.home() / ".config" / "regnum" / "profile.json"
