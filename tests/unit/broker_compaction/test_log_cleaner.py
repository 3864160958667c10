"""When logs are compacted, beside a broker that serves them."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum_broker.compaction.cleanable import AGAIN_MS
from regnum_broker.compaction.cleaner import LogCleaner, Place, keys_of
from regnum_broker.compaction.offset_map import BYTES_FOR_KEY
from regnum_broker.compaction.pace import CompactionStoppedError, Pace
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.retention.expiry_clock import ExpiryClock
from regnum_model.config_definition import CLEANUP_COMPACT, CLEANUP_DELETE
from regnum_model.configs import ReplicaSettings
from regnum_model.ids import LeaderEpoch
from regnum_records.check import RECORDS_MAX
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.instruments.definition import Instrument
from regnum_telemetry.metrics import Metrics
from regnum_testing.batches import MALFORMED
from regnum_testing.clock import FakeClock
from regnum_testing.compaction import keyed_batch, records_of
from regnum_testing.leading_replicas import LeadingReplicas
from regnum_testing.waiting import until
from structlog.testing import capture_logs

VALUE = b"v" * 300_000
"""Three of these make a segment of a megabyte."""
YEAR_S = 365 * 86_400.0
SMALL_BYTES = 10 * 1024 * 1024
COMPACT = ReplicaSettings(cleanup_policy=CLEANUP_COMPACT)


class Cleaned:
    """Leading replicas, and what compacts them."""

    def __init__(self, leader: LeadingReplicas, clock: FakeClock) -> None:
        self.leader = leader
        self.clock = clock
        self.metrics = Metrics()
        self.expiry = ExpiryClock(clock, difference_s_max=300.0)
        self.expiry.hear(clock.wall_ms())
        self.cleaner = LogCleaner(
            replicas=leader.replicas,
            storage=leader.storage,
            keys_max=1000,
            clock=clock,
            expiry_now_ms=self.expiry.now_ms,
            chance=random.Random(1),
            metrics=self.metrics,
            small_bytes=SMALL_BYTES,
        )

    def shown(self, instrument: Instrument) -> float:
        """A metric as it is now."""
        ((_, value),) = next(one.numbers for one in self.metrics.read() if one.instrument is instrument)
        return value

    def log(self, number: int = 0) -> ReplicaLog:
        return self.leader.partition(number).log

    def configure(self, settings: ReplicaSettings = COMPACT, number: int = 0) -> None:
        self.leader.replicas.configure(self.leader.partition(number), settings)

    async def write(self, count: int, number: int = 0, *, committed: bool = True, keys: int = 1) -> None:
        log = self.log(number)
        for _ in range(count):
            batch = keyed_batch((b"k%d" % (log.log_end_offset % keys), VALUE))
            await self.leader.storage.write(
                lambda batch=batch: log.append_as_leader([batch], leader_epoch=LeaderEpoch(0))  # type: ignore[misc]
            )
        if committed:
            self.leader.partition(number).commit(log.log_end_offset)

    async def delete(self, key: bytes, number: int = 0) -> None:
        log = self.log(number)
        batch = keyed_batch((key, None))
        await self.leader.storage.write(lambda: log.append_as_leader([batch], leader_epoch=LeaderEpoch(0)))

    def offsets(self, number: int = 0) -> list[int]:
        return [record.offset for record in records_of(self.log(number))]


@pytest.fixture
async def cleaned(tmp_path: Path) -> AsyncIterator[Cleaned]:
    clock = FakeClock()
    async with LeadingReplicas(tmp_path, partitions=30, clock=clock) as leader:
        leader.files.wall_ms = clock.wall_ms()
        yield Cleaned(leader, clock)


async def test_a_log_is_compacted_when_enough_of_it_is_new(cleaned: Cleaned) -> None:
    cleaned.configure()
    await cleaned.write(10)
    await cleaned.cleaner.look()
    assert cleaned.offsets() == [8, 9], "the newest of the closed segments, and of the one that grows"
    await cleaned.write(20)
    await cleaned.cleaner.look()
    assert cleaned.offsets() == [26, 27, 28, 29]


async def test_a_batch_that_cannot_be_decoded_holds_up_no_compaction(cleaned: Cleaned) -> None:
    poison, _ = MALFORMED["header count -27"]
    log = cleaned.log()
    cleaned.configure()
    await cleaned.write(2)
    await cleaned.leader.storage.write(lambda: log.append_as_leader([poison], leader_epoch=LeaderEpoch(0)))
    for _ in range(2):
        await cleaned.write(10)
        with capture_logs() as told:
            await cleaned.cleaner.look()
        (left,) = [line for line in told if line["event"] == "batches left as they are"]
        assert (left["offsets"], left["count"]) == ([2], 1)
        assert log.size_bytes < 5 * len(VALUE)
    assert cleaned.shown(instruments.CLEANER_UNCLEANABLE) == 0


async def test_a_batch_of_many_keys_is_compacted_in_either_place(cleaned: Cleaned) -> None:
    batch = keyed_batch(*[(b"key %d" % number, b"." * 2_000) for number in range(400)])
    for number in (0, 1):
        log = cleaned.log(number)
        cleaned.configure(number=number)
        await cleaned.leader.storage.write(lambda log=log: log.append_as_leader([batch], leader_epoch=LeaderEpoch(0)))  # type: ignore[misc]
        await cleaned.write(10, number)
    await cleaned.cleaner.look()
    assert cleaned.shown(instruments.CLEANER_UNCLEANABLE) == 0
    assert [len(cleaned.offsets(number)) for number in (0, 1)] == [402, 402]


def test_a_place_has_room_for_any_batch_with_the_least_memory_that_may_be_set() -> None:
    least, default = (32 * 2**20 // BYTES_FOR_KEY, 64 * 2**20 // BYTES_FOR_KEY)
    for keys_max in (least, default):
        shares = [keys_of(place, keys_max=keys_max) for place in Place]
        assert min(shares) >= RECORDS_MAX
        assert sum(shares) <= keys_max
    assert keys_of(Place.SMALL, keys_max=default) == default // 4


async def test_a_log_at_rest_is_not_looked_at_and_one_without_compaction_never(cleaned: Cleaned) -> None:
    cleaned.configure()
    for number in range(3):
        await cleaned.write(10, number)
    await cleaned.cleaner.look()
    await cleaned.cleaner.look()
    looked_at = cleaned.cleaner.looked_at
    for _ in range(5):
        cleaned.clock.skip(3_600.0)
        await cleaned.cleaner.look()
    assert cleaned.cleaner.looked_at == looked_at <= 2
    assert len(cleaned.offsets(1)) == 10


async def test_a_topic_that_becomes_compacted_is_compacted_then(cleaned: Cleaned) -> None:
    await cleaned.write(10)
    await cleaned.cleaner.look()
    assert len(cleaned.offsets()) == 10
    cleaned.configure()
    await cleaned.cleaner.look()
    assert len(cleaned.offsets()) == 2


async def test_what_is_not_committed_is_looked_at_again(cleaned: Cleaned) -> None:
    cleaned.configure()
    await cleaned.write(10, committed=False)
    await cleaned.cleaner.look()
    assert len(cleaned.offsets()) == 10
    cleaned.leader.partition().commit(10)
    await cleaned.cleaner.look()
    assert len(cleaned.offsets()) == 10, "not due yet"
    cleaned.clock.skip(AGAIN_MS / 1000)
    await cleaned.cleaner.look()
    assert len(cleaned.offsets()) == 2


async def test_no_record_is_old_enough_by_a_clock_that_jumped(cleaned: Cleaned) -> None:
    cleaned.configure(ReplicaSettings(cleanup_policy=CLEANUP_COMPACT, min_compaction_lag_ms=60_000))
    await cleaned.write(10)
    cleaned.clock.jump(YEAR_S)
    await cleaned.cleaner.look()
    assert len(cleaned.offsets()) == 10
    cleaned.clock.jump(-YEAR_S)
    await cleaned.cleaner.look()
    assert len(cleaned.offsets()) == 10
    cleaned.clock.skip(60.0)
    await cleaned.cleaner.look()
    assert len(cleaned.offsets()) == 2


async def test_a_deletion_is_not_gone_by_a_clock_that_jumped(cleaned: Cleaned) -> None:
    settings = ReplicaSettings(cleanup_policy=CLEANUP_COMPACT, min_cleanable_dirty_ratio=0, delete_retention_ms=60_000)
    cleaned.configure(settings)
    await cleaned.delete(b"gone")
    await cleaned.write(10)
    await cleaned.cleaner.look()
    assert cleaned.offsets()[0] == 0
    for jump_s in (YEAR_S, -YEAR_S):
        cleaned.clock.jump(jump_s)
        await cleaned.write(10)
        await cleaned.cleaner.look()
        assert cleaned.offsets()[0] == 0
        assert len(cleaned.offsets()) < 6, "it was compacted"
    cleaned.clock.skip(60.0)
    await cleaned.write(10)
    await cleaned.cleaner.look()
    assert cleaned.offsets()[0] > 0


async def test_records_are_kept_as_they_are_for_as_long_as_the_topic_says(cleaned: Cleaned) -> None:
    cleaned.configure(ReplicaSettings(cleanup_policy=CLEANUP_COMPACT, min_compaction_lag_ms=60_000))
    await cleaned.write(10)
    cleaned.clock.skip(59.0)
    await cleaned.cleaner.look()
    assert len(cleaned.offsets()) == 10
    cleaned.clock.skip(1.0)
    await cleaned.cleaner.look()
    assert len(cleaned.offsets()) == 2


async def test_a_log_with_a_damaged_batch_is_left_alone_and_the_others_are_compacted(
    cleaned: Cleaned, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (0, 1):
        cleaned.configure(number=number)
        await cleaned.write(10, number)
    path = Path(cleaned.log().segments[1].path)
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    size_bytes = cleaned.log().size_bytes
    for _ in range(3):
        await cleaned.cleaner.look()
        cleaned.clock.skip(AGAIN_MS / 1000)
    assert cleaned.log().size_bytes == size_bytes
    assert cleaned.log().fault is None
    assert len(cleaned.offsets(1)) == 2
    assert cleaned.shown(instruments.CLEANER_UNCLEANABLE) == 1
    cleaned.leader.replicas.remove(cleaned.log().key)
    await cleaned.cleaner.look()
    assert cleaned.shown(instruments.CLEANER_UNCLEANABLE) == 0, "it is another log, if it comes again"


async def test_a_log_that_takes_long_does_not_hold_up_those_that_do_not(cleaned: Cleaned) -> None:
    # All are due when it looks: on a busy machine the large one would be done before the others were written.
    for number, count in ((0, 120), (1, 10), (2, 10)):
        cleaned.configure(number=number)
        await cleaned.write(count, number)
    looking = asyncio.create_task(cleaned.cleaner.look())
    await until(lambda: all(cleaned.log(number).cleaned for number in (1, 2)))
    assert not cleaned.log().cleaned, "the large one is still under way"
    assert [len(cleaned.offsets(number)) for number in (1, 2)] == [2, 2]
    await looking
    assert cleaned.log().cleaned


async def test_large_logs_wait_for_one_another_the_dirtiest_first(cleaned: Cleaned) -> None:
    cleaned.configure(ReplicaSettings(cleanup_policy=CLEANUP_COMPACT, min_cleanable_dirty_ratio=100))
    for number, count in ((0, 120), (1, 60)):
        cleaned.configure(ReplicaSettings(cleanup_policy=CLEANUP_COMPACT, min_cleanable_dirty_ratio=100), number)
        await cleaned.write(count, number, keys=1000)
    await cleaned.cleaner.look()
    marks = [cleaned.log(number).cleaned for number in (0, 1)]
    await cleaned.write(30, 0, keys=1000)
    await cleaned.write(60, 1, keys=1000)
    looking = asyncio.create_task(cleaned.cleaner.look())
    await until(lambda: cleaned.log(1).cleaned != marks[1])
    assert cleaned.log(0).cleaned == marks[0], "more of the other was new"
    assert cleaned.shown(instruments.CLEANER_WAITING) >= 1
    await looking
    assert cleaned.log(0).cleaned != marks[0]
    assert cleaned.shown(instruments.CLEANER_WAITING) == 0


async def test_what_was_read_and_written_is_shown_and_when_the_cleaner_ran_last(cleaned: Cleaned) -> None:
    cleaned.configure()
    await cleaned.write(10)
    closed_bytes = sum(segment.size_bytes for segment in cleaned.log().segments[:-1])
    await cleaned.cleaner.look()
    left_bytes = sum(segment.size_bytes for segment in cleaned.log().segments[:-1])
    assert cleaned.shown(instruments.CLEANER_READ) == 2 * closed_bytes, "once to learn, and once to rewrite"
    assert cleaned.shown(instruments.CLEANER_WRITTEN) == left_bytes
    assert cleaned.shown(instruments.CLEANER_LAST_RUN) == 0
    cleaned.clock.skip(100.0)
    assert cleaned.shown(instruments.CLEANER_LAST_RUN) == 100


async def test_a_log_whose_policy_changes_meanwhile_is_left_as_it_is(cleaned: Cleaned) -> None:
    cleaned.configure()
    await cleaned.write(120)
    looking = asyncio.create_task(cleaned.cleaner.look())
    await until(lambda: cleaned.shown(instruments.CLEANER_WRITTEN) > 0)
    cleaned.configure(ReplicaSettings(cleanup_policy=CLEANUP_DELETE))
    await looking
    assert not cleaned.log().cleaned
    assert len(cleaned.offsets()) > 2, "the rest of it was not gone through"


async def test_readers_go_on_while_segments_are_swapped(cleaned: Cleaned) -> None:
    cleaned.configure()
    await cleaned.write(40)
    log, found, stopped = cleaned.log(), list[int](), False

    async def read() -> None:
        while not stopped:
            offsets = await cleaned.leader.storage.read(lambda: [record.offset for record in records_of(log)])
            assert offsets[-1] == 39, "all of it can be read at any moment"
            assert offsets == sorted(set(offsets))
            found.append(len(offsets))

    reading = asyncio.create_task(read())
    await until(lambda: bool(found))
    await cleaned.cleaner.look()
    await until(lambda: found[-1] == len(cleaned.offsets()))
    stopped = True
    await reading
    assert found[0] == 40


async def test_a_broker_that_stops_does_not_wait_for_a_compaction(tmp_path: Path) -> None:
    leader = await LeadingReplicas(tmp_path, clock=FakeClock()).__aenter__()
    began, ended = threading.Event(), list[bool]()

    def compact_for_ever() -> None:
        began.set()
        ended.append(leader.storage.wait_for_stop(1_000.0))

    looking = asyncio.create_task(leader.storage.clean(compact_for_ever))
    await until(began.is_set)
    looking.cancel()
    await leader.storage.close(clean=True)
    assert ended == [True]


def test_who_compacts_rests_in_proportion_to_what_it_took() -> None:
    clock, rests = FakeClock(), list[float]()

    def wait(seconds: float) -> bool:
        rests.append(seconds)
        return len(rests) == 3

    pace = Pace(clock, wait)
    pace.begin()
    pace.went_on()
    assert rests == []
    for seconds in (0.5, 0.02):
        clock.skip(seconds)
        pace.went_on()
    assert rests == pytest.approx([0.5 * 3, 0.02 * 3])
    clock.skip(1.0)
    with pytest.raises(CompactionStoppedError):
        pace.went_on()
