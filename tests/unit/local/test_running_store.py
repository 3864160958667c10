"""A store that runs elsewhere is asked before anything is started, and what is wrong with it is said at once."""

import asyncio
import json
from pathlib import Path

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import InvalidRequest
from regnum_coordination.port import SessionState
from regnum_local.cluster import LocalCluster
from regnum_local.running_store import check_running, shown
from regnum_local.store_choice import StoreRefusedError
from regnum_service.errors import ExitStatus
from regnum_testing.ports import unused_port


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


async def test_nobody_there_is_said_within_seconds_and_nothing_is_remembered(tmp_path: Path) -> None:
    url = f"etcd://127.0.0.1:{unused_port()}/regnum?max_txn_ops=256"
    cluster = LocalCluster(tmp_path, brokers=1, elections=1, metadata=0, coordination=url)
    async with asyncio.timeout(20):
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
