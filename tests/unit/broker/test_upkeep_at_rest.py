"""What upkeep costs a broker at rest: nothing that grows with its partitions."""

import errno
from pathlib import Path

from regnum_broker.maintenance import Checkpointing
from regnum_broker.replication.decisions.activity import LOOKS
from regnum_model.ids import BrokerId, PartitionKey
from regnum_testing.disk import FaultyDisk
from regnum_testing.leading_replicas import FOLLOWER, LEADER, FetchingFollower, LeadingReplicas

COUNT = 20


def checkpointing_of(leader: LeadingReplicas, busy: list[frozenset[PartitionKey]]) -> Checkpointing:
    return Checkpointing(replicas=leader.replicas, storage=leader.storage, clock=leader.clock, tell_busy=busy.append)


async def test_new_partitions_bring_no_checkpoint(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with LeadingReplicas(tmp_path, partitions=COUNT, disk=disk) as leader:
        checkpointing = checkpointing_of(leader, [])
        before = disk.writes
        await checkpointing.save()
        assert disk.writes == before
        await FetchingFollower(leader.session()).ask((7, 0))
        await leader.append(7)
        leader.leadership(7).partition.commit(1)
        before = disk.writes
        await checkpointing.save()
        await checkpointing.save()
        assert disk.writes == before + 1
        assert leader.storage.directory.stored_high_watermark(leader.partition(7).key) == 1


async def test_a_checkpoint_looks_at_no_replica_whose_high_watermark_stands(tmp_path: Path) -> None:
    async with LeadingReplicas(tmp_path, partitions=COUNT) as leader:
        checkpointing = checkpointing_of(leader, [])
        assert len(leader.replicas.take_moved()) == COUNT, "what a start found may be less than the checkpoint says"
        assert not leader.replicas.take_moved()
        await leader.append(7)
        leader.leadership(7).partition.commit(1)
        moved = leader.replicas.take_moved()
        assert list(moved) == [leader.partition(7).key]
        leader.replicas.put_back(moved)
        await checkpointing.save()
        assert leader.storage.directory.stored_high_watermark(leader.partition(7).key) == 1
        assert not leader.replicas.take_moved()


async def test_a_high_watermark_for_which_there_was_no_room_is_saved_the_next_time(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with LeadingReplicas(tmp_path, partitions=1, disk=disk) as leader:
        checkpointing = checkpointing_of(leader, [])
        await leader.append()
        leader.partition().commit(1)
        disk.fail_writes = errno.ENOSPC
        await checkpointing.save()
        disk.fail_writes = None
        key = leader.partition().key
        assert leader.storage.directory.stored_high_watermark(key) == 0
        await checkpointing.save()
        assert leader.storage.directory.stored_high_watermark(key) == 1


async def test_a_replica_that_is_gone_is_not_put_back(tmp_path: Path) -> None:
    async with LeadingReplicas(tmp_path, partitions=2) as leader:
        moved = leader.replicas.take_moved()
        leader.replicas.remove(leader.partition(1).key)
        leader.replicas.put_back(moved)
        assert [key.partition for key in leader.replicas.take_moved()] == [0]


async def test_a_high_watermark_that_went_back_to_nothing_is_saved(tmp_path: Path) -> None:
    async with LeadingReplicas(tmp_path, partitions=1) as leader:
        checkpointing = checkpointing_of(leader, [])
        await leader.append()
        leader.partition().commit(1)
        await checkpointing.save()
        leader.partition().truncated(0)
        await checkpointing.save()
        assert leader.storage.directory.stored_high_watermark(leader.partition().key) == 0


async def test_partitions_with_new_records_are_told_of_once_and_for_as_long_as_they_are_busy(tmp_path: Path) -> None:
    told: list[frozenset[PartitionKey]] = []
    async with LeadingReplicas(tmp_path, partitions=COUNT) as leader:
        checkpointing = checkpointing_of(leader, told)
        await checkpointing.save()
        assert told == []
        for end in (1, 2):
            await leader.append(7)
            leader.leadership(7).partition.commit(end)
            await checkpointing.save()
        busy = leader.partition(7).key
        assert told == [{busy}]
        for _ in range(LOOKS - 1):
            await checkpointing.save()
        assert told == [{busy}]
        await checkpointing.save()
        assert told == [{busy}, frozenset()]


async def test_only_leaderships_whose_isr_is_incomplete_are_looked_at_often(tmp_path: Path) -> None:
    async with LeadingReplicas(tmp_path, partitions=COUNT) as leader:
        assert leader.replicas.incomplete() == ()
        alone = leader.lead(3, epoch=1, isr=(LEADER,))
        assert leader.replicas.incomplete() == (alone,)
        both = (LEADER, FOLLOWER)
        state = leader.lead(4, epoch=1).state
        alone.take(state, version=2, now_s=leader.clock.monotonic(), replicas=both, min_insync=1)
        assert leader.replicas.incomplete() == ()
        three = (*both, BrokerId(3))
        alone.take(state, version=3, now_s=leader.clock.monotonic(), replicas=three, min_insync=1)
        assert leader.replicas.incomplete() == (alone,)
        leader.replicas.give(leader.partition(3), None)
        alone.take(state, version=4, now_s=leader.clock.monotonic(), replicas=three, min_insync=1)
        assert leader.replicas.incomplete() == (), "it leads no more, whatever is still said of it"
