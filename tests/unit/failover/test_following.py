"""The stream tells what a batch and a single process tell, also when it is killed in its middle."""

import random
from collections.abc import Sequence
from pathlib import Path
from queue import Queue
from types import SimpleNamespace

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from regnum_failover.following import LateSpans, follow
from regnum_failover.traces.options import Options
from regnum_failover.traces.source import TracesSource, TracesStreamReader
from regnum_failover.traces.ticks import Ticks
from regnum_insight.attribution.changes import SELECTION, UNTRACED, Change
from regnum_insight.engine import analyse
from regnum_insight.spans.intake import Tally, read_folder
from regnum_telemetry import conventions as names
from regnum_testing.change_tables import content, put, told_of
from regnum_testing.change_traces import golden
from regnum_testing.otlp_lines import Spans, at, line
from regnum_testing.waiting import DEADLINE_S

END_MS = 600_000


def played() -> type[TracesSource]:
    """The source with a clock that a file says: these traces are of a year to come."""

    # (Within a function: Spark's workers do not see this module, and get the class itself.)
    class PlayedTraces(TracesSource):
        @classmethod
        def name(cls) -> str:
            return "played_traces"

        def streamReader(self, schema: StructType) -> TracesStreamReader:  # noqa: N802 - Spark's name
            clock = Path(self.options["path"]).parent / "clock"
            return TracesStreamReader(Options.of(self.options), tick_s=0, now_s=lambda: float(clock.read_text()))

    return PlayedTraces


class KilledError(Exception):
    """The process dies."""


def begun(spark, folder: Path, told, read) -> StreamingQuery:
    spark.dataSource.register(played())
    records = spark.readStream.format("played_traces").load(f"{folder}/traces")
    return follow(records, f"{folder}/out", f"{folder}/checkpoint", told, read, gap_s=30, late_s=5, with_spans=True)


def clock_at(folder: Path, after_ms: float) -> None:
    (folder / "clock").write_text(str(at(after_ms) / 1e9), encoding="utf-8")


def append(folder: Path, *lines: str) -> None:
    with (folder / "traces" / "growing.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in lines)


def one_span(trace: int, at_ms: float) -> str:
    spans = Spans(trace)
    spans.add(names.OUTAGE, at_ms, at_ms + 1)
    return line(spans.made)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_stream_that_is_killed_tells_the_same_changes_once(spark, tmp_path):
    """Lines shuffled, doubled and torn, in several steps; the third dies after its tables and before its checkpoint."""
    golden(tmp_path / "golden")
    expected = [change for change in analyse(tmp_path / "golden").changes if change.kind != UNTRACED]
    lines = [text for file in sorted((tmp_path / "golden").rglob("*.jsonl")) for text in file.read_text().splitlines()]
    chance = random.Random(3)
    lines += chance.sample(lines, len(lines) // 2)
    lines += [text[: chance.randrange(1, len(text))] for text in chance.sample(lines, 5)]
    chance.shuffle(lines)
    (tmp_path / "traces").mkdir()
    told: list[Change] = []
    tallies: list[Tally] = []
    clock_at(tmp_path, 20_000)
    query = begun(spark, tmp_path, told.extend, tallies.append)
    append(tmp_path, *lines[:40])
    query.processAllAvailable()
    append(tmp_path, *lines[40:])
    query.processAllAvailable()
    assert told == []
    query.stop()

    died: list[Sequence[Change]] = []

    def die(changes: Sequence[Change]) -> None:
        died.append(changes)
        raise KilledError

    query = begun(spark, tmp_path, die, [].append)
    clock_at(tmp_path, END_MS)
    append(tmp_path, one_span(98, END_MS))
    with pytest.raises(StreamingQueryException):
        query.processAllAvailable()
    assert [len(changes) for changes in died] == [len(expected)]
    query = begun(spark, tmp_path, told.extend, tallies.append)
    query.processAllAvailable()
    assert sorted(told, key=lambda one: one.trace_id) == sorted(expected, key=lambda one: one.trace_id)
    torn = read_folder(tmp_path / "traces", SELECTION).documents_torn_n
    assert sum(tally.documents_torn_n for tally in tallies) == torn > 0
    # What is later than the watermark is dropped and counted.
    late: Queue[int] = Queue()
    listener = LateSpans(late.put)
    spark.streams.addListener(listener)
    append(tmp_path, one_span(99, 0))
    query.processAllAvailable()
    assert late.get(timeout=DEADLINE_S) == 1
    spark.streams.removeListener(listener)
    query.stop()
    put(told_of(tmp_path / "golden"), tmp_path / "plain")
    assert content(tmp_path / "out") == content(tmp_path / "plain")


@pytest.mark.full
@pytest.mark.timeout(900)
def test_what_tasks_tell_of_their_work_is_told_and_is_no_state_any_more(spark, tmp_path):
    """However close steps follow one another: each tells when the watermark has passed it."""
    (tmp_path / "traces").mkdir()
    tallies: list[Tally] = []
    clock_at(tmp_path, 0)
    append(tmp_path, '{"resourceSpans": []}')
    query = begun(spark, tmp_path, [].extend, tallies.append)
    for step in range(6):
        clock_at(tmp_path, step * 10_000)
        append(tmp_path, f"nonsense of step {step}")
        query.processAllAvailable()
    query.stop()
    assert [one.text for tally in tallies for one in tally.aside] == [f"nonsense of step {step}" for step in range(5)]


def test_each_step_counts_once_what_it_dropped():
    """Also a step that is over before another one is looked at; what drops nothing is not told."""
    told: list[int] = []
    listener = LateSpans(told.append)
    for dropped in ([], [0], [2], [0, 0], [1, 3]):
        operators = [SimpleNamespace(numRowsDroppedByWatermark=count) for count in dropped]
        listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(stateOperators=operators)))
    assert told == [2, 6]


def test_the_clock_of_a_long_wait_goes_in_long_steps():
    """Minutes after the last span a step for each second would cost what they wait for."""
    clock = SimpleNamespace(now=1_800_000_000)
    ticks = Ticks(600, lambda: clock.now)
    at_s = ticks.next(0, has_news=True)
    moments = []
    for clock.now in range(1_800_000_001, 1_800_001_000):
        moment = ticks.next(at_s, has_news=False)
        if moment is not None:
            moments.append(moment)
            at_s = moment
    assert moments == [1_800_000_000 + 10 * step for step in range(1, 61)]
