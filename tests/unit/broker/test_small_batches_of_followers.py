"""Small batches cost a follower as much as large ones: few of them are one job for the writer."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum.replication.v1 import replication_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.replication.followed import BATCHES_AT_ONCE_MAX, Followed, Stored, shared_out
from regnum_broker.replication.partition import Following
from regnum_model.ids import BrokerId, LeaderEpoch
from regnum_records.header import iterate
from regnum_testing.batches import assigned_batch, batch_of
from regnum_testing.broker_world import BrokerWorld
from regnum_testing.leading_replicas import LeadingReplicas
from regnum_testing.waiting import within

TORN = assigned_batch(b"torn", base_offset=10_000)[:-1]


def batches(count: int, *, end: bytes = b"") -> bytes:
    return b"".join(assigned_batch(b"r", base_offset=offset) for offset in range(count)) + end


def jobs_of(work: Sequence[Stored]) -> list[list[Stored]]:
    jobs = []
    left = list(work)
    while left:
        now, left = shared_out(left)
        jobs.append(now)
    return jobs


async def works(path: Path, answers: Sequence[replication_pb2.FetchedPartition]) -> list[Stored]:
    async with LeadingReplicas(path) as replicas:
        following = Following(leader=BrokerId(2), leader_epoch=LeaderEpoch(0), cause="", filled=False)
        return [Stored(Followed(replicas.partition(0), following), answer, answer.records) for answer in answers]


async def test_megabytes_of_small_batches_are_many_jobs_and_every_byte_is_in_one(tmp_path: Path) -> None:
    counts = (1, BATCHES_AT_ONCE_MAX - 1, 2, 1_000, 0, BATCHES_AT_ONCE_MAX, 5)
    answers = [replication_pb2.FetchedPartition(records=batches(count, end=TORN)) for count in counts]
    answers[4] = replication_pb2.FetchedPartition(error_code=errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE)
    work = await works(tmp_path, answers)
    jobs = jobs_of(work)
    sizes = [sum(len(list(iterate(part.records))) for part in job) for job in jobs]
    assert max(sizes) <= BATCHES_AT_ONCE_MAX
    assert len(jobs) <= sum(counts) // BATCHES_AT_ONCE_MAX + 2
    for one in work:
        parts = [part for job in jobs for part in job if part.followed is one.followed]
        assert b"".join(part.records for part in parts) == one.answer.records
        assert [part.size_bytes for part in parts] == [len(part.records) for part in parts]
        assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]


async def test_large_batches_stay_together(tmp_path: Path) -> None:
    large = b"".join(assigned_batch(bytes(50_000), base_offset=offset) for offset in range(100))
    work = await works(tmp_path, [replication_pb2.FetchedPartition(records=large)] * 2)
    assert jobs_of(work) == [work]


@given(st.binary(max_size=200))
def test_what_is_no_batch_is_one_part_that_the_log_refuses(rubbish: bytes) -> None:
    followed: Followed = None  # type: ignore[assignment]
    work = [Stored(followed, replication_pb2.FetchedPartition(), batches(3) + rubbish)]
    parts = [part for job in jobs_of(work) for part in job]
    assert b"".join(part.records for part in parts) == work[0].records


@pytest.mark.parametrize("count", [BATCHES_AT_ONCE_MAX, 2 * BATCHES_AT_ONCE_MAX + 1])
async def test_a_follower_that_is_far_behind_has_all_of_them_in_order(tmp_path: Path, count: int) -> None:
    world = BrokerWorld(tmp_path)
    await world.begin()
    await world.start(1, 2)
    try:
        await world.elect(1, [1], replicas=[1, 2], tell=[1])
        for number in range(count):
            await within(world.produce(1, batch_of(b"%d" % number)))
        await world.elect(1, [1], replicas=[1, 2], epoch=1)
        await world.log_ends_at(2, count)
        leader, follower = (world.brokers[BrokerId(id)].partition().log for id in (1, 2))
        assert follower.read(0, bytes_max=1 << 22) == leader.read(0, bytes_max=1 << 22)
    finally:
        await world.close()
