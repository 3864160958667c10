"""Spreads keep every value; growth is judged at its steepest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_bench.figures import Spread, median_between, quantile, ratios, spreads, unit
from regnum_bench.growth import Growth, log_log_slope
from regnum_bench.idle import judged as judged_idle
from regnum_bench.spans import spans_complaints
from regnum_bench.start import judged as judged_start
from regnum_bench.told import judged as judged_told

SIZES = (1_000.0, 5_000.0, 20_000.0)


def growth(*medians: float, sizes: tuple[float, ...] = SIZES) -> Growth:
    return Growth(figure="from_kill_s", size="affected", sizes=sizes, medians=medians)


def test_a_spread_is_of_all_values_in_the_order_in_which_they_came() -> None:
    spread = spreads([{"from_kill_s": 3.0, "led": 1.0}, {"from_kill_s": 1.0}, {"from_kill_s": 2.0}])["from_kill_s"]
    assert (spread.values, spread.median, spread.least, spread.most) == ((3.0, 1.0, 2.0), 2.0, 1.0, 3.0)
    assert Spread.from_json(spread.to_json()) == spread


def test_a_figure_that_some_rounds_lack_has_fewer_values() -> None:
    assert spreads([{"a_s": 1.0}, {"b_s": 2.0}, {"a_s": 3.0}])["a_s"].values == (1.0, 3.0)


@pytest.mark.parametrize(
    ("name", "expected"), [("from_kill_s", "s"), ("detection_ms", "ms"), ("admissions_per_s", "1/s"), ("kills", "")]
)
def test_the_name_of_a_figure_tells_its_unit(name: str, expected: str) -> None:
    assert unit(name) == expected


def test_a_ratio_is_of_medians_and_of_figures_that_belong_together() -> None:
    ours = {"delete_s": Spread(values=(1.0, 2.0, 9.0)), "gone_s": Spread(values=(5.0,))}
    theirs = {"delete_s": Spread(values=(8.0,)), "idle_s": Spread(values=(0.0,)), "away_s": Spread(values=(10.0,))}
    assert ratios(ours, theirs, {"gone_s": "away_s"}) == {"delete_s": 0.25, "gone_s": 0.5}
    assert ratios(ours, theirs, {"gone_s": "idle_s"}) == {"delete_s": 0.25}


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_a_quantile_is_a_value_that_so_large_a_share_does_not_exceed(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-3


def test_the_99_percent_quantile_of_a_hundred_is_the_ninety_ninth() -> None:
    assert quantile([float(number) for number in range(1, 101)], 0.99) == 99.0


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_the_slope_is_the_power_of_the_growth(power: float) -> None:
    assert log_log_slope(SIZES, [size**power * 7 for size in SIZES]) == pytest.approx(power)


@pytest.mark.parametrize(
    ("medians", "verdict"),
    [
        ((0.30, 0.31, 0.30), "flat"),
        ((1.0, 5.0, 20.0), "linear"),
        ((1.0, 2.0, 6.0), "linear"),
        ((1.0, 25.0, 400.0), "worse than linear"),
    ],
)
def test_the_verdict_follows_the_slope(medians: tuple[float, ...], verdict: str) -> None:
    assert growth(*medians).verdict == verdict


def test_a_fixed_cost_does_not_hide_the_growth_at_the_end() -> None:
    """A second of fixed cost: in all less than linear, from the second size to the third quadratic."""
    found = growth(1.0, 1.25, 17.0, sizes=(1_000, 5_000, 20_000))
    assert found.slope < 1.15
    assert found.verdict == "worse than linear"


def test_the_straight_line_begins_at_the_smallest_size() -> None:
    assert growth(2.0, 9.0, 70.0).straight() == (2.0, 10.0, 40.0)


@pytest.mark.parametrize(("sizes", "figures"), [((1, 1), (1, 2)), ((1, 2), (0, 2)), ((1,), (1,)), ((1, 2, 3), (1, 2))])
def test_no_slope_is_made_of_figures_that_have_none(sizes: tuple[float, ...], figures: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="slope"):
        log_log_slope(sizes, figures)


def test_an_idle_broker_is_judged_up_to_ten_thousand_replicas() -> None:
    mib = 1024.0 * 1024.0
    assert judged_idle([0.02], [30 * mib], replicas=10_000) == ()
    both = judged_idle([0.04, 0.05, 0.01], [61 * mib], replicas=10_000)
    assert [said.partition(",")[0] for said in both] == [
        "an idle broker takes 4.0% of a processor",
        "its partitions take 61 MiB",
    ]
    assert judged_idle([0.04], [61 * mib], replicas=10_001) == ()


def test_a_start_is_judged_up_to_what_is_promised() -> None:
    assert judged_start([5.0], [15.0], replicas=5_000, mb=2_000) == ()
    assert judged_start([5.1, 4.0, 6.0], [15.0], replicas=5_000, mb=2_000) == (
        "a start after a clean stop takes 5.1 s, and 5 s are allowed",
    )
    assert judged_start([1.0], [16.0], replicas=500, mb=10) == (
        "a start after kill -9 takes 16.0 s, and 15 s are allowed",
    )
    assert judged_start([50.0], [160.0], replicas=5_001, mb=10) == judged_start([50.0], [160.0], replicas=1, mb=2_001)
    assert judged_start([50.0], [160.0], replicas=5_001, mb=10) == ()


def test_the_median_lies_between_values_that_a_coin_would_leave_out_once_in_twenty_times() -> None:
    assert median_between([1.0] * 5) is None
    assert median_between([6.0, 1.0, 2.0, 5.0, 3.0, 4.0]) == (1.0, 6.0)
    # From the table of the sign test: of twenty values the sixth from either end.
    assert median_between([float(number) for number in range(1, 21)]) == (6.0, 15.0)


def test_pairs_that_show_nothing_are_void_and_say_so() -> None:
    note, void = judged_told([40.0] * 12 + [-3.0])
    assert "40 ms less in the median of 13" in note
    assert void == ()
    assert judged_told([40.0, -40.0] * 8)[1]
    assert judged_told([40.0] * 5)[1]


def test_spans_may_cost_three_per_cent_in_the_median_of_the_pairs() -> None:
    assert spans_complaints({"spans_cost_ratio": Spread(values=(0.5, 0.03, -0.1))}) == ()
    (said,) = spans_complaints({"spans_cost_ratio": Spread(values=(0.031, 0.04, -0.1))})
    assert said.startswith("spans take 3.1% of a batch's processor time")
