"""Changes written as one trace with one root: every kind, every boundary, and what is left when parts are lost."""

import json
import random
from pathlib import Path

import pytest
from regnum_insight.attribution.changes import Change, change_of
from regnum_insight.attribution.steps import UNSAID_BEFORE, UNSEEN
from regnum_insight.engine import analyse
from regnum_insight.reporting.timing import change_of_partition, timing_text
from regnum_insight.spans.otlp import spans_of
from regnum_insight.spans.span import Span
from regnum_telemetry import conventions as names
from regnum_testing.change_traces import FULL_STEPS_MS, PLANNED_STEPS_MS, STEPS_MS, ChangeTrace, FullChangeTrace
from regnum_testing.critical_path import covered_ns, critical_path
from regnum_testing.otlp_lines import line

PROCESSES = ("client 7", "reader 8", "election 1", "broker 2", "broker 3")
PLANNED = (
    names.KIND_CONTROLLED_SHUTDOWN, names.KIND_BALANCE, names.KIND_REASSIGNMENT, names.KIND_ELECTION,
    names.KIND_UNCLEAN, names.KIND_RECOVERY,
)  # fmt: skip


def spans(trace: ChangeTrace, **how) -> list[Span]:
    found = []
    for process, made in trace.documents(**how).items():
        service, instance = process.split()
        found += list(spans_of(json.loads(line(made, service=service, instance=instance))))
    return found


def change(trace: ChangeTrace, **how) -> Change:
    found = change_of(spans(trace, **how))
    assert found is not None
    return found


def lengths(of: Change) -> dict[str, float]:
    return {step: round(ms, 6) for step, ms in of.steps_ms.items()}


def test_every_boundary_of_a_failure_is_told():
    found = change(FullChangeTrace())
    assert lengths(found) == FULL_STEPS_MS
    assert (found.kind, found.cause, found.victim) == (names.KIND_BROKER_FAILURE, names.CAUSE_LIFELINE, "broker 1")
    assert found.total_ms == pytest.approx(sum(FULL_STEPS_MS.values()))
    assert found.before_ms == FULL_STEPS_MS["failed"]
    assert (found.unfinished, found.unsaid, found.worst.unexplained_ms) == (False, (), 0)
    assert [part for part, _ in found.worst.inside] == ["journal", "epochs", "roles", "fetchers"]
    assert sum(ms for _, ms in found.worst.inside) == pytest.approx(FULL_STEPS_MS["leads"])


@pytest.mark.parametrize("kind", PLANNED)
def test_planned_moves_are_changes_like_the_others(kind):
    found = change(FullChangeTrace(kind=kind))
    assert (found.kind, lengths(found)) == (kind, PLANNED_STEPS_MS)
    assert found.worst.unexplained_ms == 0


@pytest.mark.parametrize("step", list(FULL_STEPS_MS))
def test_a_delay_moves_its_own_step_and_no_other(step):
    slower = {**FULL_STEPS_MS, step: FULL_STEPS_MS[step] + 50.0}
    assert lengths(change(FullChangeTrace(steps_ms=slower))) == slower


def test_what_traces_of_before_do_not_tell_is_named():
    assert change(ChangeTrace()).unsaid == UNSAID_BEFORE
    assert lengths(change(ChangeTrace())) == STEPS_MS


def test_consumers_stand_beside_producers():
    found = change(FullChangeTrace())
    assert [chain.name for chain in found.readers] == ["orders/0", "orders/1"]
    assert found.readers[0].segments[-1].step == "answered"
    assert found.readers[0].outage_ms == pytest.approx(sum(segment.ms for segment in found.readers[0].segments))
    assert found.outage_ms == found.chains[0].outage_ms


def test_a_consumer_whose_fetches_did_not_fail_did_not_wait():
    calm = [
        span._replace(attributes={**span.attributes, names.RETRIED: "false"})
        if span.name == names.CONSUMER_OUTAGE
        else span
        for span in spans(FullChangeTrace())
    ]
    assert change_of(calm).readers == ()


