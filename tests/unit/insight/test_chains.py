"""Chains of a change whose every boundary is known: sums, clocks, and what is missing."""

import json
import random
import statistics
from pathlib import Path

import pytest
from regnum_insight.attribution.changes import UNKNOWN_KIND, UNTRACED, Change, spread_of
from regnum_insight.engine import analyse
from regnum_telemetry import conventions as names
from regnum_testing.change_traces import STEPS_MS, ChangeTrace
from regnum_testing.otlp_lines import Spans, line, succession


def changes_in(folder: Path) -> list[Change]:
    return list(analyse(folder).changes)


def only(folder: Path) -> Change:
    (change,) = changes_in(folder)
    return change


def lengths(change: Change) -> dict[str, float]:
    return {step: round(ms, 6) for step, ms in change.steps_ms.items()}


def test_the_chain_of_the_worst_partition_is_a_path_that_adds_up(tmp_path):
    ChangeTrace().write(tmp_path)
    change = only(tmp_path)
    assert (change.kind, change.cause, change.victim, change.partitions) == (
        names.KIND_BROKER_FAILURE,
        "lifeline broken",
        "broker 1",
        2,
    )
    assert lengths(change) == STEPS_MS
    assert [chain.name for chain in change.chains] == ["orders/0", "orders/1"]
    assert change.total_ms == change.outage_ms == pytest.approx(sum(STEPS_MS.values()))
    assert change.chains[1].outage_ms == pytest.approx(sum(STEPS_MS.values()) - 4)
    assert change.before_ms == pytest.approx(STEPS_MS["noticed"])
    assert change.complete


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 9])
def test_the_spread_of_a_step_is_that_of_its_lengths_in_any_order(tmp_path, partitions):
    ChangeTrace().write(tmp_path)
    chain = only(tmp_path).worst
    lengths_ms = random.Random(partitions).sample(range(100), partitions)
    segments = [chain.segments[0]._replace(step="leads", ms=float(ms)) for ms in lengths_ms]
    spread = spread_of([chain._replace(segments=(segment,)) for segment in segments])
    assert spread == {"leads": (partitions, min(lengths_ms), statistics.median(lengths_ms), max(lengths_ms))}


@pytest.mark.parametrize("step", [step for step in STEPS_MS if step != "learned"])
@pytest.mark.parametrize("delay_ms", [50.0, 200.0])
def test_a_delay_moves_its_own_step_and_no_other(tmp_path, step, delay_ms):
    slower = {**STEPS_MS, step: STEPS_MS[step] + delay_ms}
    ChangeTrace(steps_ms=slower).write(tmp_path)
    assert lengths(only(tmp_path)) == slower


def test_order_and_repetition_of_spans_change_nothing(tmp_path):
    trace = ChangeTrace()
    trace.write(tmp_path / "plain")
    chance = random.Random(7)
    (tmp_path / "mixed").mkdir()
    files = [(process, spans) for process, spans in trace.documents().items()] * 2
    chance.shuffle(files)
    for position, (process, spans) in enumerate(files):
        chance.shuffle(spans)
        kind, instance = process.split()
        service = kind if kind == "client" else f"regnum-{kind}"
        text = "\n".join(line([span], service=service, instance=instance) for span in spans)
        (tmp_path / "mixed" / f"{position}.jsonl").write_text(f"{text}\n{text[:90]}", encoding="utf-8")
    assert changes_in(tmp_path / "mixed") == changes_in(tmp_path / "plain")


@pytest.mark.parametrize("process", ["client 7", "election 1", "broker 2"])
@pytest.mark.parametrize("ahead_ms", [-500.0, -100.0, -20.0, 20.0, 100.0, 500.0])
def test_clocks_that_differ_leave_every_step_within_its_bound_and_are_mentioned(tmp_path, process, ahead_ms):
    ChangeTrace().write(tmp_path, ahead_ms={process: ahead_ms})
    change = only(tmp_path)
    assert change.total_ms == pytest.approx(sum(STEPS_MS.values()))
    assert sum(segment.ms for segment in change.worst.segments) == pytest.approx(change.total_ms)
    for segment in change.worst.segments:
        assert segment.bound_ms is not None
        assert abs(segment.ms - STEPS_MS[segment.step]) <= segment.bound_ms + 1e-6, segment
    assert any(note.ahead_ms or (note.bound_ms or 0) >= abs(ahead_ms) for note in change.clocks)


def test_equal_clocks_are_not_corrected(tmp_path):
    ChangeTrace().write(tmp_path)
    assert {note.ahead_ms for note in only(tmp_path).clocks} <= {0.0}


def test_a_step_shorter_than_its_bound_is_uncertain(tmp_path):
    ChangeTrace().write(tmp_path)
    segments = {segment.step: segment for segment in only(tmp_path).worst.segments}
    assert not segments["detected"].uncertain
    assert segments["detected"].bound_ms == 0
    assert segments["received"].bound_ms > 0


