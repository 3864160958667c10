"""Whether batches show that two logs are of different histories."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_broker.log.epochs import EpochCache
from regnum_broker.replication.decisions.histories import BatchMark, contradict, leader_lacks, mark_of
from regnum_broker.replication.decisions.truncation import diverges
from regnum_model.ids import LeaderEpoch
from regnum_records.compacted import filler, retaining
from regnum_records.header import read_header
from regnum_testing.batches import assigned_batch


@dataclass(frozen=True)
class Log:
    """A log as marks; None: a batch that compaction has rewritten."""

    batches: tuple[tuple[BatchMark, bool], ...] = ()
    """Each with whether it is as it was written."""

    @property
    def end(self) -> int:
        """Offset after its last record."""
        return self.batches[-1][0].next_offset if self.batches else 0

    @property
    def last_epoch(self) -> LeaderEpoch:
        """Of its last record."""
        return LeaderEpoch(self.batches[-1][0].leader_epoch if self.batches else -1)

    @property
    def epochs(self) -> EpochCache:
        """Where its epochs begin."""
        found = EpochCache()
        for mark, _ in self.batches:
            found = found.assign(LeaderEpoch(mark.leader_epoch), mark.base_offset)
        return found

    def at(self, offset: int) -> BatchMark | None:
        """What it tells of the batch at an offset."""
        found = (mark for mark, whole in self.batches if whole and mark.base_offset <= offset < mark.next_offset)
        return next(found, None)


def compared(leader: Log, follower: Log) -> bool:
    """What follows where a follower begins to fetch: whether it learns that the logs are of two histories."""
    last = follower.at(follower.end - 1)
    if follower.end > leader.end:
        own_epoch = leader_lacks(
            leader_end=leader.end,
            leader_epoch=leader.epochs.latest,
            end=follower.end,
            last_epoch=follower.last_epoch,
        )
        if own_epoch:
            return True
    of_leader = leader.epochs.end_offset_for(follower.last_epoch, log_end_offset=leader.end)
    diverged = follower.end > leader.end or diverges(
        of_leader, last_fetched_epoch=follower.last_epoch, fetch_offset=follower.end
    )
    if last is None or of_leader.epoch != follower.last_epoch:
        return False
    own = leader.at(min(last.base_offset, of_leader.end_offset - 1))
    return own is not None and contradict(follower.at(min(own.next_offset, follower.end) - 1), own, agreed=not diverged)


APPENDS = st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=12)
"""Records of each batch, and whether an epoch begins with it."""


def appended(log: Log, appends: list[tuple[int, bool]], *, crc: int, epoch: int) -> Log:
    """A log with more batches, whose checksums count up from ``crc``."""
    batches = list(log.batches)
    for number, (records, begins) in enumerate(appends):
        epoch += begins
        base = batches[-1][0].next_offset if batches else 0
        batches.append((BatchMark(base, base + records, epoch, crc + number), True))
    return Log(tuple(batches))


def compacted(log: Log, gone: list[bool]) -> Log:
    """A log some of whose batches were rewritten."""
    rewritten = dict(enumerate(gone))
    return Log(tuple((mark, not rewritten.get(at, False)) for at, (mark, _) in enumerate(log.batches)))


@given(APPENDS, st.integers(0, 12), st.lists(st.booleans(), max_size=12), st.lists(st.booleans(), max_size=12))
def test_copies_of_one_log_never_contradict_however_they_were_compacted(
    appends: list[tuple[int, bool]], kept: int, gone_here: list[bool], gone_there: list[bool]
) -> None:
    """A follower that has a beginning of its leader's log, each of the two compacted by itself."""
    leader = appended(Log(), appends, crc=1, epoch=0)
    assert not compared(compacted(leader, gone_here), compacted(Log(leader.batches[:kept]), gone_there))


@given(APPENDS, APPENDS, APPENDS, st.lists(st.booleans(), max_size=12))
def test_a_tail_of_a_former_leader_never_contradicts(
    common: list[tuple[int, bool]], tail: list[tuple[int, bool]], new: list[tuple[int, bool]], gone: list[bool]
) -> None:
    """A follower that led, or followed, an earlier epoch, and has of it what the next leader never had."""
    before = appended(Log(), common, crc=1, epoch=0)
    follower = appended(before, [(records, False) for records, _ in tail], crc=1_000, epoch=max(before.last_epoch, 0))
    leader = appended(before, [(1, True), *new], crc=2_000, epoch=max(before.last_epoch, 0))
    assert not compared(compacted(leader, gone), follower)


@given(APPENDS, st.lists(st.integers(1, 4), min_size=1, max_size=12), st.lists(st.integers(1, 4), max_size=12))
def test_a_second_leader_of_an_epoch_is_found_out_whatever_it_has_appended(
    common: list[tuple[int, bool]], first: list[int], second: list[int]
) -> None:
    """Two brokers went on from one log in one epoch, and one of them leads on in it."""
    before = appended(Log(), common, crc=1, epoch=0)
    epoch = before.last_epoch + 1
    follower = appended(before, [(records, False) for records in first], crc=1_000, epoch=epoch)
    leader = appended(before, [(records, False) for records in second], crc=2_000, epoch=epoch)
    if second:
        assert compared(leader, follower)
    else:
        # Its epoch has no record; it is known all the same.
        assert leader_lacks(
            leader_end=leader.end,
            leader_epoch=LeaderEpoch(epoch),
            end=follower.end,
            last_epoch=follower.last_epoch,
        )


def test_what_compaction_may_have_made_says_nothing() -> None:
    batch = assigned_batch(b"a", b"b", b"c", base_offset=3, leader_epoch=6)
    header = read_header(batch)
    assert mark_of(header) == BatchMark(3, 6, 6, header.crc)
    kept = retaining(batch, header, [True, False, True], max_timestamp_ms=1)
    assert mark_of(read_header(kept)) is None
    assert mark_of(read_header(retaining(batch, header, [False] * 3, max_timestamp_ms=0))) is None
    assert mark_of(read_header(filler(base_offset=3, last_offset=3, leader_epoch=6))) is None
    assert mark_of(None) is None


@pytest.mark.parametrize(
    ("other", "agreed", "result"),
    [
        (BatchMark(3, 6, 6, 1), True, False),
        (BatchMark(3, 6, 6, 2), True, True),
        (BatchMark(3, 6, 6, 2), False, True),
        (BatchMark(3, 6, 5, 1), True, True),
        (BatchMark(3, 6, 5, 1), False, False),
        (BatchMark(0, 4, 6, 1), False, True),
        (BatchMark(0, 3, 6, 1), True, False),
        (BatchMark(6, 9, 6, 1), True, False),
        (None, True, False),
    ],
)
def test_batches_that_share_offsets_are_the_same_or_of_two_histories(
    *, other: BatchMark | None, agreed: bool, result: bool
) -> None:
    mine = BatchMark(3, 6, 6, 1)
    assert contradict(mine, other, agreed=agreed) is result
    assert contradict(other, mine, agreed=agreed) is result