def idle(last_ack_s: float, waiting_s: float, *, ahead_s: float = 0, root: bool = True) -> Change | None:
    """A change in which one producer came once, and nothing of it failed; moments are against the root's begin."""
    whole = spans(FullChangeTrace(kind=names.KIND_CONTROLLED_SHUTDOWN))
    begin_ns = next(span for span in whole if span.name == names.LEADERSHIP_CHANGE).start_ns
    waits = [span for span in whole if span.name in {names.OUTAGE, names.CONSUMER_OUTAGE}]
    first = next(span for span in waits if span.name == names.OUTAGE)
    waiting_ns = begin_ns + int((waiting_s + ahead_s) * 10**9)
    moments = {names.WAITING_SINCE_UNIX_NANO: 0, names.LEARNED_UNIX_NANO: 1, names.SENT_UNIX_NANO: 2}
    came = first._replace(
        start_ns=begin_ns + int((last_ack_s + ahead_s) * 10**9),
        end_ns=waiting_ns + 5_000_000,
        attributes={
            **first.attributes,
            names.RETRIED: "false",
            **{name: str(waiting_ns + ms * 1_000_000) for name, ms in moments.items()},
        },
    )
    batch = [came.attributes[name] for name in (names.TOPIC, names.PARTITION)]
    appended_ns = waiting_ns - int(ahead_s * 10**9) + 3_000_000
    rest = [
        span._replace(start_ns=appended_ns - 500_000, end_ns=appended_ns)
        if span.name == names.FIRST_APPEND
        and [span.attributes[name] for name in (names.TOPIC, names.PARTITION)] == batch
        else span
        for span in whole
        if span.process not in {wait.process for wait in waits}
        and (root or span.name not in {names.LEADERSHIP_CHANGE, names.CHANGE_OPENED})
    ]
    return change_of([*rest, came])


@pytest.mark.parametrize("root", [True, False])
def test_a_record_that_came_after_the_change_was_over_ended_its_clients_own_silence(root):
    assert idle(-0.5, 60, root=root).outage_ms is None
    assert idle(-0.1, 0.005, root=root).outage_ms == pytest.approx(110)


@pytest.mark.parametrize("ahead_s", [-60.0, -5.0, 0.0, 5.0, 60.0])
def test_whether_a_client_waited_is_told_by_its_corrected_clock(ahead_s):
    assert idle(-0.1, 0.005, ahead_s=ahead_s).outage_ms == pytest.approx(110)
    assert idle(-50, 0.005, ahead_s=ahead_s).outage_ms is None


def test_where_only_a_consumer_waited_its_chain_is_the_worst():
    found = change(FullChangeTrace(), without=["client 7", "broker 2", "broker 3"])
    assert found.outage_ms is None
    assert found.worst == found.readers[0]


def test_a_client_without_spans_is_seen_at_the_broker():
    found = change(FullChangeTrace(), without=["client 7", "reader 8"])
    assert found.worst == found.unseen[0]
    steps = lengths(found)
    of_client = ("learned", "in_sync", "backoff", "sent", "appended")
    assert steps[UNSEEN] == sum(FULL_STEPS_MS[step] for step in of_client)
    told = set(FULL_STEPS_MS) - {*of_client, "failed", "acknowledged"}
    assert {step: steps[step] for step in told} == {step: FULL_STEPS_MS[step] for step in told}
    assert "unexplained" not in steps


def test_an_append_long_after_the_change_waited_for_nothing():
    late_ns = 60_000_000_000
    moved = [
        span._replace(end_ns=span.end_ns + late_ns) if span.name == names.FIRST_APPEND else span
        for span in spans(FullChangeTrace(), without=["client 7", "reader 8"])
    ]
    assert change_of(moved).unseen == ()


