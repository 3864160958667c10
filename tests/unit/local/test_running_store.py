"""A store that runs elsewhere is asked before anything is started, and what is wrong with it is said at once."""

import asyncio
import json
from pathlib import Path

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import InvalidRequest
from regnum_coordination.port import SessionState
from regnum_local.belonging import clusters_in
from regnum_local.cluster import LocalCluster
from regnum_local.running_store import check_running, shown
from regnum_local.store_choice import StoreRefusedError
from regnum_model.paths import CLUSTER_ID
from regnum_service.errors import ExitStatus
from regnum_testing.ports import unused_port
from regnum_testing.waiting import DEADLINE_S


async def test_the_session_that_asked_is_ended() -> None:
    store = MemoryStore(MemoryServer())

    async def opened(_url: str) -> MemoryStore:
        return store

    await check_running("etcd://h:1", open_session=opened)
    assert store.session_state is SessionState.LOST


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (ValueError("the URL is malformed"), ExitStatus.WRONG_USE),
        (InvalidRequest("the user is not taken"), ExitStatus.WRONG_USE),
        (ModuleNotFoundError("run: pip install 'regnum[zookeeper]'"), ExitStatus.FAILED),
    ],
)
async def test_what_the_driver_says_is_passed_on(failure: Exception, status: ExitStatus) -> None:
    async def refused(_url: str) -> MemoryStore:
        raise failure

    with pytest.raises(StoreRefusedError) as caught:
        await check_running("zookeeper://h:1", open_session=refused)
    assert str(caught.value) == str(failure)
    assert caught.value.exit_status is status


@pytest.mark.parametrize(("found", "says"), [(None, "holds no cluster"), (b"theirs", "is that of cluster theirs")])
async def test_the_store_of_another_cluster_is_refused_before_anything_campaigns_in_it(
    tmp_path: Path, found: bytes | None, says: str
) -> None:
    for broker, cluster in (("broker-1", "ours"), ("broker-2", None)):
        (tmp_path / broker).mkdir()
        (tmp_path / broker / "meta.json").write_text(json.dumps({"version": 1, "cluster_id": cluster}))
    server = MemoryServer()
    if found is not None:
        writer = MemoryStore(server)
        await writer.create(CLUSTER_ID, found, make_parents=True)
        await writer.close()

    async def opened(_url: str) -> MemoryStore:
        return MemoryStore(server)

    assert clusters_in(tmp_path) == {"ours"}
    with pytest.raises(StoreRefusedError, match=says) as caught:
        await check_running("etcd://h:1", holds=clusters_in(tmp_path), open_session=opened)
    assert caught.value.exit_status is ExitStatus.CONFLICT
    if found is not None:
        await check_running("etcd://h:1", holds=frozenset({found.decode()}), open_session=opened)
    await check_running("etcd://h:1", open_session=opened)
    assert not server.sessions()


def test_a_log_directory_that_cannot_be_read_names_no_cluster(tmp_path: Path) -> None:
    for broker, content in (("broker-1", "{"), ("broker-2", "[]"), ("broker-3", '{"cluster_id": 3}')):
        (tmp_path / broker).mkdir()
        (tmp_path / broker / "meta.json").write_text(content)
    (tmp_path / "broker-4").mkdir()
    assert clusters_in(tmp_path) == frozenset()


async def test_nobody_there_is_said_within_seconds_and_nothing_is_remembered(tmp_path: Path) -> None:
    url = f"etcd://127.0.0.1:{unused_port()}/regnum?max_txn_ops=256"
    cluster = LocalCluster(tmp_path, brokers=1, elections=1, metadata=0, coordination=url)
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(StoreRefusedError, match=r"no coordination store answers at etcd://127\.0\.0\.1") as caught:
            await cluster.start()
    assert caught.value.exit_status is ExitStatus.UNAVAILABLE
    assert "max_txn_ops" not in str(caught.value)
    assert not (tmp_path / "cluster.json").exists()


async def test_a_store_whose_program_is_missing_is_not_remembered(tmp_path: Path) -> None:
    def missing(_role: object) -> tuple[str, ...]:
        raise StoreRefusedError("install it")

    with pytest.raises(StoreRefusedError):
        await LocalCluster(tmp_path, coordination="zookeeper", find_store=missing).start()
    assert not (tmp_path / "cluster.json").exists()


async def test_another_store_than_the_folders_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    plan = {"version": 1, "members": [{"role": "etcd", "id": 1, "ports": {"client": 15_000, "peer": 15_001}}]}
    (tmp_path / "cluster.json").write_text(json.dumps(plan))
    with pytest.raises(StoreRefusedError, match="--coordination etcd"):
        await LocalCluster(tmp_path, coordination="zookeeper").start()
    assert json.loads((tmp_path / "cluster.json").read_text()) == plan


def test_what_may_be_secret_is_not_shown() -> None:
    assert shown("etcd://user:secret@h1:2379,h2:2379/p?password_file=/x") == "etcd://h1:2379,h2:2379/p"
