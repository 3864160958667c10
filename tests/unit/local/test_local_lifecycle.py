"""`regnum up`, `down` and `status` with a launcher in a process of its own, over stand-ins for the services."""

import asyncio
import os
import signal
import socket
import sys

import pytest
from regnum_local.cluster import PLAN, ProcessState
from regnum_local.files import write_json
from regnum_local.identity import ProcessIdentity
from regnum_local.lifecycle import read_status, run_down, run_restart
from regnum_local.plan import PORT_NAMES, Member, Plan, Role
from regnum_local.profile import own_profile_path, read_profile
from regnum_local.protection import Protection, keep, protected_as_before
from regnum_local.runtime_record import read_record
from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_testing.waiting import DEADLINE_S, until

MEMBERS = tuple(
    Member(role=role, id=id, ports=dict.fromkeys(PORT_NAMES[role], 1))
    for role, count in ((Role.ETCD, 1), (Role.ELECTION, 1), (Role.BROKER, 3))
    for id in range(1, count + 1)
)


@pytest.fixture
def profile(tmp_path, monkeypatch):
    path = tmp_path / "profile.json"
    monkeypatch.setenv("REGNUM_PROFILE", str(path))
    return path


@pytest.fixture
async def launch(tmp_path, profile):
    """Starts launchers; whatever the test does, nothing is left."""
    data_dir = tmp_path / "data"
    launchers = []

    async def start(folder=data_dir, **environment):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "regnum_testing.fake_launcher", str(folder)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | environment,
        )
        launchers.append(process)
        async with asyncio.timeout(DEADLINE_S):
            line = await process.stdout.readline()
        return process, line.decode().split()

    start.data_dir = data_dir
    yield start
    for process in launchers:
        if process.returncode is None:
            process.kill()
        await process.communicate()
    for record in filter(None, map(read_record, (data_dir, tmp_path / "the other", tmp_path / "next"))):
        for identity in record.processes.values():
            identity.send(signal.SIGKILL)


async def test_up_leaves_a_profile_and_status_shows_processes(launch, profile):
    process, (word, *bootstrap) = await launch()
    assert word == "ready"
    left = read_profile()
    assert list(left.bootstrap) == bootstrap
    assert left.is_current()
    assert left.launcher.pid == process.pid
    rows = read_status()
    assert [row.name for row in rows] == ["etcd", "election-1", "broker-1", "broker-2"]
    assert {row.state for row in rows} == {ProcessState.RUNNING}
    ProcessIdentity.of(rows[2].pid).send(signal.SIGSTOP)
    await until(lambda: read_status()[2].state is ProcessState.PAUSED)
    ProcessIdentity.of(rows[2].pid).send(signal.SIGCONT)
    assert await run_down() == ["etcd", "election-1", "broker-1", "broker-2"]
    assert await process.wait() == ExitStatus.DONE
    assert not profile.exists()
    assert {row.state for row in read_status(launch.data_dir)} == {ProcessState.EXITED}
    assert not any(ProcessIdentity.of(row.pid) for row in rows)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_stops_everything(launch, profile, signum):
    process, _ = await launch()
    identities = read_record(launch.data_dir).processes.values()
    process.send_signal(signum)
    assert await process.wait() == ExitStatus.DONE
    assert not any(identity.alive() for identity in identities)
    assert not profile.exists()


async def test_a_tethered_cluster_ends_with_a_killed_launcher(launch):
    process, _ = await launch()
    identities = list(read_record(launch.data_dir).processes.values())
    assert all(identity.alive() for identity in identities)
    process.kill()
    await until(lambda: not any(identity.alive() for identity in identities))


async def test_the_next_up_ends_what_a_killed_launcher_left(launch):
    process, _ = await launch(FAKE_TETHERED="no")
    identities = list(read_record(launch.data_dir).processes.values())
    process.kill()
    await process.wait()
    assert all(identity.alive() for identity in identities)
    again, (word, *_) = await launch()
    assert word == "ready"
    assert not any(identity.alive() for identity in identities)
    assert all(row.state is ProcessState.RUNNING for row in read_status(launch.data_dir))
    again.send_signal(signal.SIGTERM)
    _, err = await again.communicate()
    assert b"ended what an earlier run left behind: etcd, election-1, broker-1, broker-2" in err


