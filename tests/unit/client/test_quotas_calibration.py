"""`regnum quotas calibrate`: what is tried, when it ends, what is proposed, and what it refuses to begin."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_client.admin.describing.quota_usage import QueueWait
from regnum_client.commands.quotas.calibrate import document_of
from regnum_client.commands.quotas.calibration import Proposal, Step, next_rate, plot, propose
from regnum_client.commands.quotas.trial import longest
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster

LIMIT_MS = 50.0


def step(offered: float, done: float, wait_ms: float = 5.0, seconds: float = 5.0) -> Step:
    return Step(offered_rate=offered, done_rate=done, seconds=seconds, wait_p99_ms=wait_ms)


def following(*steps: Step, most: float = 1_000.0) -> float | None:
    return next_rate(steps, first=10.0, most=most, wait_max_ms=LIMIT_MS)


def test_rates_grow_by_half_until_one_is_not_borne_or_the_largest_is_reached() -> None:
    assert following() == 10.0
    assert following(step(10.0, 9.5)) == 15.0
    assert following(step(10.0, 7.9)) is None, "the cluster is behind"
    assert following(step(10.0, 10.0, wait_ms=100.0)) is None, "the controller is not quick any more"
    assert following(step(10.0, 10.0), most=14.0) is None


def test_the_proposal_leaves_room_and_says_no_more_than_was_seen() -> None:
    """The example in the module's head."""
    steps = [step(40.0, 40.0), step(60.0, 58.0), step(90.0, 88.0, wait_ms=100.0)]
    assert propose(steps, LIMIT_MS) == Proposal(rate=40.0, burst=290.0)
    assert propose([step(60.0, 58.0, seconds=30.0)], LIMIT_MS) == Proposal(rate=40.0, burst=440.0)
    assert propose([step(10.0, 2.0)], LIMIT_MS) is None


@given(st.lists(st.builds(step, st.floats(1.0, 1e4), st.floats(0.0, 1e4), st.floats(0.0, 1e3)), max_size=12))
def test_nothing_is_proposed_that_was_not_borne(steps: list[Step]) -> None:
    proposal = propose(steps, LIMIT_MS)
    borne = [one for one in steps if one.is_borne(LIMIT_MS)]
    assert (proposal is None) == (not borne)
    if proposal is not None:
        assert 0 < proposal.rate <= max(1.0, *(one.done_rate for one in borne))
        assert proposal.burst >= proposal.rate


def test_the_plot_has_a_bar_for_each_step_and_the_longest_fits_a_terminal() -> None:
    lines = plot([step(10.0, 10.0, wait_ms=5.0), step(15.0, 15.0, wait_ms=math.inf)], LIMIT_MS)
    assert len(lines) == 3
    assert lines[1].count("█") == 4
    assert lines[2].count("█") == 40
    assert "too much" in lines[2]
    assert max(map(len, lines)) < 110


def test_a_time_that_nobody_can_tell_is_no_number_in_the_document() -> None:
    document = document_of((step(10.0, 10.0, wait_ms=math.inf),), None, LIMIT_MS)
    assert document["steps"][0]["wait_p99_ms"] is None
    assert document["proposal"] is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--from", "20", "--to", "10"), "--to 10 is below"),
        (("--png", "/no/such/folder/x.png"), "is no folder"),
    ],
)
async def test_wrong_use_is_said_before_anything_is_tried(options: tuple[str, ...], says: str) -> None:
    async with FakeCluster() as cluster:
        refused = await CommandHere(cluster.bootstrap)("quotas", "calibrate", *options)
        assert refused.status == 2
        assert says in refused.err
        assert cluster.calls["CreateTopics"] == 0


def test_of_few_events_two_that_wait_long_do_not_decide_and_of_many_one_in_a_hundred_does() -> None:
    def waits(*counts: int) -> dict[str, QueueWait]:
        return {"mutations": QueueWait(bounds_s=(0.01, 0.1), counts=counts)}

    nothing = waits(0, 0, 0)
    assert longest(nothing, waits(28, 0, 2)) == 0.01
    assert longest(nothing, waits(27, 0, 3)) == math.inf
    assert longest(nothing, waits(990, 0, 10)) == 0.01
    assert longest(nothing, waits(989, 0, 11)) == math.inf
    assert longest(nothing, waits(0, 0, 1)) == 0.01
    assert longest(nothing, nothing) == 0.0
