"""The benchmarks of reassignment and listing: what is worked out, what is judged, what is refused."""

import asyncio
import sys
from pathlib import Path

import pytest
from regnum_bench.arrivals import (
    Look,
    NothingArrivedError,
    arrival,
    arrived_bytes,
    by_seconds,
    judged,
    latency_figures,
    medians_by_seconds,
    move_figures,
    ratio_of_medians,
)
from regnum_bench.listing import judged as judged_listing
from regnum_bench.paced import numbered
from regnum_bench.reassignment import log_sizes, placed_on, swapped
from regnum_bench.shape import Shape
from regnum_bench.timed_program import ran
from regnum_bench.waiting import MeasureError
from regnum_local.demo.workload import decode_number

MB = 1_000_000


def looks(*seen: tuple[float, float]) -> list[Look]:
    """Of (seconds, megabytes)."""
    return [Look(at_s=at_s, arrived_bytes=round(mb * MB)) for at_s, mb in seen]


def test_a_rate_is_from_the_last_look_that_saw_nothing_to_the_first_that_saw_all() -> None:
    found = arrival(looks((10.0, 0), (11.0, 0), (12.0, 2), (13.0, 3), (14.0, 4), (20.0, 4)))
    assert (found.moved_bytes, found.taken_s, found.bytes_per_s) == (4 * MB, 3.0, pytest.approx(4 / 3 * MB))


@pytest.mark.parametrize(
    "seen",
    [
        # A bucket that is full at first: two megabytes at once, and then one a second for four seconds.
        looks((0.0, 0), (0.01, 2), (1.0, 3), (2.0, 4), (3.0, 5), (4.0, 6)),
        # Overdrawn at first by two who ask at once, and paid for.
        looks((0.0, 0), (0.01, 4), (1.0, 4), (2.0, 4), (3.0, 5), (4.0, 6)),
    ],
)
def test_the_burst_of_a_throttle_is_not_taken_for_its_rate(seen: list[Look]) -> None:
    figures = move_figures(arrival(seen), throttle_bytes_s=MB, burst_s=2.0)
    assert figures["moved_of_throttle_ratio"] == pytest.approx(6 / 4)
    assert figures["throttle_ratio"] == pytest.approx(1.0)


def test_most_within_a_second_is_told() -> None:
    found = arrival(looks((0.0, 0), (0.5, 1), (1.4, 5), (1.6, 6), (2.5, 7), (4.0, 7)))
    assert found.peak_bytes == 4 * MB


def test_without_a_throttle_nothing_is_said_of_one() -> None:
    figures = move_figures(arrival(looks((0.0, 0), (1.0, 5))), throttle_bytes_s=0, burst_s=1.0)
    assert figures == {"moved_bytes": 5 * MB, "arrival_s": 1.0, "moved_mb_s": 5.0}


def test_what_is_all_burst_has_no_rate_beyond_it() -> None:
    assert arrival(looks((0.0, 0), (0.1, 1))).of_throttle(MB, 9 * MB) == 0.0


@pytest.mark.parametrize("seen", [[], looks((0.0, 0), (1.0, 0)), looks((0.0, 3), (1.0, 3))])
def test_looks_that_saw_no_byte_arrive_have_no_rate(seen: list[Look]) -> None:
    with pytest.raises(NothingArrivedError):
        arrival(seen)


def test_records_that_came_after_the_move_was_asked_for_do_not_count() -> None:
    assert arrived_bytes({0: 150, 1: 40, 9: 1_000}, {0: 100, 1: 80, 2: 50}) == 140


def test_what_arrived_is_told_by_seconds() -> None:
    assert by_seconds(looks((5.0, 0), (5.5, 1), (6.2, 2), (7.0, 3), (7.4, 4))) == [0.0, 2.0, 3.0, 4.0]


def test_a_late_look_stands_for_the_seconds_that_went_by() -> None:
    assert by_seconds(looks((5.0, 0), (8.1, 6), (8.2, 6))) == [0.0, 6.0, 6.0, 6.0, 6.0]


def test_acknowledgements_are_told_by_the_second_in_which_their_records_were_due() -> None:
    timed = [(10.0, 0.01), (10.9, 0.03), (10.2, 0.02), (12.5, 0.5)]
    assert medians_by_seconds(timed, 10.0) == [20.0, None, 500.0]
    assert medians_by_seconds([], 10.0) == []


def pair(**figures: float) -> dict[str, float]:
    usual = {"throttle_ratio": 1.0, "before_p99_ms": 10.0, "during_p99_ms": 12.0, "bench_late_s": 0.01}
    return {**usual, **figures}


