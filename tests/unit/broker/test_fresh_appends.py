"""Records go to followers that keep up without being read from the disk again, and are the bytes that the log holds."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from regnum_broker.replication.sessions.fresh_appends import FreshAppends
from regnum_testing.batches import batch_of
from regnum_testing.clock import settle
from regnum_testing.disk import FaultyDisk
from regnum_testing.leading_replicas import FetchingFollower, LeadingReplicas


@dataclass(slots=True, kw_only=True)
class Led:
    """Broker 1, which leads two partitions."""

    disk: FaultyDisk
    leader: LeadingReplicas
    fresh: FreshAppends
    follower: FetchingFollower

    async def append(self, number: int, *values: bytes) -> bytes:
        """As a producer's batch is; what the log holds of it."""
        batch, leadership = batch_of(*values), self.leader.leadership(number)
        log = leadership.partition.log
        epoch = leadership.state.leader_epoch
        (done,) = await self.leader.storage.write(lambda: log.append_as_leader([batch], leader_epoch=epoch))
        self.fresh.note(leadership, batch, base_offset=done.base_offset, last_offset=done.last_offset)
        leadership.appended(done.base_offset, now_s=self.leader.clock.monotonic())
        return log.read(done.base_offset, bytes_max=1 << 20)


@pytest.fixture
async def led(tmp_path: Path) -> AsyncIterator[Led]:
    disk, fresh = FaultyDisk(), FreshAppends()
    async with LeadingReplicas(tmp_path, disk=disk) as leader:
        yield Led(disk=disk, leader=leader, fresh=fresh, follower=FetchingFollower(leader.session(fresh=fresh)))


async def test_a_follower_that_keeps_up_gets_what_the_log_holds_and_nothing_is_read(led: Led) -> None:
    for offset in range(3):
        asking = led.follower.asking((0, offset), wait_ms=5_000)
        # The request is taken up before: else it may find the log longer already, and what was appended not told of.
        await settle()
        stored = await led.append(0, b"v%d" % offset)
        before = led.disk.reads
        (item,) = (await asking).partitions
        assert item.records == stored
        assert led.disk.reads == before


async def test_a_follower_that_is_a_few_batches_behind_gets_them_together(led: Led) -> None:
    stored = b"".join([await led.append(0, b"a"), await led.append(0, b"b", b"c"), await led.append(0, b"d")])
    before = led.disk.reads
    (item,) = (await led.follower.ask((0, 0))).partitions
    assert item.records == stored[: len(item.records)]
    assert item.records.endswith(led.fresh.read(led.leader.leadership(), 3, 1).data)
    assert led.disk.reads == before


async def test_who_is_further_behind_is_served_from_the_log_beside_who_keeps_up(led: Led) -> None:
    await led.leader.append(1, b"before")
    old = led.leader.partition(1).log.read(0, bytes_max=1 << 20)
    await led.append(1, b"behind")
    fresh = await led.append(0, b"fresh")
    answer = await led.follower.ask((1, 0), (0, 0))
    found = {item.partition: item.records for item in answer.partitions}
    assert found[0] == fresh
    assert found[1].startswith(old)


async def test_an_offset_inside_a_batch_is_read_from_the_log(led: Led) -> None:
    await led.append(0, b"a", b"b", b"c")
    assert led.fresh.read(led.leader.leadership(), 1, 1 << 20).data == b""
    (item,) = (await led.follower.ask((0, 1))).partitions
    assert item.records, "the log gives the batch that has it"


async def test_what_was_appended_under_an_earlier_leadership_is_not_handed_out_under_the_next(led: Led) -> None:
    await led.append(0, b"a")
    former = led.leader.leadership()
    led.leader.lead(0, epoch=1)
    assert led.fresh.read(led.leader.leadership(), 0, 1 << 20).data == b""
    assert led.fresh.read(former, 0, 1 << 20).data != b"", "it is the session that makes sure of the role"
    (item,) = (await led.follower.ask((0, 0), epoch=1)).partitions
    assert item.records


async def test_a_gap_is_not_bridged(led: Led) -> None:
    await led.append(0, b"a")
    await led.leader.append(0, b"unnoted")
    last = await led.append(0, b"c")
    leadership = led.leader.leadership()
    assert led.fresh.read(leadership, 0, 1 << 20).data == b""
    assert led.fresh.read(leadership, 2, 1 << 20).data == last


async def test_memory_is_bounded_and_who_appended_long_ago_makes_room(tmp_path: Path) -> None:
    batch = batch_of(b"x" * 1_000)
    async with LeadingReplicas(tmp_path, partitions=5) as leader:
        fresh = FreshAppends(bytes_max=4 * len(batch), each_bytes_max=2 * len(batch))
        for number in range(5):
            fresh.note(leader.leadership(number), batch, base_offset=0, last_offset=0)
        assert fresh.size_bytes == 4 * len(batch)
        assert [bool(fresh.read(leader.leadership(number), 0, 1).data) for number in range(5)] == [False, *[True] * 4]
        for offset in (1, 2):
            fresh.note(leader.leadership(4), batch, base_offset=offset, last_offset=offset)
        assert fresh.read(leader.leadership(4), 0, 1).data == b"", "its first made room for its last"
        assert fresh.read(leader.leadership(4), 1, 1).data != b""
        fresh.note(leader.leadership(4), batch_of(b"x" * 3_000), base_offset=3, last_offset=3)
        assert fresh.read(leader.leadership(4), 1, 1).data == b"", "one that is too large leaves no gap behind"
        assert fresh.size_bytes <= 4 * len(batch)
