"""Stages of a failover, from spans as services write them."""

import json
from pathlib import Path

from regnum_bench.stages import Span, Traces, root_of, stages_ms
from regnum_telemetry import conventions

MS = 1_000_000
START = 1_000_000 * MS


def root(*, victim: int = 1, partitions: int = 5, start_ns: int = START, **boundaries: int) -> Span:
    attributes = {
        conventions.CHANGE_KIND: conventions.KIND_BROKER_FAILURE,
        conventions.NOTICED_UNIX_NANO: str(start_ns),
        conventions.VICTIM: str(victim),
        conventions.PARTITIONS: str(partitions),
        **{f"regnum.failover.{name}_unix_nano": str(start_ns + ms * MS) for name, ms in boundaries.items()},
    }
    end_ns = start_ns + max(boundaries.values(), default=0) * MS
    # It failed 7 ms before that was noticed.
    return Span(
        name=conventions.LEADERSHIP_CHANGE,
        trace_id="t",
        start_ns=start_ns - 7 * MS,
        end_ns=end_ns,
        attributes=attributes,
    )


def applied(ms: int, trace_id: str = "t") -> Span:
    return Span(
        name=conventions.METADATA_APPLIED, trace_id=trace_id, start_ns=START, end_ns=START + ms * MS, attributes={}
    )


def test_stages_add_up_to_the_last_boundary() -> None:
    one = root(detected=110, fenced=113, decided=114, written=117, dispatched=125)
    found = stages_ms(one, [applied(121), applied(140), applied(999, trace_id="another")])
    assert found == {
        "detection": 110,
        "fence": 3,
        "decision": 1,
        "store_write": 3,
        "become_leader": 0,
        "dispatch": 8,
        "metadata": 15,
        "traced_total": 140,
    }


def test_a_boundary_that_nobody_recorded_is_the_one_before_it() -> None:
    found = stages_ms(root(detected=10, dispatched=30), [])
    assert (found["fence"], found["dispatch"], found["traced_total"]) == (0, 20, 30)


def test_the_root_is_that_of_the_victim_since_its_kill_with_the_most_partitions() -> None:
    before = root(start_ns=START - 900 * MS, partitions=99, detected=10)
    small, large, other = root(partitions=0, detected=5), root(partitions=7, detected=5), root(victim=2, partitions=50)
    assert (
        root_of([before, small, large, other], conventions.KIND_BROKER_FAILURE, victim=1, since_ns=START - 100 * MS)
        is large
    )
    assert root_of([before, other], conventions.KIND_BROKER_FAILURE, victim=1, since_ns=START - 100 * MS) is None


def test_only_new_whole_lines_are_read(tmp_path: Path) -> None:
    def line(name: str) -> str:
        attributes = [{"key": "a", "value": {"intValue": "7"}}]
        span = {
            "name": name,
            "traceId": "t",
            "startTimeUnixNano": "1",
            "endTimeUnixNano": "2",
            "attributes": attributes,
        }
        return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}) + "\n"

    file = tmp_path / "regnum-election-1.jsonl"
    file.write_text(line("old"))
    traces = Traces(tmp_path)
    traces.skip()
    half = line("torn")
    with file.open("a") as lines:
        lines.write(line("new") + half[:30])
    (found,) = traces.new()
    assert (found.name, found.attributes) == ("new", {"a": "7"})
    with file.open("a") as lines:
        lines.write(half[30:])
    assert [span.name for span in traces.new()] == ["torn"]
    assert traces.new() == []
