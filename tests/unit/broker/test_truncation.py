"""Where a follower's log leaves its leader's (semantics 4.3; defects D1 to D3)."""

import pytest
from regnum_broker.log.epochs import EpochCache, EpochEnd
from regnum_broker.replication.decisions.truncation import Truncation, decide, diverges
from regnum_model.ids import LeaderEpoch


def end(epoch: int, offset: int) -> EpochEnd:
    return EpochEnd(epoch=LeaderEpoch(epoch), end_offset=offset)


@pytest.mark.parametrize(
    ("of_leader", "of_follower", "log_end", "result"),
    [
        # The follower knows the epoch: whichever log leaves it first.
        (end(5, 156), end(5, 200), 200, Truncation(156, done=True)),
        (end(5, 172), end(5, 200), 200, Truncation(172, done=True)),
        (end(5, 250), end(5, 190), 200, Truncation(190, done=True)),
        # It knows nothing as old.
        (end(4, 156), end(-1, -1), 200, Truncation(156, done=True)),
        (end(4, 202), end(-1, -1), 200, Truncation(200, done=True)),
        # The leader cannot tell: from the high watermark.
        (end(-1, -1), end(-1, -1), 200, Truncation(100, done=True)),
        # The leader knows nothing as old, but where its log begins.
        (end(-1, 150), end(3, 170), 200, Truncation(150, done=True)),
        # Another epoch on either side (KIP-279): back to the end of the follower's older one, and ask again.
        (end(4, 190), end(3, 120), 200, Truncation(120, done=False)),
    ],
)
def test_decision(of_leader: EpochEnd, of_follower: EpochEnd, log_end: int, result: Truncation) -> None:
    assert decide(of_leader, of_follower=of_follower, log_end=log_end, high_watermark=100) == result


@pytest.mark.parametrize(
    ("of_leader", "last_epoch", "offset", "result"),
    [
        (end(5, 200), 5, 200, False),
        (end(5, 250), 5, 200, False),
        (end(5, 199), 5, 200, True),
        (end(4, 250), 5, 200, True),
        (end(-1, -1), 5, 200, True),
        (end(-1, -1), -1, 0, False),
    ],
)
def test_divergence(*, of_leader: EpochEnd, last_epoch: int, offset: int, result: bool) -> None:
    assert diverges(of_leader, last_fetched_epoch=LeaderEpoch(last_epoch), fetch_offset=offset) is result


def logs_agree_after_rounds(leader: list[int], follower: list[int]) -> list[int]:
    """Run the protocol on logs given as the epoch of each record; returns what the follower keeps."""

    def cache(log: list[int]) -> EpochCache:
        entries = EpochCache()
        for offset, epoch in enumerate(log):
            entries = entries.assign(LeaderEpoch(epoch), offset)
        return entries

    for _ in range(10):
        if not follower:
            return follower
        last = LeaderEpoch(follower[-1])
        answer = cache(leader).end_offset_for(last, log_end_offset=len(leader))
        if not diverges(answer, last_fetched_epoch=last, fetch_offset=len(follower)):
            return follower
        own = cache(follower).end_offset_for(answer.epoch, log_end_offset=len(follower))
        follower = follower[: decide(answer, of_follower=own, log_end=len(follower), high_watermark=0).offset]
    raise AssertionError("no agreement in ten rounds")


@pytest.mark.parametrize(
    ("leader", "follower", "kept"),
    [
        ([0, 0, 2, 2], [0, 0, 1, 1, 1], [0, 0]),
        ([0, 0, 3], [0, 0, 1, 2, 2], [0, 0]),
        ([0, 1, 1, 4], [0, 1, 2, 2, 3], [0, 1]),
        ([0, 0, 0], [0, 0, 0], [0, 0, 0]),
        ([0, 0, 0], [0, 0], [0, 0]),
        ([], [0, 0], []),
        ([5], [0, 0], []),
    ],
)
def test_after_fast_failovers_the_follower_keeps_the_common_prefix(
    leader: list[int], follower: list[int], kept: list[int]
) -> None:
    assert logs_agree_after_rounds(leader, follower) == kept
    assert leader[: len(kept)] == kept
