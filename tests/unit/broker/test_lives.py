"""Disks and stores that go back, copies of a directory, disks that fail (S10, S13, traces T8 and T9)."""

import errno
import json
import shutil
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import grpc
import pytest
from regnum.replication.v1 import control_pb2
from regnum_broker.log.errors import DirectoryFailedError
from regnum_broker.log.life import KnownLives
from regnum_model import paths
from regnum_model.ids import BrokerId
from regnum_model.nodes.lives import LifeNode, WentBackNode
from regnum_service.errors import RegnumError, StartRefusedError
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.disk import FaultyDisk
from regnum_testing.waiting import eventually, within

ME = BrokerId(1)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path)
    await made.begin()
    yield made
    await made.close()


async def log_id(world: BrokerWorld, id: int = 1) -> str:
    return (await world.membership(id)).log_id


async def life(world: BrokerWorld) -> LifeNode:
    return LifeNode.decode((await world.store.get(paths.broker_life(ME))).data)


async def went_back(world: BrokerWorld) -> WentBackNode | None:
    (node,) = await world.store.get_many([paths.WENT_BACK], current=True)
    return None if node is None else WentBackNode.decode(node.data)


async def fits(world: BrokerWorld) -> bool:
    lives = world.brokers[ME].broker.lives
    assert lives is not None
    return await lives.fits_now(world.store)


async def begin_life(world: BrokerWorld, id: int = 1) -> None:
    """What happens once a minute."""
    running = world.brokers[BrokerId(id)].broker
    identity = running.fence.identity
    assert identity is not None
    assert running.lives is not None
    await running.lives.begin(world.store, identity)


async def test_each_start_and_each_minute_is_a_life_and_the_log_stays_the_same(world: BrokerWorld) -> None:
    await world.start(1)
    log, first = await log_id(world), await life(world)
    await begin_life(world)
    second = await life(world)
    assert (first.life.count, second.life.count, second.life.id) == (1, 2, first.life.id)
    await world.stop(1)
    await world.start(1)
    assert await log_id(world) == log
    assert (await life(world)).life.count == 3
    assert await went_back(world) is None


async def test_t8_a_directory_that_was_put_back_is_another_log(world: BrokerWorld, tmp_path: Path) -> None:
    """1 stopped in order. 2 its volume is copied. 3 it runs on. 4 the copy is put back: it must lead nothing by it."""
    await world.start(1)
    log = await log_id(world)
    await world.stop(1)
    shutil.copytree(tmp_path / "broker-1", tmp_path / "copy")
    await world.start(1)
    assert await log_id(world) == log
    await world.stop(1)
    shutil.rmtree(tmp_path / "broker-1")
    shutil.copytree(tmp_path / "copy", tmp_path / "broker-1")
    await world.start(1)
    renewed = await log_id(world)
    assert renewed != log
    assert await fits(world), "the store is the newer one of the two"
    await world.stop(1)
    await world.start(1)
    assert await log_id(world) == renewed
    assert await went_back(world) is None


async def test_a_directory_from_before_lives_beside_a_store_that_knows_one_is_another_log(
    world: BrokerWorld, tmp_path: Path
) -> None:
    await world.start(1)
    log = await log_id(world)
    await world.stop(1)
    (tmp_path / "broker-1" / "life").unlink()
    await world.start(1)
    assert await log_id(world) != log
    assert not await fits(world)


async def test_a_new_disk_is_another_log_and_one_that_comes_back_after_it_deletes_no_stray(
    world: BrokerWorld, tmp_path: Path
) -> None:
    await world.start(1)
    log = await log_id(world)
    await world.stop(1)
    (tmp_path / "broker-1").rename(tmp_path / "former")
    await world.start(1)
    renewed = await log_id(world)
    assert renewed != log
    assert await fits(world), "a disk that is new holds nothing that a later store knew"
    await world.stop(1)
    shutil.rmtree(tmp_path / "broker-1")
    (tmp_path / "former").rename(tmp_path / "broker-1")
    await world.start(1)
    assert await log_id(world) not in {log, renewed}
    assert not await fits(world), "the store may be from when the other disk was in"


async def test_the_first_start_with_lives_keeps_the_log(world: BrokerWorld, tmp_path: Path) -> None:
    """A directory and a store of release 0.1.0; it also ran in between and rewrote what it knows of."""
    await world.start(1)
    log = await log_id(world)
    await world.stop(1)
    (tmp_path / "broker-1" / "life").unlink()
    await world.store.delete(paths.broker_life(ME), version=None)
    await world.start(1)
    assert await log_id(world) == log


