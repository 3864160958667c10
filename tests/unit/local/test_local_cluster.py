"""The launcher over stand-ins for the services (real processes, real ports, no store)."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum_local.child import Child
from regnum_local.cluster import LaunchError, LocalCluster, ProcessState
from regnum_local.data_dir import DataDirLock
from regnum_local.identity import ProcessIdentity
from regnum_local.plan import Role, command
from regnum_local.probes import accepts, serves
from regnum_local.restarting import REQUESTS, ask_for_restart, check_restart, serve_requests
from regnum_local.runtime_record import read_record, record_path
from regnum_service.clock import SystemClock
from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_testing.fake_launcher import fake_command
from regnum_testing.waiting import DEADLINE_S, until


@contextlib.asynccontextmanager
async def running(data_dir: Path, modes=None, **options) -> AsyncIterator[tuple[LocalCluster, list[str]]]:
    lines: list[str] = []
    options = {"brokers": 2, "elections": 1, "metadata": 0} | options
    cluster = LocalCluster(data_dir, report=lines.append, make_command=fake_command(modes), **options)
    await cluster.start()
    try:
        yield cluster, lines
    finally:
        await cluster.kill_all()


def states(cluster: LocalCluster) -> dict[str, ProcessState]:
    return {row.name: row.state for row in cluster.status()}


def identities(data_dir: Path) -> dict[str, ProcessIdentity]:
    return dict(read_record(data_dir).processes)


async def test_a_cluster_starts_serves_and_stops(tmp_path):
    async with running(tmp_path) as (cluster, lines):
        assert set(states(cluster).values()) == {ProcessState.RUNNING}
        assert list(states(cluster)) == ["etcd", "election-1", "broker-1", "broker-2"]
        brokers = [row for row in cluster.status() if row.name.startswith("broker")]
        assert cluster.bootstrap == tuple(str(row.addresses["client"]) for row in brokers)
        for row in brokers:
            assert await serves(row.addresses["client"])
            assert ProcessIdentity.of(row.pid).alive()
        record = identities(tmp_path)
        assert set(record) == {"etcd", "election-1", "broker-1", "broker-2"}
        await cluster.stop()
        assert not any(identity.alive() for identity in record.values())
        assert not record_path(tmp_path).exists()
        assert not any("ended" in line or "killed" in line for line in lines)


async def test_the_same_ports_after_a_resume_with_more_brokers(tmp_path):
    async with running(tmp_path) as (cluster, _):
        first = cluster.plan
        await cluster.stop()
    async with running(tmp_path, brokers=3, elections=1) as (cluster, _):
        assert cluster.plan.members[: len(first.members)] == first.members
        assert [row.name for row in cluster.status()][-1] == "broker-3"


async def test_two_launchers_on_one_folder(tmp_path):
    async with running(tmp_path):
        other = LocalCluster(tmp_path, brokers=1, elections=1, metadata=0, make_command=fake_command())
        with pytest.raises(StartRefusedError, match=r"already runs in .*\(pid \d+\).*regnum down"):
            await other.start()
        assert all(identity.alive() for identity in identities(tmp_path).values())


async def test_kill_and_restart_on_the_same_port(tmp_path):
    async with running(tmp_path) as (cluster, lines):
        before = {row.name: row for row in cluster.status()}["broker-1"]
        await cluster.kill("broker-1")
        assert states(cluster)["broker-1"] is ProcessState.EXITED
        assert not await accepts(before.addresses["client"])
        assert "broker-1" not in identities(tmp_path)
        await cluster.restart("broker-1")
        await cluster.wait_healthy("broker-1")
        after = {row.name: row for row in cluster.status()}["broker-1"]
        assert after.addresses == before.addresses
        assert after.pid != before.pid
        assert not any("ended" in line for line in lines)


async def test_restart_ends_a_running_process_first(tmp_path):
    async with running(tmp_path) as (cluster, _):
        old = identities(tmp_path)["broker-2"]
        await cluster.restart("broker-2")
        await cluster.wait_healthy("broker-2")
        assert not old.alive()


async def test_pause_and_resume(tmp_path):
    async with running(tmp_path) as (cluster, _):
        address = cluster.plan.get("broker-1").address("client")
        cluster.pause("broker-1")
        await until(lambda: identities(tmp_path)["broker-1"].state() == "T")
        assert states(cluster)["broker-1"] is ProcessState.PAUSED
        assert not await serves(address)
        cluster.resume("broker-1")
        await cluster.wait_healthy("broker-1")
        assert states(cluster)["broker-1"] is ProcessState.RUNNING


async def test_a_paused_process_is_ended_too(tmp_path):
    async with running(tmp_path) as (cluster, lines):
        paused = identities(tmp_path)["broker-1"]
        cluster.pause("broker-1")
        await cluster.stop()
        assert not paused.alive()
        assert not any("killed" in line for line in lines)


async def test_a_process_that_others_paused_is_called_so_and_ends_in_order(tmp_path):
    async with running(tmp_path) as (cluster, lines):
        broker, election = (identities(tmp_path)[name] for name in ("broker-1", "election-1"))
        for paused in (broker, election):
            paused.send(signal.SIGSTOP)
            await until(lambda paused=paused: paused.state() == "T")
        with pytest.raises(StartRefusedError, match=r"broker-1 is paused \(pid \d+\); give --force"):
            check_restart(cluster.status(), "broker-1", force=False)
        await cluster.restart("broker-1")
        await cluster.wait_healthy("broker-1")
        await cluster.stop()
        assert not broker.alive()
        assert not election.alive()
        assert not any("killed" in line for line in lines)


async def test_a_kill_from_outside_is_reported(tmp_path):
    async with running(tmp_path) as (cluster, lines):
        identities(tmp_path)["broker-2"].send(signal.SIGKILL)
        # Killed from outside: the end of its log explains nothing, so the report is one line.
        await until(
            lambda: (
                lines
                and lines[-1].startswith("broker-2 was killed (SIGKILL); bring it back with: regnum restart broker-2;")
            )
        )
        assert "\n" not in lines[-1]
        await until(lambda: "broker-2" not in identities(tmp_path))
        assert states(cluster)["broker-1"] is ProcessState.RUNNING


async def test_who_asks_for_a_restart_before_the_launcher_looks_is_served_all_the_same(tmp_path):
    async with running(tmp_path) as (cluster, _):
        asked = {"force": True, "launcher_lives": lambda: True, "clock": SystemClock()}
        asking = asyncio.create_task(ask_for_restart(cluster.data_dir, "broker-1", **asked))
        await until(lambda: list((cluster.data_dir / REQUESTS).glob("*.json")))
        before = identities(tmp_path)["broker-1"]
        serving = asyncio.create_task(serve_requests(cluster, SystemClock()))
        async with asyncio.timeout(DEADLINE_S):
            await asking
        serving.cancel()
        assert identities(tmp_path)["broker-1"] != before


async def test_a_log_tail_is_short_also_when_its_lines_are_not(tmp_path):
    log_path = tmp_path / "x.log"
    log_path.write_text("\n".join([*map(str, range(50)), "trace" * 200]))
    child = await Child.start("x", ["/bin/true"], tmp_path / "other.log", tethered=False)
    await child.wait()
    lines = Child("x", child._process, log_path).log_tail().splitlines()
    assert lines[0] == "36"
    assert len(lines) == 15
    assert lines[-1].startswith("tracetrace")
    assert len(lines[-1]) < 310


async def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StartRefusedError, match="choose another folder") as caught:
        await LocalCluster(tmp_path / "file" / "data", make_command=fake_command()).start()
    assert caught.value.exit_status is ExitStatus.FAILED


async def test_a_process_that_cannot_start_ends_everything_and_says_why(tmp_path):
    lines: list[str] = []
    cluster = LocalCluster(
        tmp_path,
        brokers=2,
        elections=1,
        metadata=0,
        report=lines.append,
        make_command=fake_command({"broker-2": "broken"}),
    )
    with pytest.raises(LaunchError, match=r"broker-2 ended with status 3.*(?s:.*)the disk is on fire"):
        await cluster.start()
    assert not [line for line in lines if "ended with" in line], "the error says it already"
    assert not record_path(tmp_path).exists()
    for member in cluster.plan.members:
        assert not await accepts(member.address("client")), member
    DataDirLock.take(tmp_path).release()


async def test_a_port_that_is_taken_before_it_is_bound_is_replaced(tmp_path):
    """Whoever looks for free ports at the same time may choose the same."""
    fake, lines = fake_command(), []
    with socket.socket() as other:

        def late(member, launch):
            if member.name == "broker-1" and not other.getsockname()[1]:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind((member.address("client").host, member.address("client").port))
                other.listen()
            return fake(member, launch)

        cluster = LocalCluster(tmp_path, brokers=2, elections=1, metadata=0, report=lines.append, make_command=late)
        async with cluster:
            taken = other.getsockname()[1]
            assert taken
            assert cluster.plan.get("broker-1").address("client").port != taken
            assert set(states(cluster).values()) == {ProcessState.RUNNING}
            assert [line for line in lines if f":{taken} was taken by another process" in line]
    assert not [line for line in lines if "ended with" in line], "it was mended"


async def test_a_process_that_never_serves_is_a_clear_error(tmp_path):
    # The first that is waited for: of the others a slow machine starts none in a time that a test may wait.
    cluster = LocalCluster(tmp_path, brokers=1, elections=1, metadata=0, make_command=fake_command({"etcd": "mute"}))
    with pytest.raises(LaunchError, match=r"etcd does not serve after 1 s.*(?s:.*)logs"):
        await cluster.start(timeout_s=1.0)
    assert not record_path(tmp_path).exists()


async def test_names_that_do_not_exist(tmp_path):
    async with running(tmp_path) as (cluster, _):
        with pytest.raises(LaunchError, match="no process broker-9; there are: etcd, election-1"):
            await cluster.kill("broker-9")


async def test_an_unreadable_plan_is_not_overwritten(tmp_path):
    (tmp_path / "cluster.json").write_text("{")
    cluster = LocalCluster(tmp_path, make_command=fake_command())
    with pytest.raises(LaunchError, match=r"cannot read .*cluster.json"):
        await cluster.start()
    assert (tmp_path / "cluster.json").read_text() == "{"


async def test_the_embedded_etcd_is_a_real_one(tmp_path):
    """The one test here with a real store: it starts, serves, ends on SIGTERM and keeps its files."""
    fake = fake_command()

    def mixed(member, launch):
        return command(member, launch) if member.role is Role.ETCD else fake(member, launch)

    for _ in range(2):
        cluster = LocalCluster(tmp_path, brokers=1, elections=1, metadata=0, make_command=mixed)
        async with cluster:
            etcd = identities(tmp_path)["etcd"]
        assert not etcd.alive()
    assert (tmp_path / "etcd" / "member").is_dir()


async def test_a_restart_that_the_machine_does_not_allow_is_answered_and_the_launcher_goes_on(tmp_path):
    async with running(tmp_path) as (cluster, _):
        logs = cluster.data_dir / "logs"
        asked = {"force": True, "launcher_lives": lambda: True, "clock": SystemClock()}
        serving = asyncio.create_task(serve_requests(cluster, SystemClock()))
        logs.rename(tmp_path / "elsewhere")
        logs.write_text("a file where the folder of logs was")
        with pytest.raises(StartRefusedError, match="the machine does not let it start"):
            async with asyncio.timeout(DEADLINE_S):
                await ask_for_restart(cluster.data_dir, "broker-1", **asked)
        assert not serving.done()
        logs.unlink()
        (tmp_path / "elsewhere").rename(logs)
        async with asyncio.timeout(DEADLINE_S):
            await ask_for_restart(cluster.data_dir, "broker-1", **asked)
        serving.cancel()
        assert states(cluster)["broker-1"] is ProcessState.RUNNING


async def test_a_cluster_stops_in_order_though_nobody_reads_what_it_reports(tmp_path):
    def gone(_line: str) -> None:
        raise BrokenPipeError("the terminal is gone")

    cluster = LocalCluster(tmp_path, brokers=1, elections=1, metadata=0, report=gone, make_command=fake_command())
    await cluster.start()
    record = identities(tmp_path)
    await cluster.stop()
    assert not any(identity.alive() for identity in record.values())
    assert not record_path(tmp_path).exists()
