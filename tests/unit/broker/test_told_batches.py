"""What a leader makes of the last batch that a follower tells when it begins to fetch."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.replication.v1 import replication_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.replication.decisions.histories import BatchMark, mark_of
from regnum_broker.replication.sessions.fetch_session import FetchSession
from regnum_broker.replication.sessions.marks import to_wire
from regnum_model.ids import BrokerId, LeaderEpoch
from regnum_testing.batches import batch_of
from regnum_testing.leading_replicas import FOLLOWER, FOLLOWER_EPOCH, TOPIC_ID, LeadingReplicas
from regnum_testing.log_directories import ReopenedDirectory, lead
from regnum_testing.waiting import DEADLINE_S, within

CORRUPT = errors_pb2.ERROR_CODE_CORRUPT_MESSAGE


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[LeadingReplicas]:
    """Leads two partitions in epoch 0, with three batches of one record in each; broker 2 is in sync."""
    async with LeadingReplicas(tmp_path, partitions=2, readers=1) as leading:
        for number in (0, 1):
            for value in (b"a", b"b", b"c"):
                await leading.append(number, value)
        yield leading


def mark_at(leader: LeadingReplicas, offset: int, number: int = 0) -> BatchMark:
    found = mark_of(leader.partition(number).log.batch_at(offset))
    assert found is not None
    return found


def tell(
    session: FetchSession, offset: int, last_batch: BatchMark | None, *, number: int = 0, epoch: int = 0, last: int = 0
) -> None:
    """Begin to fetch a partition there, as broker 2."""
    session.push(
        replication_pb2.FetchReplicaRequest(
            replica_id=FOLLOWER,
            broker_epoch=FOLLOWER_EPOCH,
            max_bytes=1 << 20,
            positions=[
                replication_pb2.FetchPosition(
                    topic_id=TOPIC_ID,
                    partition=number,
                    current_leader_epoch=epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=last,
                    last_batch=to_wire(last_batch),
                )
            ],
        )
    )


async def answered(session: FetchSession) -> list[replication_pb2.FetchedPartition]:
    answer = await within(session.next_answer())
    assert answer is not None
    return list(answer.partitions)


def counted(leader: LeadingReplicas, number: int = 0) -> int:
    """Up to where the follower counts as having the log; -1: it is not counted."""
    progress = leader.leadership(number).progress_of(FOLLOWER)
    assert progress is not None
    return progress.log_end_offset


async def test_another_batch_in_that_place_is_said_and_neither_counted_nor_followed_by_anything(
    leader: LeadingReplicas,
) -> None:
    session = leader.session()
    own = mark_at(leader, 1)
    tell(session, 2, own._replace(crc=own.crc ^ 1))
    (item,) = await answered(session)
    assert (item.error_code, item.records, item.high_watermark) == (CORRUPT, b"", 0)
    assert item.own_batch == to_wire(own)
    assert counted(leader) < 2
    # Nor is it after it was named once more, as if nothing had been said.
    tell(session, 2, own._replace(crc=own.crc ^ 1))
    assert [item.error_code for item in await answered(session)] == [CORRUPT]
    assert leader.partition().high_watermark == 0


@pytest.mark.parametrize(
    ("change", "alarm"),
    [
        pytest.param({}, False, id="the same"),
        pytest.param({"crc": 7}, True, id="another checksum"),
        pytest.param({"base_offset": 1}, True, id="one batch where the leader has two"),
        pytest.param({"leader_epoch": 1}, True, id="another epoch"),
    ],
)
async def test_batches_of_the_end_and_before_it_are_compared(
    leader: LeadingReplicas, change: dict[str, int], *, alarm: bool
) -> None:
    session = leader.session()
    tell(session, 3, mark_at(leader, 2)._replace(**change))
    codes = [item.error_code for item in await answered(session)]
    assert codes == ([CORRUPT] if alarm else [errors_pb2.ERROR_CODE_NONE])
    assert counted(leader) == (-1 if alarm else 3)


async def test_the_last_batch_of_both_is_compared_without_a_look_into_files(leader: LeadingReplicas) -> None:
    """Steps: the only reader is busy; a follower at the leader's end is counted, one before it is not, and then is."""
    taken, held = threading.Event(), threading.Event()

    def hold() -> bool:
        taken.set()
        return held.wait(DEADLINE_S)

    holding = leader.storage.read(hold)
    assert await asyncio.to_thread(taken.wait, DEADLINE_S), "the only reader is busy"
    session = leader.session()
    tell(session, 3, BatchMark(2, 3, 0, last_crc(leader)), number=0)
    await answered(session)
    assert counted(leader) == 3
    waiting = leader.session()
    first = leader.partition(1).log.last_batch
    assert first is not None
    tell(waiting, 2, BatchMark(1, 2, 0, 1), number=1)
    asking = asyncio.create_task(answered(waiting))
    await asyncio.sleep(0)
    assert not asking.done()
    assert counted(leader, 1) < 2
    held.set()
    await holding
    assert [item.error_code for item in await within(asking)] == [CORRUPT]