async def test_t9_a_store_that_was_put_back_is_proved_and_moves_nothing(world: BrokerWorld) -> None:
    await world.start(1, 2)
    await world.store.create(paths.CONTROLLER_EPOCH, b"7")
    await world.store.create(paths.CONTROLLER, b"{}")
    snapshot = world.server.snapshot()
    log = await log_id(world)
    await world.stop(1)
    await world.start(1)
    before = await world.store.get(paths.CONTROLLER_EPOCH)
    for id in (1, 2):
        await world.stop(id)
    world.server.put_back(snapshot)
    await world.renew_session()
    await world.start(1)
    proof = await went_back(world)
    assert proof is not None
    assert proof.broker == 1
    assert "knows life 2" in proof.proof
    assert await log_id(world) == log
    # Whoever reigned is deposed, and writes nothing that it decided before.
    epoch = await world.store.get(paths.CONTROLLER_EPOCH)
    assert (epoch.data, epoch.stat.version) == (before.data, before.stat.version + 1)
    assert await world.store.exists(paths.CONTROLLER) is None
    # Neither this broker nor one that proves nothing carries an order out.
    await world.start(2)
    for id in (1, 2):
        await eventually(partial(stands, world, id), what="a broker that knows")
        with pytest.raises(RegnumError, match="put back"):
            await world.elect(id, [id], epoch=3)
        epoch_, _ = await world.registration(id)
        with pytest.raises(grpc.RpcError, match="put back"):
            await world.control(id).StopReplica(
                control_pb2.StopReplicaRequest(
                    controller_id=1,
                    controller_epoch=1,
                    broker_epoch=epoch_,
                    partitions=[
                        control_pb2.StopReplicaPartition(
                            topic="t", topic_id=TOPIC_ID, partition=0, leader_epoch=9, delete=True
                        )
                    ],
                )
            )


async def stands(world: BrokerWorld, id: int) -> bool:
    return world.brokers[BrokerId(id)].broker.went_back.stands


async def test_t9_a_leader_that_runs_leads_on_without_a_registration(world: BrokerWorld) -> None:
    await world.start(1)
    snapshot = world.server.snapshot()
    await world.elect(1, [1], epoch=1)
    await begin_life(world)
    world.server.put_back(snapshot)
    await world.renew_session()

    await eventually(partial(stands, world, 1), what="the proof")
    assert await world.store.exists(paths.broker_id(ME)) is None
    assert world.brokers[ME].leads()
    assert (await world.produce(1, batch_of(b"on"))).error_code == 0


async def test_a_broker_that_ran_through_a_restore_ends(world: BrokerWorld) -> None:
    """It may lead without a registration, so nothing else would tell whoever restores that it still runs."""
    await world.start(1)
    node = WentBackNode(broker=ME, proof="a test", at_ms=1)
    await world.store.create(paths.WENT_BACK, node.encode())
    await eventually(partial(stands, world, 1), what="a broker that knows")
    await world.store.delete(paths.WENT_BACK, version=None)
    running = world.brokers[ME]

    async def failed() -> bool:
        return running.supervisor.failure is not None

    await eventually(failed, what="the broker at its end")
    assert isinstance(running.supervisor.failure, StartRefusedError)
    assert "restored while this broker ran" in str(running.supervisor.failure)


async def test_t9_is_found_in_the_minute_by_a_broker_whose_session_lives_on(world: BrokerWorld) -> None:
    await world.start(1)
    earlier = await world.store.get(paths.broker_life(ME))
    await begin_life(world)
    await begin_life(world)
    now = await world.store.get(paths.broker_life(ME))
    await world.store.set(paths.broker_life(ME), earlier.data, version=now.stat.version)
    await begin_life(world)
    assert await went_back(world) is not None


async def test_a_broker_that_leads_nothing_proves_it_at_its_next_registration(world: BrokerWorld) -> None:
    """1 registered. 2 the store is copied. 3 it registers anew. 4 the copy is put back, and every session ends."""
    await world.start(1)
    snapshot = world.server.snapshot()
    epoch, _ = await world.registration(1)
    running = world.brokers[ME]
    session = running.sessions[-1]
    world.server.expire(session)

    async def again() -> bool:
        return running.broker.fence.identity is not None and running.broker.fence.identity.broker_epoch > epoch

    await eventually(again, what="another registration")
    world.server.put_back(snapshot)
    await world.renew_session()

    async def proved() -> bool:
        return await went_back(world) is not None

    await eventually(proved, what="the proof")
    proof = await went_back(world)
    assert proof is not None
    assert "knows life 2" in proof.proof


