"""Traces of a topic give the rows that files give: over real gRPC to brokers in this process, called as Spark does."""

import asyncio
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from regnum_client import Producer
from regnum_failover.__main__ import late_s_of, main, parser
from regnum_failover.traces.options import topic_of
from regnum_failover.traces.packs import apart
from regnum_failover.traces.source import TracesSource
from regnum_failover.traces.topic import TopicTracesStreamReader, options_of
from regnum_insight.spans.intake import Tally
from regnum_spark.ranges import OptionError
from regnum_testing.change_traces import FullChangeTrace
from regnum_testing.fake_cluster import FakeCluster


class Moment:
    """A clock that goes with a reader to its tasks."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def rows(reader: Any, parts: list[Any]) -> tuple[list[tuple[Any, ...]], Tally, set[Any]]:
    """Spans by trace, what tasks told, and the moments that they told it with."""
    found, total, moments = [], Tally(), set()
    for part in parts:
        task, of = pickle.loads(pickle.dumps((reader, part)))  # noqa: S301 - made here
        for batch in task.read(of):
            for row in batch.to_pylist():
                if row["trace_id"] is None:
                    total.add(pickle.loads(row["span"]))  # noqa: S301 - likewise
                    moments.add(row["ended"] and row["ended"].timestamp())
                else:
                    found += [(row["trace_id"], span) for span in apart(row["span"])]
    return sorted(found), total, moments


async def written(cluster: FakeCluster, folder: Path) -> None:
    """Each line of the folder is a record; and there is one that is no document."""
    cluster.create("__traces", partitions=2)
    lines = [text for file in sorted(folder.iterdir()) for text in file.read_bytes().splitlines()]
    async with Producer(cluster.bootstrap) as producer:
        for number, text in enumerate([*lines, b"nonsense"]):
            await producer.send_and_wait("__traces", text, partition=number % 2)


async def test_a_topic_gives_the_rows_of_files_in_a_batch_and_in_a_stream(tmp_path: Path) -> None:
    FullChangeTrace().write(tmp_path / "traces")
    files = TracesSource({"path": f"{tmp_path}/traces"}).reader(None)
    wanted, tally, _ = rows(files, files.partitions())
    async with FakeCluster() as cluster:
        await written(cluster, tmp_path / "traces")
        told = {"bootstrap": cluster.bootstrap, "path": "topic:__traces", "days": "3", "plan": "", "AWS_REGION": "a"}

        def of_topic() -> None:
            reader = TracesSource(told).reader(None)
            got, counted, _ = rows(reader, reader.partitions())
            assert (got, counted.spans_n, counted.processes) == (wanted, tally.spans_n, tally.processes)
            assert (counted.documents_torn_n, counted.aside[0].text) == (1, "nonsense")
            assert (counted.files_n, counted.files_empty) == (2, [])

        def streamed() -> None:
            clock = Moment(1_800_000_600.0)
            reader = TopicTracesStreamReader(options_of("__traces", told), tick_s=60, now_s=clock)
            start = reader.initialOffset()
            end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
            got, counted, moments = rows(reader, reader.partitions(start, end))
            assert (got, counted.spans_n, moments) == (wanted, tally.spans_n, {clock.now})
            # The clock goes on where nothing more comes, and rests when the last change is told.
            clock.now += 30
            ticked = reader.latestOffset(end, ReadAllAvailable())
            assert ticked == {**end, "clock_s": clock.now}
            assert rows(reader, reader.partitions(end, ticked))[::2] == ([], {clock.now})
            clock.now += 60
            assert reader.latestOffset(ticked, ReadAllAvailable()) == ticked
            reader.stop()

        await asyncio.to_thread(of_topic)
        await asyncio.to_thread(streamed)


def test_what_is_no_option_of_a_topic_is_refused() -> None:
    assert topic_of("topic:__traces") == "__traces"
    assert topic_of("s3://topic") is None
    assert not options_of("__traces", {"path": "topic:__traces", "tick_s": "3"}).fail_on_data_loss
    assert options_of("__traces", {"failOnDataLoss": "true"}).fail_on_data_loss
    with pytest.raises(OptionError, match="there is no option bootstrp"):
        options_of("__traces", {"bootstrp": "a:1"})


def test_tables_grow_from_a_topic_by_following_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["topic:__traces", "/tables", "--tables"])
    assert (ended.value.code, "--follow" in capsys.readouterr().err) == (2, True)


def test_what_is_published_late_is_waited_for_unless_an_option_says_otherwise() -> None:
    """A publisher that was down for two minutes brings its spans then; a folder has them at once."""
    given = parser().parse_args(["topic:__traces", "/tables", "--follow", "--late-s", "7"]).late_s
    default = parser().parse_args(["topic:__traces", "/tables", "--follow"]).late_s
    assert late_s_of("topic:__traces", default) == 300
    assert (late_s_of("/traces", default), late_s_of("s3://bucket/x", default)) == (15, 15)
    assert (late_s_of("topic:__traces", given), late_s_of("/traces", given)) == (7, 7)
