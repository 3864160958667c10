"""Leader epochs: Kafka's vectors (KIP-101, KIP-279)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_broker.log.epochs import UNDEFINED, EpochCache, EpochEnd
from regnum_model.ids import LeaderEpoch


def cache(*entries: tuple[int, int]) -> EpochCache:
    result = EpochCache()
    for epoch, start in entries:
        result = result.assign(LeaderEpoch(epoch), start)
    return result


def end(of: EpochCache, epoch: int, log_end: int) -> tuple[int, int]:
    found = of.end_offset_for(LeaderEpoch(epoch), log_end_offset=log_end)
    return found.epoch, found.end_offset


@pytest.mark.parametrize(
    ("assigned", "entries"),
    [
        ([(2, 9), (2, 10)], [(2, 9)]),
        ([(2, 9), (3, 9)], [(3, 9)]),
        ([(2, 6), (3, 5)], [(3, 5)]),
        ([(2, 6), (3, 8), (2, 7)], [(2, 7)]),
        ([(2, 6), (3, 8), (3, 7)], [(2, 6), (3, 7)]),
        ([(1, 11), (2, 13), (3, 15)], [(1, 11), (2, 13), (3, 15)]),
        ([(0, 0), (1, 0)], [(1, 0)]),
    ],
)
def test_assigning_keeps_what_does_not_contradict(assigned, entries):
    assert list(cache(*assigned).entries) == entries


@pytest.mark.parametrize(
    ("entries", "log_end", "epoch", "answer"),
    [
        ([(2, 10)], 11, 2, (2, 11)),
        ([(1, 11), (2, 13), (3, 15)], 17, 2, (2, 15)),
        ([(2, 100)], 200, 3, (-1, -1)),
        ([(2, 100)], 200, -1, (-1, -1)),
        ([], 0, 0, (-1, -1)),
        ([(0, 0), (1, 0)], 0, 1, (1, 0)),
        ([(0, 0), (1, 0)], 5, 1, (1, 5)),
        ([(0, 0), (1, 0), (2, 5)], 10, 2, (2, 10)),
        ([(0, 0), (1, 0), (2, 5)], 10, 0, (0, 0)),
        ([(1, 11), (4, 13), (6, 15)], 17, 5, (4, 15)),
        ([(3, 11), (4, 13)], 17, 1, (1, 11)),
    ],
)
def test_where_epochs_end(entries, log_end, epoch, answer):
    assert end(cache(*entries), epoch, log_end) == answer


@pytest.mark.parametrize(
    ("offset", "entries"),
    [(8, [(2, 6)]), (9, [(2, 6), (3, 8)]), (-1, [(2, 6), (3, 8), (4, 11)]), (12, [(2, 6), (3, 8), (4, 11)]), (0, [])],
)
def test_truncating_from_the_end(offset, entries):
    assert list(cache((2, 6), (3, 8), (4, 11)).truncate_from_end(offset).entries) == entries


def test_latest_and_epoch_of_an_offset():
    epochs = cache((2, 6), (3, 8))
    assert (epochs.latest, EpochCache().latest) == (3, -1)
    assert [epochs.epoch_at(offset) for offset in (5, 6, 7, 8, 100)] == [-1, 2, 2, 3, 3]


def test_undefined_is_not_defined():
    assert not UNDEFINED.is_defined
    assert EpochEnd(epoch=LeaderEpoch(0), end_offset=0).is_defined


def test_negative_epochs_and_offsets_are_refused():
    for epoch, start in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            cache((epoch, start))


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 30))), st.integers(-1, 9), st.integers(30, 40))
def test_entries_rise_and_every_answer_is_an_end(assigned, epoch, log_end):
    epochs = cache(*assigned)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in zip(epochs.entries, epochs.entries[1:], strict=False))
    found = epochs.end_offset_for(LeaderEpoch(epoch), log_end_offset=log_end)
    if found.is_defined:
        assert found.epoch <= epoch
        assert found.end_offset <= log_end
        assert all(start >= found.end_offset for e, start in epochs.entries if e > epoch)
    else:
        assert epoch < 0 or epoch > epochs.latest
