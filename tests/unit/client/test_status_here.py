"""`regnum status` of a cluster of this machine whose processes its launcher knows nothing of."""

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.metadata.v1 import metadata_pb2
from regnum_local.files import write_json
from regnum_local.identity import ProcessIdentity
from regnum_local.plan import PORT_NAMES, Member, Plan, Role
from regnum_local.runtime_record import RuntimeRecord, write_record
from regnum_model.wire_times import duration_of
from regnum_service.ports import free_port
from regnum_testing.command_here import CommandHere, Ran
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.health = admin_pb2.DescribeHealthResponse(
            complete=True, metadata_processes=[admin_pb2.MetadataProcessHealth(metadata_id=1)]
        )
        yield running


class Folder:
    """The folder of a cluster of this machine whose processes nobody's launcher runs."""

    def __init__(self, path: Path, cluster: FakeCluster) -> None:
        rng = random.Random(5)

        def member(role: Role, id: int, client: int) -> Member:
            others = {name: free_port(rng) for name in PORT_NAMES[role] if name != "client"}
            return Member(role=role, id=id, ports={"client": client, **others})

        elections = (member(Role.ELECTION, id, one.address.port) for id, one in cluster.elections.items())
        brokers = (member(Role.BROKER, id, one.address.port) for id, one in cluster.brokers.items())
        self.path = path
        self.regnum = CommandHere(cluster.bootstrap)
        write_json(path / "cluster.json", Plan(members=(*elections, *brokers)).to_json())

    async def status(self, *arguments: str) -> Ran:
        return await self.regnum("status", "--data-dir", str(self.path), *arguments)


async def test_processes_that_were_started_by_hand_are_asked_like_the_others(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    """The launcher's record knows nothing of them, and they listen where they should."""
    folder = Folder(tmp_path, cluster)
    ran = await folder.status("-o", "json")
    shown = json.loads(ran.out)
    assert (ran.status, ran.err) == (0, "")
    assert {row["state"] for row in shown["processes"]} == {"elsewhere"}
    assert [row["broker"] for row in shown["broker_figures"]] == [1, 2, 3]
    assert shown["controller"] == {"id": 1, "epoch": 1}
    assert shown["quota_figures"] is not None
    table = await folder.status()
    assert "not started by `regnum up`, and not ended by `regnum down`: election-1, election-2" in table.err


async def test_a_broker_that_the_others_name_elsewhere_is_asked_there(cluster: FakeCluster, tmp_path: Path) -> None:
    folder = Folder(tmp_path, cluster)
    plan = Plan.from_json(json.loads((tmp_path / "cluster.json").read_text()))
    moved = [
        replace(one, ports={**one.ports, "client": free_port(random.Random(6))}) if one.name == "broker-3" else one
        for one in plan.members
    ]
    write_json(tmp_path / "cluster.json", Plan(members=tuple(moved)).to_json())
    ran = await folder.status("-o", "json")
    shown = json.loads(ran.out)
    assert [row["broker"] for row in shown["broker_figures"]] == [1, 2, 3]
    assert shown["problems"] == ["not running: broker-3"]
    assert "`regnum restart broker-3` starts one again" in ran.err


async def test_a_process_that_is_paused_is_called_so_and_not_what_does_not_run(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    folder = Folder(tmp_path, cluster)
    paused = await asyncio.create_subprocess_exec("sleep", "60")
    paused.send_signal(signal.SIGSTOP)
    identity = ProcessIdentity.of(paused.pid)
    assert identity is not None
    try:
        await until(lambda: identity.state() == "T")
        write_record(tmp_path, RuntimeRecord(launcher=identity, processes={"broker-3": identity}))
        ran = await folder.status("-o", "json")
        assert ran.status == 5
        assert json.loads(ran.out)["problems"] == ["paused: broker-3"]
        assert ran.error["code"] == "PAUSED"
        assert f"`kill -CONT {paused.pid}` lets it go on" in str(ran.error["message"])
        assert "not running" not in ran.err
    finally:
        paused.kill()
        await paused.wait()


async def test_every_problem_is_said_at_once(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.health.troubles.add(trouble=metadata_pb2.PARTITION_TROUBLE_OFFLINE, partitions=2)
    cluster.health.brokers.add(broker_id=2, replicas=7)
    cluster.health.overdue_orders.add(broker_id=1, orders=12, oldest_age=duration_of(14))
    await cluster.brokers[2].stop()
    folder = Folder(tmp_path, cluster)
    problems = json.loads((await folder.status("-o", "json")).out)["problems"]
    table = await folder.status()
    assert table.status == 5
    assert len(problems) == 4
    for problem in problems:
        assert problem in table.err


async def test_where_nobody_can_be_asked_that_is_said(cluster: FakeCluster, tmp_path: Path) -> None:
    folder = Folder(tmp_path, cluster)
    for broker in cluster.brokers.values():
        await broker.stop()
    table = await folder.status()
    assert "what metadata processes and quotas do is not known: no broker of this cluster listens" in table.err