@pytest.mark.parametrize("process", ["client 7", "election 1", "broker 2", "broker 3"])
def test_the_change_is_listed_whatever_file_is_lost(tmp_path, process):
    ChangeTrace().write(tmp_path, without=[process])
    change = only(tmp_path)
    assert change.trace_id == f"{1:032x}"
    assert sum(segment.ms for segment in change.worst.segments) == pytest.approx(change.total_ms)


def test_without_the_controllers_file_its_part_is_unexplained_and_never_zero(tmp_path):
    ChangeTrace().write(tmp_path, without=["election 1"])
    change = only(tmp_path)
    assert change.kind == UNKNOWN_KIND
    assert change.total_ms == pytest.approx(sum(STEPS_MS.values()))
    known = sum(STEPS_MS[step] for step in ("leads", "learned", "sent", "appended", "acknowledged"))
    assert change.worst.unexplained_ms == pytest.approx(sum(STEPS_MS.values()) - known)
    assert "unexplained" in change.steps_ms


def test_without_a_client_the_slowest_order_is_told(tmp_path):
    ChangeTrace().write(tmp_path, without=["client 7"])
    change = only(tmp_path)
    assert (change.outage_ms, change.chains) == (None, ())
    assert change.worst.leader == "2"
    expected = [step for step in STEPS_MS if step not in {"noticed", "learned", "sent", "appended", "acknowledged"}]
    assert {step: ms for step, ms in lengths(change).items() if ms} == {step: STEPS_MS[step] for step in expected}


def test_silence_begins_with_the_last_sign_of_life(tmp_path):
    trace = ChangeTrace(before_ms=0.0)
    trace.write(tmp_path)
    path = tmp_path / "regnum-election-1.jsonl"
    heard = {"key": names.LAST_HEARD_UNIX_NANO, "value": {"intValue": "1800000000008000000"}}
    text = path.read_text(encoding="utf-8").replace(names.CAUSE_LIFELINE, names.CAUSE_SILENCE)
    document = json.loads(text)
    document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"].append(heard)
    path.write_text(json.dumps(document), encoding="utf-8")
    found = lengths(only(tmp_path))
    assert (found["failed"], found["noticed"]) == (8.0, 12.0)


def test_the_wait_of_a_client_for_its_next_attempt_has_a_name(tmp_path):
    ChangeTrace(steps_ms={**STEPS_MS, "sent": 460.0}).write(tmp_path)
    assert lengths(only(tmp_path))["sent"] == 460


def test_what_is_done_before_its_turn_costs_nothing(tmp_path):
    early = {**STEPS_MS, "learned": -4.0, "sent": 10.0}
    ChangeTrace(steps_ms=early).write(tmp_path)
    found = lengths(only(tmp_path))
    assert (found["learned"], found["sent"]) == (0, 6)


def test_an_outage_that_no_change_names_is_told_as_such(tmp_path):
    spans = Spans(4)
    outage = {names.TOPIC: "t", names.PARTITION: "0", names.RETRIED: True}
    spans.add(names.OUTAGE, 0, 80, **outage)
    (tmp_path / "one.jsonl").write_text(line(spans.made, service="client"), encoding="utf-8")
    change = only(tmp_path)
    assert (change.kind, change.total_ms) == (UNTRACED, 80)
    assert change.worst.unexplained_ms == 80


def test_a_client_that_had_nothing_to_send_did_not_wait(tmp_path):
    spans = Spans(4)
    spans.add(names.OUTAGE, -900, 9_000, **{names.TOPIC: "t", names.PARTITION: "2", names.RETRIED: False})
    (tmp_path / "one.jsonl").write_text(line(spans.made, service="client"), encoding="utf-8")
    assert changes_in(tmp_path) == []


def test_an_outage_in_a_trace_of_its_own_belongs_to_the_change_it_names(tmp_path):
    ChangeTrace().write(tmp_path, without=["client 7"])
    apart = Spans(2)
    named = {names.TOPIC: "t", names.PARTITION: "0", names.RETRIED: True, names.FAILOVER_TRACE_ID: f"{1:032x}"}
    apart.add(names.OUTAGE, -20, 230, **named)
    (tmp_path / "client.jsonl").write_text(line(apart.made, service="producer"), encoding="utf-8")
    change = only(tmp_path)
    assert (change.outage_ms, change.kind) == (250, names.KIND_BROKER_FAILURE)


def test_a_succession_has_steps_of_its_own(tmp_path):
    (tmp_path / "one.jsonl").write_text(line(succession(3, 0), service="regnum-election"), encoding="utf-8")
    change = only(tmp_path)
    steps = {"noticed": 0, "detected": 5, "fenced": 10, "won": 15, "loaded": 15, "verified": 5, "dispatched": 20}
    assert lengths(change) == steps
    assert change.victim == "controller 1"


def test_changes_at_the_same_time_are_kept_apart(tmp_path):
    ChangeTrace(1).write(tmp_path / "one")
    ChangeTrace(2, before_ms=30).write(tmp_path / "two")
    first, second = changes_in(tmp_path)
    assert (first.trace_id, second.trace_id) == (f"{1:032x}", f"{2:032x}")
    assert lengths(first) == STEPS_MS
    assert second.total_ms == pytest.approx(first.total_ms)