async def test_a_forgotten_directory_is_another_log_and_deletes_no_stray(world: BrokerWorld) -> None:
    await world.start(1)
    log = await log_id(world)
    assert await fits(world)
    await world.stop(1)
    await world.store.delete(paths.broker_life(ME), version=None)
    await world.start(1)
    assert await log_id(world) != log
    assert not await fits(world)
    await world.stop(1)
    await world.start(1)
    assert await fits(world)


async def test_under_another_tree_id_the_log_goes_on(world: BrokerWorld) -> None:
    """What `regnum restore` leaves: no lives, and a tree id of its own."""
    await world.start(1)
    log = await log_id(world)
    await world.stop(1)
    await world.store.delete(paths.broker_life(ME), version=None)
    await world.store.create(paths.TREE_ID, b"restored", make_parents=True)
    await world.start(1)
    assert await log_id(world) == log
    assert await went_back(world) is None


async def test_a_tree_from_before_a_restore_is_one_that_went_back(world: BrokerWorld) -> None:
    await world.start(1)
    former = await world.store.get(paths.broker_life(ME))
    await world.stop(1)
    await world.store.delete(paths.broker_life(ME), version=None)
    await world.store.create(paths.TREE_ID, b"restored", make_parents=True)
    await world.start(1)
    await world.stop(1)
    await world.store.delete(paths.TREE_ID, version=None)
    await world.store.delete(paths.broker_life(ME), version=None)
    await world.store.create(paths.broker_life(ME), former.data)
    await world.start(1)
    assert await went_back(world) is not None


async def new_disk_after_a_restore(world: BrokerWorld, folder: Path) -> KnownLives:
    """Start a broker with a new disk in a tree that was restored; what its disk knows until the store has confirmed."""
    await world.store.create(paths.TREE_ID, b"restored", make_parents=True)
    await world.start(1)
    former = await life(world)
    await world.stop(1)
    shutil.rmtree(folder / "broker-1")
    await world.start(1)
    taken = await life(world)
    return KnownLives().proposing(taken.life, found=former.life, tree="restored", fits=False)


async def test_a_new_disk_that_is_cut_off_at_its_registration_after_a_restore_proves_nothing(
    world: BrokerWorld, tmp_path: Path
) -> None:
    """1 the tree was restored. 2 the disk is a new one. 3 the store takes its first life, and the broker is killed."""
    proposed, log = await new_disk_after_a_restore(world, tmp_path), await log_id(world)
    await world.stop(1)
    (tmp_path / "broker-1" / "life").write_bytes(proposed.encode())
    await world.start(1)
    assert await went_back(world) is None
    assert await log_id(world) == log


async def test_a_new_disk_that_fails_at_its_registration_after_a_restore_proves_nothing(
    world: BrokerWorld, tmp_path: Path
) -> None:
    """1 the tree was restored. 2 the disk is a new one. 3 the store takes its first life, and then the disk fails."""
    proposed, log = await new_disk_after_a_restore(world, tmp_path), await log_id(world)
    lives = world.brokers[ME].broker.lives
    assert lives is not None
    storage = lives._storage
    await storage.write(lambda: storage.directory.proof.note_lives(proposed))
    await lives.end()
    await world.stop(1)
    await world.start(1)
    assert await went_back(world) is None
    assert await log_id(world) != log