def last_crc(leader: LeadingReplicas) -> int:
    """Of the last batch of partition 0, as it is in memory."""
    last = leader.partition(0).log.last_batch
    assert last is not None
    return last.crc


async def test_a_follower_that_tells_nothing_is_served_as_before(leader: LeadingReplicas) -> None:
    session = leader.session()
    tell(session, 2, None)
    (item,) = await answered(session)
    assert item.records
    assert counted(leader) == 2


async def test_a_follower_that_is_told_to_go_back_is_told_what_to_compare_first(leader: LeadingReplicas) -> None:
    """Steps: the leader of epoch 0 leads epoch 1; followers have more of epoch 0 than it ever had."""
    leader.lead(0, epoch=1)
    log = leader.partition().log
    await leader.storage.write(
        lambda: log.append_as_leader([batch_of(b"d"), batch_of(b"e")], leader_epoch=LeaderEpoch(1))
    )
    own = to_wire(mark_at(leader, 2))
    session = leader.session()
    tell(session, 4, BatchMark(3, 4, 0, 9), epoch=1)
    (item,) = await answered(session)
    assert (item.diverging_epoch.epoch, item.diverging_epoch.end_offset, item.own_batch) == (0, 3, own)
    tell(session, 9, BatchMark(8, 9, 0, 9), epoch=1)
    (item,) = await answered(session)
    assert (item.error_code, item.own_batch) == (errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE, own)
    assert counted(leader) < 0


async def test_what_lies_before_the_log_start_is_not_compared(leader: LeadingReplicas) -> None:
    log = leader.partition().log
    await leader.storage.write(lambda: log.begin_at(2))
    session = leader.session()
    tell(session, 2, BatchMark(1, 2, 0, 9))
    (item,) = await answered(session)
    assert item.records
    assert counted(leader) == 2


def test_a_log_has_its_last_batch_in_memory_and_never_one_that_is_not_the_last(tmp_path: Path) -> None:
    files = ReopenedDirectory(tmp_path)
    files.open()
    log = files.replica()
    assert log.last_batch is None
    assert log.batch_at(0) is None
    for value in (b"a", b"b", b"c"):
        lead(log, value)
    last = log.last_batch
    assert last is not None
    assert (last.base_offset, last.next_offset) == (2, 3)
    assert log.batch_at(2) == last
    log.truncate(2)
    assert log.last_batch is None
    before = log.batch_at(1)
    assert before is not None
    assert log.last_batch == before
    assert log.batch_at(2) is None
    lead(log, b"d", epoch=1)
    again = log.last_batch
    assert again is not None
    assert again.crc != last.crc
    assert log.batch_at(2) == again
    files.now.close(clean=True)
    files.open()
    found = files.replica()
    assert found.last_batch is None
    assert found.batch_at(found.log_end_offset - 1) == again
    assert found.last_batch == again


def test_after_a_kill_in_the_middle_of_an_append_the_last_batch_is_the_one_before(tmp_path: Path) -> None:
    files = ReopenedDirectory(tmp_path)
    files.open(broker_id=BrokerId(1))
    log = files.replica()
    for value in (b"a", b"b"):
        lead(log, value)
    before, path = log.batch_at(0), log.segments[-1].path
    files.kill()
    with Path(path).open("r+b") as segment:
        segment.truncate(Path(path).stat().st_size - 1)
    files.open()
    found = files.replica()
    assert found.log_end_offset == 1
    assert found.batch_at(0) == before