def test_what_is_promised_is_kept_or_complained_of() -> None:
    assert judged([pair()], throttled=True, others_ratio=0.0) == ((), ())
    too_fast, too_slow = pair(throttle_ratio=1.11), pair(throttle_ratio=0.89)
    for wrong in (too_fast, too_slow):
        ((complaint,), void) = judged([pair(), wrong, pair()], throttled=True, others_ratio=0.0)
        assert "times the throttle" in complaint
        assert void == ()
    ((complaint,), _) = judged([pair(during_p99_ms=15.1)], throttled=True, others_ratio=0.0)
    assert complaint.startswith("p99 of acknowledgements was 1.51 times")


def test_one_slow_pair_of_several_is_no_broken_promise() -> None:
    rounds = [pair(), pair(during_p99_ms=300.0), pair()]
    assert ratio_of_medians(rounds) == pytest.approx(1.2)
    assert judged(rounds, throttled=True, others_ratio=0.0) == ((), ())


def test_without_a_throttle_nothing_is_promised() -> None:
    figures = pair(during_p99_ms=500.0)
    del figures["throttle_ratio"]
    assert judged([figures], throttled=False, others_ratio=0.0) == ((), ())


def test_a_broken_promise_on_a_machine_that_others_use_is_void_and_no_complaint() -> None:
    complaints, (reason,) = judged([pair(throttle_ratio=0.5)], throttled=True, others_ratio=0.3)
    assert complaints == ()
    assert reason.endswith("but other programs had 30% of the processors")


def test_a_bench_that_was_late_itself_makes_a_run_void() -> None:
    complaints, (reason,) = judged([pair(), pair(bench_late_s=0.06)], throttled=True, others_ratio=0.0)
    assert complaints == ()
    assert reason == "this process was late by 60 ms while nothing was moved"


def test_latencies_are_told_before_and_while_partitions_are_moved() -> None:
    figures = latency_figures([0.001] * 98 + [0.5, 0.5], [0.002] * 100)
    assert figures == {
        "before_p50_ms": 1.0,
        "before_p99_ms": 500.0,
        "during_p50_ms": 2.0,
        "during_p99_ms": 2.0,
        "p99_ratio": pytest.approx(0.004),
    }


def test_every_partition_has_a_replica_at_the_source_which_leads_its_share() -> None:
    shape = Shape(brokers=4, topics=2, partitions=30)
    placed = placed_on(shape, (1, 2, 3), source=1)
    replicas = [placed[name][number] for name in shape.names for number in range(30)]
    assert all(sorted(members) == [1, 2, 3] for members in replicas)
    assert sum(members[0] == 1 for members in replicas) == 20
    assert swapped((2, 1, 3), 1, 4) == (2, 4, 3)
    lone = placed_on(Shape(brokers=4, topics=1, partitions=5, replication_factor=1), (1, 2, 3), source=1)
    assert set(lone["bench-00000"].values()) == {(1,)}


def test_only_logs_count_and_a_replica_that_is_not_there_has_no_size(tmp_path: Path) -> None:
    (tmp_path / "a-0").mkdir()
    for name, size in (("0.log", 10), ("9.log", 5), ("0.index", 700)):
        (tmp_path / "a-0" / name).write_bytes(bytes(size))
    (tmp_path / "a-2").mkdir()
    assert log_sizes(tmp_path, ("a-0", "a-1", "a-2")) == {0: 15, 2: 0}


@pytest.mark.parametrize("size", [1, 5, 1_000])
def test_a_value_has_its_number_and_its_size(size: int) -> None:
    assert decode_number(numbered(123, size)) == 123
    assert len(numbered(123, size)) == max(size, 4)


def test_a_listing_that_takes_too_long_is_complained_of_where_it_was_promised() -> None:
    assert judged_listing([0.9, 1.0, 5.0], topics=20_000, others_ratio=0.0) == ((), ())
    ((complaint,), void) = judged_listing([1.1], topics=20_000, others_ratio=0.05)
    assert (complaint, void) == ("20,000 topics were listed in 1.10 s, and 1 s is allowed", ())
    (complaints, (reason,)) = judged_listing([1.1], topics=20_000, others_ratio=0.2)
    assert complaints == ()
    assert reason.endswith("other programs had 20% of the processors")
    assert judged_listing([9.0], topics=100_000, others_ratio=0.0) == ((), ())


async def test_a_program_is_timed_with_what_it_used() -> None:
    found = await ran((sys.executable, "-c", "print(sum(range(3_000_000)))"), within_s=60.0)
    assert found.output == "4499998500000\n"
    assert found.cpu_s > 0
    assert found.wall_s > 0
    assert found.memory_bytes > 1_000_000


async def test_a_program_that_fails_or_hangs_says_nothing_of_its_time() -> None:
    with pytest.raises(MeasureError, match=r"ended with 3 .*: so it is"):
        await ran((sys.executable, "-c", "import sys; sys.stderr.write('so it is'); sys.exit(3)"), within_s=60.0)
    async with asyncio.timeout(60):
        with pytest.raises(MeasureError, match="ended with -9"):
            await ran(("sleep", "600"), within_s=0.1)
