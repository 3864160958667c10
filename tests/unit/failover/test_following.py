"""The stream tells what a batch and a single process tell, also when it is killed in its middle."""

import random
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from regnum_failover.__main__ import main
from regnum_failover.following import follow, late_spans
from regnum_failover.traces.source import stream_of
from regnum_insight.attribution.changes import UNTRACED, Change
from regnum_insight.engine import analyse
from regnum_telemetry import conventions as names
from regnum_testing.change_tables import content, put, told_of
from regnum_testing.change_traces import golden, two_releases
from regnum_testing.otlp_lines import Spans, line

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
END_MS = 600_000


class KilledError(Exception):
    """The process dies."""


def begun(spark, folder: Path, told) -> StreamingQuery:
    records = stream_of(spark, f"{folder}/traces", tick_s="0")
    return follow(records, f"{folder}/out", f"{folder}/checkpoint", told, gap_s=30, late_s=5, with_spans=True)


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
    query = begun(spark, tmp_path, told.extend)
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

    query = begun(spark, tmp_path, die)
    append(tmp_path, one_span(98, END_MS))
    with pytest.raises(StreamingQueryException):
        query.processAllAvailable()
    assert [len(changes) for changes in died] == [len(expected)]
    query = begun(spark, tmp_path, told.extend)
    query.processAllAvailable()
    assert sorted(told, key=lambda one: one.trace_id) == sorted(expected, key=lambda one: one.trace_id)
    # What is later than the watermark is dropped and counted; the clock too, since these traces are of a year to come.
    append(tmp_path, one_span(99, 0))
    query.processAllAvailable()
    assert late_spans(query) == 2
    query.stop()
    put(told_of(tmp_path / "golden"), tmp_path / "plain")
    assert content(tmp_path / "out") == content(tmp_path / "plain")


def test_what_is_new_is_told_once_by_the_command(spark, tmp_path, capsys):
    """``--follow --once``, twice, the second time with more; and nothing a third time."""
    two_releases(tmp_path / "whole")
    (tmp_path / "traces").mkdir()
    arguments = [f"{tmp_path}/traces", f"{tmp_path}/out", "--follow", "--once", "--gap-s", "1", "--late-s", "1"]
    for half in ("0", "1"):
        for folder in (tmp_path / "whole").glob(f"{half}*"):
            folder.rename(tmp_path / "traces" / folder.name)
        assert main([*arguments, "--spans"], session=lambda _: nullcontext(spark)) == 0
        capsys.readouterr()
    assert main([*arguments, "--spans"], session=lambda _: nullcontext(spark)) == 0
    assert "changes of leaders" not in capsys.readouterr().out
    put(told_of(tmp_path / "traces"), tmp_path / "plain")
    assert content(tmp_path / "out") == content(tmp_path / "plain")