async def test_down_ends_what_a_killed_launcher_left(launch, profile):
    process, _ = await launch(FAKE_TETHERED="no")
    identities = list(read_record(launch.data_dir).processes.values())
    process.kill()
    await process.wait()
    assert len(await run_down()) == 4
    assert not any(identity.alive() for identity in identities)
    assert not profile.exists()


async def test_a_second_up_on_the_folder_is_refused(launch):
    await launch()
    second, words = await launch()
    assert words == []
    _, err = await second.communicate()
    assert second.returncode != 0
    assert b"already runs" in err


async def test_a_second_up_leaves_the_commands_with_the_first_and_says_how_to_choose(launch, profile, tmp_path):
    await launch()
    other = tmp_path / "the other"
    second, (word, *bootstrap) = await launch(other)
    assert word == "ready"
    assert read_profile().data_dir == launch.data_dir
    assert list(read_profile(own_profile_path(other)).bootstrap) == bootstrap
    second.send_signal(signal.SIGTERM)
    _, err = await second.communicate()
    assert f"export REGNUM_PROFILE='{own_profile_path(other)}'" in err.decode()
    assert read_profile().data_dir == launch.data_dir, "the end of the second takes nothing from the first"
    assert not own_profile_path(other).exists()
    await run_down()
    assert not own_profile_path(launch.data_dir).exists()


async def test_the_profile_of_a_cluster_that_runs_no_more_is_replaced(launch, profile, tmp_path):
    process, _ = await launch()
    process.kill()
    await process.wait()
    await launch(tmp_path / "next")
    assert read_profile().data_dir == tmp_path / "next"


async def test_where_no_profile_can_be_written_the_cluster_runs_and_says_where_its_own_is(launch):
    process, (word, *_) = await launch(REGNUM_PROFILE="/proc/nowhere/profile.json")
    assert word == "ready"
    assert read_profile(own_profile_path(launch.data_dir)).is_current()
    process.send_signal(signal.SIGTERM)
    _, err = await process.communicate()
    assert process.returncode == ExitStatus.DONE
    assert b"the profile /proc/nowhere/profile.json cannot be written" in err
    assert f"export REGNUM_PROFILE={own_profile_path(launch.data_dir)}" in err.decode()


async def test_fewer_processes_than_the_folder_has_are_refused_before_anything_starts(launch, profile):
    write_json(launch.data_dir / PLAN, Plan(members=MEMBERS).to_json())
    refused, words = await launch()
    assert words == []
    _, err = await refused.communicate()
    assert b"3 brokers, 1 election processes" in err
    assert b"leave --brokers out, or give --brokers 3" in err
    assert read_record(launch.data_dir) is None


async def test_a_protected_cluster_comes_back_protected_without_being_asked(launch, profile):
    """Nothing is more easily forgotten than a flag."""
    keep(Protection(tls=True, acl=True), launch.data_dir)
    process, (word, *_) = await launch()
    assert word == "ready"
    process.send_signal(signal.SIGTERM)
    _, err = await process.communicate()
    assert b"has TLS and rights, and comes back with that" in err
    assert protected_as_before(Protection(), launch.data_dir) == Protection(tls=True, acl=True)


async def test_down_and_status_without_a_cluster(tmp_path, profile):
    for call in (run_down, lambda: run_down(tmp_path), lambda: _async(read_status)):
        with pytest.raises(StartRefusedError, match="regnum up") as caught:
            await call()
        assert caught.value.exit_status is ExitStatus.NOT_FOUND


async def _async(function):
    return function()


