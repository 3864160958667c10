"""The profile file."""

from dataclasses import replace
from pathlib import Path

import pytest
from regnum_local.identity import ProcessIdentity
from regnum_local.profile import Profile, ProfileError, profile_path, read_profile, remove_profile, write_profile


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
