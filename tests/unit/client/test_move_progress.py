"""What somebody who waits for moves is told: how far, how fast, and what holds them up."""

from regnum_client.admin.reassignment.progress import LASTS_S, STILL_S, MovesWatched
from regnum_client.admin.reassignment.values import AddedReplica, OngoingReassignment

USUAL = "brokers [3] are not in sync yet"
STUCK = "1 of 2 needed replicas that stay are in sync; [2] are not"
DEAD = "brokers [3] are not live; start them, or cancel it"
PLACES = [("t", number) for number in range(3)]


def one(number: int = 0, *, why: str = USUAL, done: int = 0, total: int | None = 100) -> OngoingReassignment:
    return OngoingReassignment(
        topic="t",
        partition=number,
        replicas=(1, 2, 3),
        origin=(1, 2),
        target=(2, 3),
        phase="moving",
        waits_for=why,
        since_ms=0,
        leader=1,
        isr=(1, 2),
        bytes_total=total,
        bytes_done=done,
        added=(AddedReplica(broker=3, live=True, in_sync=False, log_end_offset=None, bytes=done),),
    )


def test_what_has_arrived_counts_whole() -> None:
    watched = MovesWatched(PLACES)
    assert watched.look([one(0, done=50), one(1)], 0.0).percent == 50.0
    assert watched.look([], 1.0).left == 0


def test_the_rate_and_the_time_are_known_once_bytes_have_come_and_arrived_ones_count() -> None:
    watched = MovesWatched(PLACES)
    first = watched.look([one(0), one(1), one(2)], 0.0)
    assert (first.bytes_per_s, first.left_s) == (None, None)
    second = watched.look([one(1, done=20), one(2)], 10.0)
    assert second.bytes_per_s == 12.0, "100 of the one that is there, 20 of the other"
    assert second.left_s == 15.0
    assert watched.look([one(1, done=20), one(2, total=None)], 11.0).left_s is None, "nobody knows how much it is"


def test_no_time_is_named_for_what_waits_for_an_operator_and_no_rate_where_nothing_comes() -> None:
    watched = MovesWatched(PLACES)
    watched.look([one()], 0.0)
    moving = watched.look([one(done=50)], 10.0)
    assert (moving.bytes_per_s, moving.left_s) == (5.0, 10.0)
    stuck = watched.look([one(done=50, why=DEAD)], 11.0)
    assert stuck.bytes_per_s is not None
    assert stuck.left_s is None
    assert watched.look([one(done=50)], 10.0 + STILL_S).bytes_per_s is None


def test_a_reason_that_passes_by_itself_is_told_when_it_lasts_and_once() -> None:
    watched = MovesWatched(PLACES)
    assert watched.look([one(why=STUCK)], 0.0).news == ()
    assert watched.look([one(why=STUCK)], LASTS_S).news == (f"t/0: {STUCK}",)
    assert watched.look([one(why=STUCK)], LASTS_S + 1).news == ()
    assert watched.look([one(why=STUCK)], LASTS_S + 1).reasons == (f"t/0: {STUCK}",)


def test_a_reason_that_came_back_is_told_again() -> None:
    watched = MovesWatched(PLACES)
    watched.look([one(why=STUCK)], 0.0)
    watched.look([one(why=STUCK)], LASTS_S)
    watched.look([one(why="", done=1)], LASTS_S + 1)
    watched.look([one(why=STUCK, done=1)], LASTS_S + 2)
    assert watched.look([one(why=STUCK, done=1)], 2 * LASTS_S + 2).news != ()


def test_what_an_operator_has_to_do_is_told_at_once_and_first() -> None:
    watched = MovesWatched(PLACES)
    progress = watched.look([one(0, why=USUAL), one(1, why=DEAD), one(2, why=DEAD)], 0.0)
    assert progress.news == (f"t/1 and 1 more: {DEAD}",)
    assert progress.reasons[0] == progress.news[0]


def test_what_every_move_waits_for_is_told_when_nothing_has_come_for_long() -> None:
    watched = MovesWatched(PLACES)
    watched.look([one(done=1)], 0.0)
    assert watched.look([one(done=2)], STILL_S - 1).news == ()
    assert watched.look([one(done=2)], 2 * STILL_S - 2).news == ()
    assert watched.look([one(done=2)], 2 * STILL_S).news == (f"t/0: {USUAL}",)


def test_no_more_than_three_reasons_are_told_at_a_time() -> None:
    watched = MovesWatched([("t", number) for number in range(9)])
    left = [one(number, why=f"{DEAD} {number}") for number in range(9)]
    assert len(watched.look(left, 0.0).news) == 3
    assert len(watched.look(left, 1.0).news) == 3
