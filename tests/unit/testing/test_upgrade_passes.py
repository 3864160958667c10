"""The parts of the upgrade judge: in which order processes are replaced, and how another release is run beside this."""

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from regnum_local.plan import PORT_NAMES, STORES, Launch, Member, Role
from regnum_testing.upgrades.__main__ import main
from regnum_testing.upgrades.judging import PASSED_ON_MIN, Found, ended
from regnum_testing.upgrades.passes import order_of
from regnum_testing.upgrades.release import OtherRelease, ReleaseError, given, newest_tag, unpack, without

MEMBERS = tuple(
    Member(role=role, id=id, ports={"client": 1, "internal": 2, "lifeline": 3, "metrics": 4, "peer": 5})
    for role, count in ((Role.ETCD, 1), (Role.ELECTION, 3), (Role.METADATA, 2), (Role.QUOTA, 2), (Role.BROKER, 3))
    for id in range(1, count + 1)
)
LAUNCH = Launch(python="python", store=["etcd"], data_dir=Path("/c"), coordination="etcd://h:1", extra={})


def names(**options: bool) -> list[str]:
    return [member.name for member in order_of(MEMBERS, controller=2, **options)]


def test_up_goes_from_those_who_tell_to_those_who_are_told_and_the_controller_is_the_last_of_its_kind() -> None:
    assert names() == [
        *("metadata-1", "metadata-2", "quota-1", "quota-2"),
        *("election-1", "election-3", "election-2"),
        *("broker-3", "broker-2", "broker-1"),
    ]


def test_down_goes_the_other_way_and_the_store_is_left_alone() -> None:
    roles = [member.role for member in order_of(MEMBERS, controller=2, down=True)]
    assert list(dict.fromkeys(roles)) == [Role.BROKER, Role.ELECTION, Role.QUOTA, Role.METADATA]
    assert names(down=True)[3:6] == ["election-1", "election-3", "election-2"]


@pytest.mark.parametrize("role", [role for role in Role if role not in STORES])
def test_the_flags_of_every_listener_are_asked_for_in_the_other_release(role: Role) -> None:
    assert given(role) >= {f"--{listener}-listen" for listener in PORT_NAMES[role]}


def test_the_page_says_the_same_order() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operations" / "upgrades.md").read_text(encoding="utf-8")
    steps = [
        page.index(f"| {number} | {role}") for number, role in enumerate(("metadata", "quota", "election", "broker"), 1)
    ]
    assert steps == sorted(steps)


def test_flags_that_the_other_release_does_not_know_go_with_their_values() -> None:
    line = ["python", "-m", "x", "--a", "1", "--b", "2", "--c", "3"]
    assert without(line, frozenset({"--b"})) == ["python", "-m", "x", "--a", "1", "--c", "3"]
    assert without(line, frozenset({"--a", "--c"})) == ["python", "-m", "x", "--b", "2"]
    assert without(line, frozenset()) == line


def test_a_process_of_the_other_release_finds_its_own_packages_first_and_the_store_is_nobodys() -> None:
    other = OtherRelease(
        ref="v1",
        commit="c",
        folders=(Path("/o/libs"), Path("/o/services")),
        unknown={Role.QUOTA: frozenset({"--metrics-listen"})},
    )
    quota = next(member for member in MEMBERS if member.role is Role.QUOTA)
    line = other.command(quota, LAUNCH)
    assert line[:3] == ["/usr/bin/env", "PYTHONPATH=/o/libs:/o/services", "python"]
    assert "regnum_quota" in line
    assert "--metrics-listen" not in line
    assert other.command(MEMBERS[0], LAUNCH)[0] == "etcd"


def git(at: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(at), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    at = tmp_path / "repository"
    at.mkdir()
    git(at, "init", "-q")
    git(at, "commit", "-q", "--allow-empty", "-m", "one")
    return at


async def test_the_newest_release_below_this_commit_is_taken(repository: Path) -> None:
    git(repository, "tag", "v0.1.0")
    git(repository, "commit", "-q", "--allow-empty", "-m", "two")
    git(repository, "tag", "v0.2.0")
    assert await newest_tag(repository) == "v0.1.0", "a release is not upgraded to itself"
    git(repository, "commit", "-q", "--allow-empty", "-m", "three")
    assert await newest_tag(repository) == "v0.2.0"


async def test_a_checkout_without_a_release_is_refused_with_words(repository: Path, tmp_path: Path) -> None:
    git(repository, "commit", "-q", "--allow-empty", "-m", "two")
    with pytest.raises(ReleaseError, match=r"has no tag v\*.*--from REF"):
        await newest_tag(repository)
    with pytest.raises(ReleaseError, match="does not know 'v9'"):
        await unpack("v9", tmp_path, python=sys.executable, repository=repository)


def test_the_command_refuses_an_unknown_release_with_status_2_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--from", "no-such-release", "--dir", str(tmp_path)]) == 2
    assert "no-such-release" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_whatever_harmed_a_record_or_refused_a_call_is_a_fault() -> None:
    well = Found(old="a", store="etcd", acknowledged=1, passed_on=PASSED_ON_MIN, stalls_s={"x": 9.0})
    assert not well.faults
    for found in (
        replace(well, lost=1),
        replace(well, moved=1),
        replace(well, group_missing=1),
        replace(well, failed=["record 1"]),
        replace(well, unequal_replicas=("t-0",)),
        replace(well, commits_went_back=["t-0"]),
        replace(well, refused_changes=["create"]),
        replace(well, passed_on=PASSED_ON_MIN - 1),
    ):
        assert len(found.faults) == 1


async def test_what_a_task_of_the_upgrade_ended_with_before_its_time_is_raised() -> None:
    async def goes_on() -> None:
        await asyncio.Event().wait()

    async def fails() -> None:
        raise ValueError("no more")

    going = asyncio.create_task(goes_on())
    await ended(going)
    assert going.cancelled()
    failed = asyncio.create_task(fails())
    await asyncio.wait({failed})
    with pytest.raises(ValueError, match="no more"):
        await ended(failed)
