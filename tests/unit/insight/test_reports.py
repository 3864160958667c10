"""Tables, files and the page of known changes; and what a comparison of two sets says."""

import csv
import json
import os
import random
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from regnum_insight.engine import analyse
from regnum_insight.reporting.comparing import CHANGES_MIN, compare, comparison_text, differences
from regnum_insight.reporting.files import CSV, JSON, PAGE, ZIPKIN, document_of, text_of, write_files
from regnum_insight.reporting.page import page_of, verdict
from regnum_insight.reporting.statistics import difference, percentile
from regnum_insight.reporting.svg import ticks
from regnum_insight.reporting.text import chain_lines
from regnum_insight.reporting.timing import COLUMNS, change_of_partition, timing_text
from regnum_insight.spans.otlp import Process
from regnum_telemetry import conventions as names
from regnum_testing.change_traces import FULL_STEPS_MS, STEPS_MS, ChangeTrace, FullChangeTrace
from regnum_testing.otlp_lines import Spans, line, succession

WHOLE_MS = sum(STEPS_MS.values())


def write_changes(folder: Path, n: int, *, seed: int = 1, first: int = 1, **more_ms: float) -> None:
    """So many changes whose steps vary by a tenth; ``more_ms`` is added to steps of all."""
    chance = random.Random(seed)
    for trace in range(first, first + n):
        steps = {step: ms * chance.uniform(0.9, 1.1) + more_ms.get(step, 0.0) for step, ms in STEPS_MS.items()}
        ChangeTrace(trace, steps_ms=steps, before_ms=trace * 1000.0).write(folder / str(trace))


