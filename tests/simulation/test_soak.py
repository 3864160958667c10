"""The scoreboard is made from results alone, and the page has it."""

from collections.abc import Iterator

from regnum_testing.simulation.run import Outcome
from regnum_testing.simulation.soak import PAGE, Soak, counted, page_with, scoreboard, soaked


def outcome(seed: int, *found: str) -> Outcome:
    return Outcome(
        seed=seed,
        found=list(found),
        sent=120,
        acknowledged=100,
        read=90,
        epochs=7,
        simulated_s=1800.0,
        calm_s=1.0,
        messages=1,
        struck={"kill": 2, "power": 1},
        trace="",
        cpu_s=4.0,
        log=[],
    )


def test_the_page_has_the_committed_count() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page_with(page, counted()) == page


def test_a_soak_counts_its_seeds_and_names_those_that_failed() -> None:
    soak = soaked(5, [outcome(5), outcome(6, "lost: 1"), outcome(7)], date="2026-01-02", commit="abc")
    assert (soak.first, soak.last, soak.failed) == (5, 7, (6,))
    assert soak.row() == "| 2026-01-02 | abc | 5 to 7 | 6 | 1.5 | 9 | 21 | 300 |"
    earlier = Soak(date="2026-01-01", commit="abb", first=1, last=4)
    board = scoreboard([earlier, soak]).splitlines()
    assert board[0] == "7 seeds so far, 6 of them clean, 2 simulated hours of clusters under faults."
    assert [line.split(" | ")[1] for line in board[-2:]] == ["abc", "abb"]


def test_what_ran_before_it_was_ended_by_hand_is_counted() -> None:
    def outcomes() -> Iterator[Outcome]:
        yield outcome(5)
        yield outcome(6, "lost: 1")
        raise KeyboardInterrupt

    soak = soaked(5, outcomes(), date="2026-01-02", commit="abc")
    assert (soak.last, soak.failed, soak.acknowledged) == (6, (6,), 200)
