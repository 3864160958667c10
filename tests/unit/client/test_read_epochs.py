"""Where a consumer's log and a leader's leave each other, by the epochs of what was read (KIP-320)."""

from random import Random

import pytest
from regnum_broker.log.epochs import EpochCache
from regnum_broker.replication.decisions.truncation import misleads
from regnum_client.consumer.read_epochs import ENTRIES_MAX, ReadEpochs
from regnum_model.ids import LeaderEpoch


def read(log: list[int]) -> ReadEpochs:
    """What a consumer knows that read records of these epochs, one after another from offset 0."""
    epochs = ReadEpochs()
    for offset, epoch in enumerate(log):
        epochs.saw(epoch, offset)
    return epochs


def cache_of(log: list[int], epoch: int) -> EpochCache:
    """What the leader of an epoch knows, with records of these epochs."""
    cache = EpochCache()
    for offset, one in enumerate(log):
        cache = cache.assign(LeaderEpoch(one), offset)
    return cache.assign(LeaderEpoch(epoch), len(log))


def settled(consumer: list[int], leader: list[int], *, epoch: int) -> int:
    """Ask the leader again and again; returns where the consumer goes on."""
    epochs, offset, cache = read(consumer), len(consumer), cache_of(leader, epoch)
    for _ in range(len(consumer) + 1):
        last = epochs.before(offset)
        if last is None:
            return offset
        end = cache.end_offset_for(LeaderEpoch(last), log_end_offset=len(leader))
        if not misleads(end, last_fetched_epoch=LeaderEpoch(last), fetch_offset=offset, log_start=0):
            return offset
        at = epochs.equal_until(epoch=end.epoch, end_offset=end.end_offset)
        assert at < offset, "every answer leads further back"
        epochs.cut(at)
        offset = at
    raise AssertionError("never settled")


def test_of_an_epoch_that_nobody_had_the_beginning_is_where_the_logs_part() -> None:
    """The older leader's log is longer than what was read, so the end of its epoch alone says nothing."""
    assert settled([1] * 5 + [2] * 1, [1] * 10, epoch=3) == 5


def test_a_consumer_goes_back_to_the_last_record_that_both_have_whatever_the_logs_are() -> None:
    """Logs of random failovers: a leader appends under its epoch to a prefix of some earlier log."""
    chance = Random(7)
    for _ in range(2_000):
        logs: list[list[int]] = [[]]
        for epoch in range(1, 7):
            base = chance.choice(logs)
            logs.append(base[: chance.randint(0, len(base))] + [epoch] * chance.randint(0, 3))
        consumer, leader = chance.choice(logs), logs[-1]
        common = next((i for i, pair in enumerate(zip(consumer, leader, strict=False)) if pair[0] != pair[1]), None)
        expected = min(len(consumer), len(leader)) if common is None else common
        assert settled(consumer, leader, epoch=7) == expected, (consumer, leader)


@pytest.mark.parametrize(("log_start", "result"), [(0, True), (60, False), (59, True)])
def test_an_epoch_that_is_gone_with_the_start_of_the_log_is_no_loss(*, log_start: int, result: bool) -> None:
    end = EpochCache(((LeaderEpoch(1), 0), (LeaderEpoch(3), 100))).end_offset_for(LeaderEpoch(2), log_end_offset=120)
    assert misleads(end, last_fetched_epoch=LeaderEpoch(2), fetch_offset=60, log_start=log_start) is result


def test_an_end_before_what_was_read_is_a_loss_wherever_the_log_begins() -> None:
    end = EpochCache(((LeaderEpoch(1), 0), (LeaderEpoch(3), 50))).end_offset_for(LeaderEpoch(1), log_end_offset=120)
    assert misleads(end, last_fetched_epoch=LeaderEpoch(1), fetch_offset=60, log_start=60)


def test_a_position_taken_over_knows_the_epoch_of_the_record_before_it() -> None:
    epochs = ReadEpochs()
    epochs.start_over(10, 4)
    assert (epochs.before(10), epochs.before(9)) == (4, None)
    assert epochs.equal_until(epoch=3, end_offset=7) == 7
    epochs.start_over(0, 4)
    assert epochs.before(1) is None, "there is no record before the first"


def test_a_lower_epoch_than_before_ends_what_is_known() -> None:
    epochs = read([3, 3, 2])
    assert (epochs.before(2), epochs.before(3)) == (None, 2)


def test_the_number_of_epochs_that_are_remembered_has_a_bound() -> None:
    epochs = read(list(range(ENTRIES_MAX * 3)))
    assert epochs.before(ENTRIES_MAX * 2) is None
    assert epochs.before(ENTRIES_MAX * 2 + 1) == ENTRIES_MAX * 2
