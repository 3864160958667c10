"""`regnum status` of what brokers do: all for programs, a line each for people, a word where one is silent."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from regnum.broker.v1 import figures_pb2
from regnum.types.v1 import errors_pb2
from regnum_client import Admin
from regnum_client.admin.health.figures import BrokerFigures, figures_of
from regnum_client.commands.status.figures import LINE_COLUMNS, figure_rows, line, size, span
from regnum_client.commands.status.shown import headline
from regnum_model.wire_times import duration_of
from regnum_service.errors import RegnumError
from regnum_testing.fake_cluster import FakeCluster


def said(**changed: object) -> BrokerFigures:
    """A broker that is busy."""
    told: dict[str, Any] = {
        "broker_id": 2,
        "uptime": duration_of(90_061),
        "metadata_controller_epoch": 4,
        "metadata_version": 95,
        "replicas": 30,
        "leading": 10,
        "log_bytes": 1_234_567_890,
        "log_segments": 31,
        "produced_bytes_per_second": 2_500_000.0,
        "produced_records_per_second": 24_000.4,
        "produce_p99": duration_of(0.012),
        "loop_lag_max": duration_of(0.003),
        "resident_bytes": 87_654_321,
        "open_files": 120,
        "connections": 7,
    }
    return figures_of(figures_pb2.DescribeFiguresResponse(**(told | changed)))


def test_a_line_says_what_matters_in_short() -> None:
    (row,) = figure_rows({2: said()}, None)
    assert row["produced_records_s"] == 24_000.4
    shown = line(row)
    assert set(shown) == set(LINE_COLUMNS)
    assert (shown["in"], shown["out"]) == ("24000/s 2.5 MB/s", "0/s 0 B/s")
    assert (shown["logs"], shown["memory"]) == ("1.23 GB in 31", "87.7 MB")
    assert (shown["produce_p99"], shown["loop_lag"], shown["uptime"]) == ("12 ms", "3 ms", "1 d 1 h")
    assert shown["metadata_lag"] == "?", "nobody knows without a controller"


@pytest.mark.parametrize(
    ("brokers", "problems", "first"),
    [
        ([{"broker": 1}, {"broker": 2}], (), "all is well, 2 of 2 brokers ready"),
        (
            [{"broker": 1, "not_ready_because": "it catches up"}, {"broker": 2}],
            ("a is offline",),
            "not well, 1 of 2 brokers ready: a is offline",
        ),
        ([{"broker": 1, "error": "x"}], ("a", "b", "c"), "not well, 0 of 1 brokers ready: a (and 2 more)"),
    ],
)
def test_the_first_line_says_whether_all_is_well(
    brokers: list[dict[str, Any]], problems: tuple[str, ...], first: str
) -> None:
    assert headline(brokers, problems) == first


def test_a_broker_without_produce_calls_has_no_p99() -> None:
    (row,) = figure_rows({2: said(produce_p99=None)}, None)
    assert (row["produce_p99_s"], line(row)["produce_p99"]) == (None, "")


def test_a_broker_that_does_not_answer_has_a_row_with_the_reason() -> None:
    error = RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "no answer")
    rows = figure_rows({2: error, 1: said(broker_id=1)}, None)
    assert [row["broker"] for row in rows] == [1, 2]
    assert rows[1] == {"broker": 2, "error": "REQUEST_TIMED_OUT: no answer"}
    assert line(rows[1])["leads"] == "(REQUEST_TIMED_OUT)"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (999.7, "1 kB"), (1_000, "1 kB"), (12_345, "12.3 kB"), (5e20, "500000 PB")],
)
def test_sizes_have_three_digits(count: float, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (61, "1 min 1 s"), (7_260, "2 h 1 min"), (266_400, "3 d 2 h")]
)
def test_times_have_two_units(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        yield running


async def test_brokers_from_before_there_were_figures_say_so_and_nobody_else_is_kept_from_answering(
    cluster: FakeCluster,
) -> None:
    async with Admin(cluster.bootstrap) as admin:
        figures = await admin.describe_figures()
    assert set(figures) == set(cluster.brokers)
    assert all(isinstance(one, RegnumError) for one in figures.values())