async def test_a_second_signal_ends_at_once_what_does_not_heed_the_first(launch):
    process, _ = await launch(FAKE_MODES='{"broker-1": "deaf"}')
    identities = read_record(launch.data_dir).processes
    process.send_signal(signal.SIGTERM)
    await until(lambda: not identities["broker-2"].alive())
    assert identities["broker-1"].alive()
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(DEADLINE_S):
        assert await process.wait() == ExitStatus.DONE
    assert not any(identity.alive() for identity in identities.values())


async def test_a_signal_during_the_start_leaves_nothing(launch, profile):
    starting = asyncio.create_task(launch(FAKE_MODES='{"broker-1": "mute"}'))
    await until(lambda: "broker-2" in getattr(read_record(launch.data_dir), "processes", {}))
    record = read_record(launch.data_dir)
    record.launcher.send(signal.SIGINT)
    process, words = await starting
    assert words == []
    assert await process.wait() == 128 + signal.SIGINT
    assert not any(identity.alive() for identity in record.processes.values())
    assert not profile.exists()


async def test_what_was_killed_is_started_again_by_its_launcher(launch):
    process, _ = await launch()
    killed = read_record(launch.data_dir).processes["broker-1"]
    killed.send(signal.SIGKILL)
    await until(lambda: "broker-1" not in read_record(launch.data_dir).processes, "the launcher has seen it")
    row = await run_restart(launch.data_dir, "broker-1")
    assert (row.name, row.state) == ("broker-1", ProcessState.RUNNING)
    assert row.pid != killed.pid
    assert not list((launch.data_dir / "requests").iterdir())
    assert "broker-1" in await run_down(launch.data_dir), "it is the launcher's like the others"
    _, err = await process.communicate()
    assert b"bring it back with: regnum restart broker-1" in err
    assert not ProcessIdentity.of(row.pid)


async def test_what_runs_is_ended_and_started_again_only_by_force(launch):
    await launch()
    before = read_record(launch.data_dir).processes["broker-2"]
    with pytest.raises(StartRefusedError, match="--force") as caught:
        await run_restart(launch.data_dir, "broker-2")
    assert caught.value.exit_status is ExitStatus.CONFLICT
    assert before.alive()
    row = await run_restart(launch.data_dir, "broker-2", force=True)
    assert row.pid != before.pid
    assert not before.alive()


async def test_a_restart_of_nobody_and_in_no_cluster_is_not_found(launch, tmp_path):
    await launch()
    with pytest.raises(StartRefusedError, match="no process broker-9; there are etcd, election-1, broker-1") as caught:
        await run_restart(launch.data_dir, "broker-9")
    assert caught.value.exit_status is ExitStatus.NOT_FOUND
    with pytest.raises(StartRefusedError, match="regnum up") as caught:
        await run_restart(tmp_path / "elsewhere", "broker-1")
    assert caught.value.exit_status is ExitStatus.NOT_FOUND


async def test_a_process_whose_port_somebody_else_has_is_not_started_beside_it(launch):
    await launch()
    (row,) = [row for row in read_status(launch.data_dir) if row.name == "broker-1"]
    ProcessIdentity.of(row.pid).send(signal.SIGKILL)
    await until(lambda: "broker-1" not in read_record(launch.data_dir).processes, "the launcher has seen it")
    place = (row.addresses["client"].host, row.addresses["client"].port)
    with socket.create_server(place), pytest.raises(StartRefusedError, match="started by hand") as caught:
        await run_restart(launch.data_dir, "broker-1")
    assert caught.value.exit_status is ExitStatus.CONFLICT


async def test_a_launcher_that_dies_meanwhile_leaves_nobody_waiting(launch):
    process, _ = await launch()
    process.send_signal(signal.SIGSTOP)
    asking = asyncio.create_task(run_restart(launch.data_dir, "broker-1", force=True))
    await until(lambda: list((launch.data_dir / "requests").glob("*.json")), "it was asked")
    process.kill()
    with pytest.raises(StartRefusedError, match="does not answer") as caught:
        await asking
    assert caught.value.exit_status is ExitStatus.UNAVAILABLE
