"""The stream tells what a batch and a single process tell, also when it is killed in its middle."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from regnum_failover.following import follow, late_spans
from regnum_failover.traces.options import Options
from regnum_failover.traces.source import TracesSource, TracesStreamReader
from regnum_insight.attribution.changes import SELECTION, UNTRACED, Change
from regnum_insight.engine import analyse
from regnum_insight.spans.intake import Tally, read_folder
from regnum_telemetry import conventions as names
from regnum_testing.change_tables import content, put, told_of
from regnum_testing.change_traces import golden
from regnum_testing.otlp_lines import Spans, at, line

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
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
    append(tmp_path, one_span(99, 0))
    query.processAllAvailable()
    assert late_spans(query) == 1
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