class Page(HTMLParser):
    """Collects what a page would fetch, and the figures that it carries."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.totals: dict[str, float] = {}
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        self.fetched += [value for name, value in attrs if name in {"src", "href", "data"} and value]
        if tag in {"script", "link", "iframe", "img", "object"}:
            self.fetched.append(tag)
        if "data-trace" in about:
            self.totals[about["data-trace"] or ""] = float(about["data-total-ms"] or 0)


def test_the_files_agree_with_one_another(tmp_path):
    write_changes(tmp_path / "traces", 3)
    analysis = analyse(tmp_path / "traces")
    write_files(analysis, tmp_path / "out", source="traces", now_s=1_800_000_000)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {PAGE, JSON, CSV, ZIPKIN}
    told = json.loads((tmp_path / "out" / JSON).read_text(encoding="utf-8"))
    with (tmp_path / "out" / CSV).open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    page = Page()
    page.feed((tmp_path / "out" / PAGE).read_text(encoding="utf-8"))
    assert told == json.loads(json.dumps(document_of(analysis, tmp_path / "out")))
    assert len(told["failovers"]) == 3
    for row in told["failovers"]:
        assert sum(row["stages_ms"].values()) == pytest.approx(row["total_ms"], abs=1e-4)
        assert page.totals[row["trace_id"]] == pytest.approx(row["total_ms"], abs=1e-5)
        of = [
            float(entry["ms"])
            for entry in lines
            if entry["trace_id"] == row["trace_id"] and entry["partition"] == row["worst"]
        ]
        assert sum(of) == pytest.approx(row["total_ms"], abs=1e-4)
    assert page.fetched == []


def test_a_file_whose_name_is_no_text_keeps_no_report_from_being_written(tmp_path):
    write_changes(tmp_path / "traces", 1)
    (tmp_path / "traces" / os.fsdecode(b"\xff.jsonl")).write_bytes(b"torn\n")
    analysis = analyse(tmp_path / "traces")
    write_files(analysis, tmp_path / "out", source="traces", now_s=1_800_000_000)
    assert "\\udcff.jsonl" in (tmp_path / "out" / PAGE).read_text(encoding="utf-8")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {PAGE, JSON, CSV, ZIPKIN}


def test_a_name_is_never_markup(tmp_path):
    ChangeTrace().write(tmp_path)
    for path in tmp_path.iterdir():
        text = path.read_text(encoding="utf-8").replace('"orders"', '"<script>alert(1)</script>"')
        path.write_text(text, encoding="utf-8")
    page = page_of(analyse(tmp_path), made="now", source="<b>")
    assert "<script" not in page
    assert "<b>" not in page


def test_a_page_of_very_many_changes_is_bounded(tmp_path):
    of = ChangeTrace().documents()
    text = "\n".join(
        line(spans, service=f"regnum-{name.split()[0]}", instance=name.split()[1]) for name, spans in of.items()
    )
    repeated = "\n".join(text.replace(f"{1:032x}", f"{n:032x}") for n in range(1, 601))
    (tmp_path / "all.jsonl").write_text(repeated, encoding="utf-8")
    analysis = analyse(tmp_path)
    assert len(analysis.changes) == 600
    page = page_of(analysis, made="now", source="traces")
    assert len(page.encode()) < 400_000
    assert "of 600" in page
    lines = text_of(analysis, tmp_path).splitlines()
    assert lines[0] == "changes of leaders, the longest 500 of 600 (ms)"
    assert lines.index("") == 2 + 500, "a line above them, and an empty one behind them"


def test_the_terminal_shows_the_chain_with_every_millisecond(tmp_path):
    ChangeTrace().write(tmp_path / "one")
    (tmp_path / "two.jsonl").write_text(line(succession(3, 500), service="regnum-election"), encoding="utf-8")
    analysis = analyse(tmp_path)
    text = text_of(analysis, Path("/out"))
    assert "changes of leaders" in text
    assert "changes of controllers" in text
    assert "orders/0 waited 85.0 ms" in text
    lengths = [
        float(found[1])
        for entry in chain_lines(analysis.changes[0].worst)
        if (found := re.search(r" (\d+\.\d)", entry))
    ]
    assert sum(lengths[:-1]) == pytest.approx(WHOLE_MS, abs=0.6)
    assert lengths[-1] == pytest.approx(WHOLE_MS)


def test_without_changes_it_says_so(tmp_path):
    (tmp_path / "empty.jsonl").write_text(line([]), encoding="utf-8")
    analysis = analyse(tmp_path)
    assert "No change of leadership" in text_of(analysis, tmp_path)
    assert "no client that left spans had to wait" in verdict(analysis.changes)
    assert page_of(analysis, made="now", source="traces")


def test_a_delay_in_the_store_is_what_a_comparison_names_first(tmp_path):
    write_changes(tmp_path / "before", 12, seed=1)
    write_changes(tmp_path / "after", 12, seed=2, written=100.0)
    compared = compare(analyse(tmp_path / "before").changes, analyse(tmp_path / "after").changes)
    assert next(step.step for step in compared.steps if step.is_clear) == "written"
    assert compared.steps[0].of.value == pytest.approx(100, abs=5)
    assert comparison_text(compared).startswith("failures: written differs most: by +")


@pytest.mark.full
def test_equal_sets_seldom_differ(tmp_path):
    raised = 0
    for pair in range(20):
        for side in (0, 1):
            write_changes(tmp_path / f"{pair}-{side}", 8, seed=100 + 2 * pair + side)
        one, other = (analyse(tmp_path / f"{pair}-{side}").changes for side in (0, 1))
        raised += any(step.is_clear for step in compare(one, other).steps)
    assert raised <= 1


@pytest.mark.parametrize("n", [5, CHANGES_MIN])
def test_few_lengths_of_one_distribution_seldom_differ(n):
    raised = 0
    for seed in range(60):
        chance = random.Random(seed)
        one, other = ({step: [chance.uniform(900, 1100) for _ in range(n)] for step in FULL_STEPS_MS} for _ in "ab")
        raised += any(step.is_clear for step in differences(one, other))
    assert raised <= 1


def test_failures_are_compared_with_failures_whatever_share_planned_changes_have(tmp_path):
    slower = {**FULL_STEPS_MS, "written": FULL_STEPS_MS["written"] + 90}
    FullChangeTrace(1, kind=names.KIND_BALANCE).write(tmp_path / "planned")
    FullChangeTrace(2).write(tmp_path / "failure")
    FullChangeTrace(3, steps_ms=slower).write(tmp_path / "slower")
    (balance,), (failure,), (late,) = (analyse(tmp_path / name).changes for name in ("planned", "failure", "slower"))
    compared = compare([failure] * 9 + [balance] * 30, [late] * 9 + [balance] * 30)
    assert [step.step for step in compared.steps if step.is_clear] == ["written", "all"]
    assert not any(step.is_clear for step in compared.planned)
    text = comparison_text(compared)
    assert text.startswith("failures: written differs most: by +90.0 ms")
    assert "\nplanned changes: no step differs\n" in text
    other_share = compare([failure] * 9 + [balance] * 8, [failure] * 8 + [balance] * 30)
    assert not any(step.is_clear for step in (*other_share.steps, *other_share.planned))
    assert "planned changes" not in comparison_text(compare([failure], [failure]))
    assert comparison_text(compare([], [])) == "no change to compare"


def test_few_changes_say_nothing(tmp_path):
    write_changes(tmp_path / "before", 2)
    write_changes(tmp_path / "after", 2, written=500.0)
    compared = compare(analyse(tmp_path / "before").changes, analyse(tmp_path / "after").changes)
    assert not any(step.is_clear for step in compared.steps)
    assert "too few changes" in comparison_text(compared)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 5), (0.9, 9), (0.99, 10), (1.0, 10), (0.01, 1)])
def test_percentiles_are_of_the_nearest_rank(share, expected):
    assert percentile(list(range(1, 11)), share) == expected


def test_an_interval_is_the_same_each_time():
    one, other = [1.0, 2.0, 3.0, 4.0, 5.0], [11.0, 12.0, 13.0, 14.0, 15.0]
    assert difference(one, other) == difference(one, other)
    assert difference(one, other).is_clear
    assert not difference(one, one).is_clear


@pytest.mark.parametrize(("begin", "end"), [(0, 94.9), (0, 2727), (0, 0.4), (3, 3), (0, 1e6)])
def test_ticks_are_few_round_and_within(begin, end):
    found = ticks(begin, end)
    assert 1 <= len(found) <= 13
    assert all(begin <= tick <= end for tick in found)


def test_outages_that_no_change_names_are_no_changes(tmp_path):
    ChangeTrace().write(tmp_path)
    spans = Spans(4)
    spans.add(names.OUTAGE, 0, 80, **{names.TOPIC: "t", names.PARTITION: "0", names.RETRIED: True})
    (tmp_path / "apart.jsonl").write_text(line(spans.made, service="client"), encoding="utf-8")
    assert verdict(analyse(tmp_path).changes).startswith(
        "In 1 change of leadership and 1 outage that no change names clients waited"
    )


def test_zipkins_form_has_every_span_of_the_longest_changes_and_marks_the_path(tmp_path):
    FullChangeTrace(links=[f"{9:032x}"]).write(tmp_path / "traces")
    analysis = analyse(tmp_path / "traces")
    write_files(analysis, tmp_path / "out", source="traces", now_s=1_800_000_000)
    spans = {span["id"]: span for span in json.loads((tmp_path / "out" / ZIPKIN).read_text(encoding="utf-8"))}
    assert set(spans) == {span.span_id for span in analysis.pictured[f"{1:032x}"]}
    assert all(span["duration"] >= 1 and len(span["traceId"]) == 32 for span in spans.values())
    root = next(span for span in spans.values() if span["name"] == names.LEADERSHIP_CHANGE)
    assert root["tags"]["otlp.link.0"].startswith(f"{9:032x}|")
    assert {span["parentId"] for span in spans.values() if "parentId" in span} <= set(spans)
    path = {span["name"] for span in spans.values() if span["tags"].get("regnum.chain") == "worst"}
    assert {names.BECOME_LEADER, names.FIRST_APPEND, names.DETECTION, names.STORE_WRITE, names.BACKOFF} <= path


def test_the_page_shows_planned_moves_beside_failures_and_what_wrote_the_traces(tmp_path):
    FullChangeTrace(1).write(tmp_path / "1")
    FullChangeTrace(2, kind=names.KIND_BALANCE, partitions=9).write(tmp_path / "2", ahead_ms={"broker 2": 500.0})
    page = page_of(analyse(tmp_path), made="now", source="traces")
    for heading in (
        "Planned moves beside failures",
        "New leaders compared",
        "Growth with partitions",
        "Steps over time",
    ):
        assert heading in page
    assert "clock corrected" in page
    assert 'class="k-server path"' in page


def test_one_change_of_a_partition_fits_a_terminal(tmp_path):
    trace = FullChangeTrace(links=[f"{9:032x}"])
    trace.unfinished()
    trace.write(tmp_path / "1", without=["client 7"], ahead_ms={"broker 2": 500.0})
    FullChangeTrace(2, kind=names.KIND_ELECTION, before_ms=5_000).write(tmp_path / "2")
    changes = analyse(tmp_path).changes
    change, chain = change_of_partition(changes, "orders", 1)
    assert (change.kind, chain.name, chain.seen_by) == (names.KIND_ELECTION, "orders/1", "producer")
    first, waited = change_of_partition(changes, "orders", 0, f"{1:032x}")
    text = timing_text("orders/0", first, waited)
    assert "its consumer waited" in text
    assert "unfinished" in text
    assert f"belongs together with {9:032x}" in text
    assert "of which journal" in text
    assert all(len(line) <= COLUMNS for line in text.splitlines())
    assert change_of_partition(changes, "orders", 7) is None


def test_a_comparison_says_which_versions_and_zones_wrote():
    wrote = ({Process("broker 1", "0.1.0", "a")}, {Process("broker 1", "0.2.0", "a")})
    assert compare([], [], wrote=wrote).around == ("versions of processes: 0.1.0 (1) before, 0.2.0 (1) after",)