async def test_a_process_with_a_copy_of_the_directory_is_found(world: BrokerWorld, tmp_path: Path) -> None:
    """1 runs. 2 its volume is cloned, and a broker of its id is started with the clone. 3 the first one finds it."""
    await world.start(1)
    first, log = world.brokers[ME], await log_id(world)
    shutil.copytree(tmp_path / "broker-1", tmp_path / "clone")
    path, world.root = world.root, tmp_path / "other"
    world.root.mkdir()
    (tmp_path / "clone").rename(world.root / "broker-1")
    await world.start(1)
    world.root = path

    # At its next registration, or within a minute without one.
    assert first.broker.lives is not None
    with pytest.raises(StartRefusedError, match="another process has a copy of this directory"):
        await first.broker.lives.propose()
    assert await log_id(world) == log
    await first.supervisor.unwind()


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.EUCLEAN])
async def test_a_disk_that_cannot_note_that_it_failed_is_another_log(
    world: BrokerWorld, tmp_path: Path, code: int
) -> None:
    """1 records are in the page cache. 2 the disk fails, and takes no note. 3 what was on it comes back, same boot."""
    disk = world.disks[1] = FaultyDisk()
    await world.start(1)
    log = await log_id(world)
    await world.elect(1, [1], epoch=1)
    assert (await world.produce(1, batch_of(b"kept"))).error_code == 0
    shutil.copytree(tmp_path / "broker-1", tmp_path / "device")
    disk.fail_writes = code
    running = world.brokers[ME]
    assert (await world.produce(1, batch_of(b"lost"))).error_code != 0

    async def failed() -> bool:
        return running.supervisor.failure is not None

    await eventually(failed, what="the broker at its end")
    del world.brokers[ME], world.disks[1]
    assert running.broker.lives is not None
    await running.broker.lives.end()
    with pytest.raises(DirectoryFailedError):
        # And not that another process has a copy: what the store has is its own.
        await running.broker.lives.propose()
    await within(running.supervisor.unwind())
    assert (await life(world)).life.count == 2
    shutil.rmtree(tmp_path / "broker-1")
    shutil.copytree(tmp_path / "device", tmp_path / "broker-1")
    await world.start(1)
    assert await log_id(world) != log
    assert await fits(world), "the store is the newer one of the two"


async def test_a_life_that_nobody_can_read_proves_nothing(world: BrokerWorld) -> None:
    await world.start(1)
    log = await log_id(world)
    await world.stop(1)
    await world.store.set(paths.broker_life(ME), b"{", version=None)
    await world.start(1)
    assert await log_id(world) != log
    assert (await life(world)).life.count == 2
    assert not await fits(world)


async def test_a_registration_with_a_lost_answer_is_no_sign_of_anything(world: BrokerWorld, tmp_path: Path) -> None:
    """Both points between the writes: the store has the proposed life, or has it not, and the process is gone."""
    await world.start(1)
    log = await log_id(world)
    await world.stop(1)
    file = tmp_path / "broker-1" / "life"
    known = KnownLives.decode(file.read_bytes())
    assert known is not None
    node = await world.store.get(paths.broker_life(ME))
    proposed = LifeNode(life=type(known.confirmed)(id="gone", count=9), directory=LifeNode.decode(node.data).directory)
    file.write_bytes(known.proposing(proposed.life, found=known.confirmed, tree=None, fits=True).encode())
    await world.start(1)
    assert await log_id(world) == log
    await world.stop(1)
    known = KnownLives.decode(file.read_bytes())
    assert known is not None
    assert known.confirmed is not None
    node = await world.store.get(paths.broker_life(ME))
    late = LifeNode(life=type(known.confirmed)(id="gone", count=99), directory=proposed.directory)
    file.write_bytes(known.proposing(late.life, found=known.confirmed, tree=None, fits=True).encode())
    await world.store.set(paths.broker_life(ME), late.encode(), version=node.stat.version)
    await world.start(1)
    assert await log_id(world) == log
    assert (await life(world)).life.count == 100


@pytest.mark.parametrize("stop", ["clean", "killed"])
async def test_release_0_1_0_ran_in_between_and_the_log_is_the_same(
    world: BrokerWorld, tmp_path: Path, stop: str
) -> None:
    """It rewrites ``meta.json`` with what it knows, under its own boot id, and neither reads nor writes lives."""
    await world.start(1)
    log = await log_id(world)
    await world.elect(1, [1], epoch=1)
    assert (await world.produce(1, batch_of(b"kept"))).error_code == 0
    await world.stop(1)
    meta = tmp_path / "broker-1" / "meta.json"
    known = ("version", "broker_id", "directory_id", "cluster_id", "log_id", "boot_id")
    content = {name: value for name, value in json.loads(meta.read_bytes()).items() if name in known}
    if stop == "clean":
        # Under another boot; the marker of its clean stop is what proves the log complete.
        content["boot_id"] = "the boot under which 0.1.0 ran"
    else:
        (tmp_path / "broker-1" / "clean-stop").unlink()
    meta.write_text(json.dumps(content))
    await world.start(1)
    assert await log_id(world) == log
    assert await went_back(world) is None