@pytest.mark.parametrize("late_s", [4, 6])
def test_while_no_root_is_written_an_append_counts_for_as_long_as_a_root_waits(late_s):
    moved = [
        span._replace(end_ns=span.end_ns + late_s * 10**9) if span.name == names.FIRST_APPEND else span
        for span in spans(FullChangeTrace(), without=["client 7", "reader 8"])
        if span.name != names.LEADERSHIP_CHANGE
    ]
    found = change_of(moved)
    assert found.unfinished
    assert [chain.name for chain in found.unseen] == (["orders/0", "orders/1"] if late_s == 4 else [])


def test_a_partition_for_which_nobody_waited_has_the_chain_of_the_order_to_its_leader():
    assert change(FullChangeTrace()).orders == ()
    idle = [one for one in spans(FullChangeTrace(), without=["client 7", "reader 8"]) if one.name != names.FIRST_APPEND]
    found = change_of(idle)
    assert [(chain.name, chain.leader, chain.segments[-1].step) for chain in found.orders] == [
        ("orders/0", "2", "leads"),
        ("orders/1", "3", "leads"),
    ]
    until_led = ("noticed", "detected", "fenced", "decided", "written", "order_sent", "received", "leads")
    assert {one.step: round(one.ms, 6) for one in found.orders[0].segments if one.ms} == {
        step: FULL_STEPS_MS[step] for step in until_led
    }
    assert found.orders[0].outage_ms - found.orders[1].outage_ms == pytest.approx(FULL_STEPS_MS["leads"] - 2)
    assert change_of_partition([found], "orders", 1) == (found, found.orders[1])
    assert change_of_partition([found], "orders", 2) is None
    text = timing_text("orders/1", found, found.orders[1])
    assert "no client is known to have waited; until its leader led it took" in text


def test_a_client_that_came_back_and_whose_spans_are_not_there_is_known_by_its_leader():
    assert change(FullChangeTrace()).untold == ()
    assert change(FullChangeTrace(), without=["client 7"]).untold == ("orders/0", "orders/1")
    assert change(FullChangeTrace(), without=["broker 2", "client 7"]).untold == ("orders/1",)


def test_a_controller_that_died_leaves_its_change_unfinished():
    trace = FullChangeTrace(links=[f"{9:032x}"])
    trace.unfinished()
    found = change(trace)
    assert (found.unfinished, found.kind, found.victim) == (True, names.KIND_BROKER_FAILURE, "broker 1")
    assert found.links == (f"{9:032x}",)
    assert found.total_ms == pytest.approx(sum(FULL_STEPS_MS.values()))
    assert found.worst.unexplained_ms == 0


def test_an_opening_record_alone_is_listed():
    trace = FullChangeTrace()
    alone = [span for span in spans(trace) if span.name == names.CHANGE_OPENED]
    found = change_of(alone)
    assert (found.unfinished, found.chains, found.victim) == (True, (), "broker 1")


def test_what_a_victim_does_after_its_fence_is_no_part_of_the_change():
    whole = spans(FullChangeTrace())
    thawed = [
        span._replace(span_id=f"{position:016x}", process="broker 1", end_ns=span.end_ns + 9_000_000_000)
        for position, span in enumerate(whole)
        if span.name in {names.BECOME_LEADER, names.FIRST_APPEND}
    ]
    assert change_of([*whole, *thawed]).chains == change_of(whole).chains


@pytest.mark.parametrize("seen_by", ["follower fetch 2", "standby 2"])
def test_who_saw_the_failure_first_says_it_by_its_own_clock(seen_by):
    process = "broker 2" if seen_by.startswith("follower") else "election 2"
    told = [
        span._replace(attributes={**span.attributes, names.FAILED_SEEN_BY: seen_by})
        if names.FAILED_SEEN_BY in span.attributes
        else span
        for span in spans(FullChangeTrace())
    ]
    first = change_of(told).worst.segments[0]
    assert (first.step, first.process) == ("failed", process)


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("ahead_ms", [-500.0, -100.0, -20.0, 20.0, 100.0, 500.0])
def test_clocks_that_differ_leave_every_step_within_its_bound_and_are_mentioned(process, ahead_ms):
    found = change(FullChangeTrace(), ahead_ms={process: ahead_ms})
    assert sum(segment.ms for segment in found.worst.segments) == pytest.approx(found.total_ms)
    assert found.total_ms == pytest.approx(sum(FULL_STEPS_MS.values()))
    for segment in found.worst.segments:
        assert segment.bound_ms is not None
        assert abs(segment.ms - FULL_STEPS_MS[segment.step]) <= segment.bound_ms + 1e-6, segment
    assert any(note.process == process for note in found.clocks) or process == "election 1"
    assert any(note.ahead_ms or note.bound_ms is None or note.bound_ms >= abs(ahead_ms) for note in found.clocks)


@pytest.mark.parametrize("process", PROCESSES)
def test_the_change_is_listed_whatever_file_is_lost(process):
    found = change(FullChangeTrace(), without=[process])
    assert found.trace_id == f"{1:032x}"
    assert sum(segment.ms for segment in found.worst.segments) == pytest.approx(found.total_ms)


def test_order_and_repetition_change_nothing():
    whole = spans(FullChangeTrace())
    chance = random.Random(3)
    for _ in range(5):
        mixed = whole * 2
        chance.shuffle(mixed)
        assert change_of(mixed) == change_of(whole)


def test_torn_and_doubled_files_give_equal_changes(tmp_path: Path):
    trace = FullChangeTrace()
    trace.write(tmp_path / "plain")
    trace.write(tmp_path / "mixed")
    trace.write(tmp_path / "mixed" / "again")
    for path in (tmp_path / "mixed").glob("*.jsonl"):
        text = path.read_text(encoding="utf-8")
        path.write_text(f"{text}{text[: len(text) // 2]}", encoding="utf-8")
    assert analyse(tmp_path / "mixed").changes == analyse(tmp_path / "plain").changes


@pytest.mark.parametrize("kind", [names.KIND_BROKER_FAILURE, names.KIND_BALANCE])
def test_the_critical_path_covers_the_worst_outage_with_a_broker_and_a_client_on_it(kind):
    whole = spans(FullChangeTrace(kind=kind))
    root = next(span for span in whole if span.name == names.LEADERSHIP_CHANGE)
    worst = change_of(whole).worst
    path = critical_path(whole, root)
    assert covered_ns(path, worst.start_ns, worst.end_ns) >= 0.95 * (worst.end_ns - worst.start_ns)
    assert {"broker 2", "client 7"} <= {piece.span.process for piece in path}
    begun = [span for span in whole if span.name not in {names.OUTAGE, names.CONSUMER_OUTAGE, names.LEARN}]
    assert all(root.start_ns <= span.start_ns and span.end_ns <= root.end_ns for span in begun)


def test_a_wait_for_a_replica_under_a_leader_that_stayed_is_a_chain_that_ends_with_what_freed_it():
    trace = FullChangeTrace()
    ordered_ms = sum(FULL_STEPS_MS[step] for step in tuple(FULL_STEPS_MS)[:7])
    trace.wait_under_a_leader_that_stays(2, received_ms=ordered_ms + 1, ended_ms=ordered_ms + 6)
    found = change(trace)
    (chain,) = [chain for chain in found.chains if chain.name == "orders/2"]
    assert chain.outage_ms == pytest.approx(ordered_ms + 6)
    told = {segment.step: round(segment.ms, 6) for segment in chain.segments if segment.ms}
    controller = {step: FULL_STEPS_MS[step] for step in tuple(FULL_STEPS_MS)[:7]}
    # It led before, knew its producer, and had the records: none of that is a step of it.
    assert told == {**controller, "received": 1.0, "replicated": 4.0, "acknowledged": 1.0}
    assert [other.name for other in found.chains] == ["orders/0", "orders/1", "orders/2"]
