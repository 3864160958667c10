"""Traces into the topic: what is published of a folder, when, and what becomes of it while the topic is away."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from regnum.types.v1 import errors_pb2
from regnum_console.live.otlp import DocumentReceiver, receiving
from regnum_console.publishing.folder import POSITIONS, TraceFiles
from regnum_console.publishing.publisher import RETRY_S, follow
from regnum_console.publishing.topic import TracesTopic
from regnum_insight.engine import analyse
from regnum_insight.spans.growth import Grown, look_at_folder
from regnum_insight.spans.intake import files_below
from regnum_model.nodes import Address
from regnum_model.topics import TRACES_TOPIC
from regnum_service.channel import open_channel
from regnum_service.errors import RegnumError
from regnum_testing.change_traces import FullChangeTrace
from regnum_testing.clock import FakeClock
from regnum_testing.otlp_lines import Spans, line
from regnum_testing.otlp_requests import requests_of, sent_as

AWAY = RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "no leader answers")
FORBIDDEN = RegnumError(errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED, "no right")
NONE_THERE = RegnumError(errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, "no such topic")
TOO_LARGE = RegnumError(errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, "too large")


class FakeTopic:
    """A cluster as a producer and an admin client show it."""

    def __init__(self, *, exists: bool = True) -> None:
        self.exists = exists
        self.values: list[bytes] = []
        self.trouble: RegnumError | None = None
        self.made_with: Mapping[str, str] = {}
        self.bytes_max = 10**9

    async def check_topic(self, topic: str) -> int:
        assert topic == TRACES_TOPIC
        if not self.exists:
            raise NONE_THERE
        return 1

    async def create_topic(self, name: str, *, configs: Mapping[str, str]) -> None:
        assert name == TRACES_TOPIC
        if self.exists:
            raise RegnumError(errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS, "another one made it")
        self.exists, self.made_with = True, configs

    async def send(self, topic: str, value: bytes) -> asyncio.Future[None]:
        assert topic == TRACES_TOPIC
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self.exists:
            done.set_exception(NONE_THERE)
        elif self.trouble is not None:
            done.set_exception(self.trouble)
        elif len(value) > self.bytes_max:
            done.set_exception(TOO_LARGE)
        else:
            self.values.append(value)
            done.set_result(None)
        return done


def taken(files: TraceFiles) -> list[bytes]:
    """What is published until there is no more."""
    found: list[bytes] = []
    while (chunk := files.next()) is not None:
        found += chunk.lines
        files.published(chunk)
    return found


def append(path: Path, *numbers: int) -> None:
    with path.open("a", encoding="utf-8") as file:
        # A resource, which all lines of a process have in common, is some hundred bytes.
        file.writelines(f'{{"resourceSpans": [], "resource": "{300 * "r"}", "n": {n}}}\n' for n in numbers)


def numbers(lines: list[bytes]) -> list[int]:
    return sorted(json.loads(one)["n"] for one in lines)


def test_each_line_is_published_once_though_files_are_set_aside_and_the_process_is_another(tmp_path: Path) -> None:
    path = tmp_path / "regnum-broker-1.jsonl"
    append(path, *range(10))
    files = TraceFiles(tmp_path, chunk_bytes=400)
    assert numbers(taken(files)) == [*range(10)]
    append(path, 10)
    path.rename(tmp_path / "regnum-broker-1.000001.jsonl")
    append(path, 11)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"resourceSpans": [], ')
    assert numbers(taken(TraceFiles(tmp_path))) == [10, 11], "half a line waits for its other half"
    with path.open("a", encoding="utf-8") as file:
        file.write('"n": 12}\n')
    files = TraceFiles(tmp_path)
    assert numbers(taken(files)) == [12]
    assert (files.next(), files.lost_bytes) == (None, 0)
    assert [one.name for one in files_below(tmp_path) if one.name == POSITIONS] == [], "it is no file of traces"


def test_a_file_that_a_look_misses_while_it_is_set_aside_is_not_published_again(tmp_path: Path) -> None:
    path = tmp_path / "regnum-broker-1.jsonl"
    append(path, *range(10))
    misses = 0

    def look(folder: Path, before: Mapping[str, int]) -> dict[str, Grown]:
        nonlocal misses
        misses -= 1
        return {} if misses == 0 else look_at_folder(folder, before)

    files = TraceFiles(tmp_path, look=look)
    assert numbers(taken(files)) == [*range(10)]
    append(path, 10)
    path.rename(tmp_path / "regnum-broker-1.000001.jsonl")
    misses = 1
    assert numbers(taken(files)) == [10]
    assert files.lost_bytes == 0


def test_lines_that_were_not_acknowledged_come_again(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", 1, 2)
    files = TraceFiles(tmp_path)
    first = files.next()
    assert (first, TraceFiles(tmp_path).next()) == (files.next(), first)


def test_an_inode_that_comes_again_is_another_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append(path, 1)
    assert numbers(taken(TraceFiles(tmp_path))) == [1]
    path.write_text("", encoding="utf-8")
    append(path, 2, 3, 4)
    assert numbers(taken(TraceFiles(tmp_path))) == [2, 3, 4]


def test_what_was_removed_or_is_too_long_before_it_is_published_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append(path, *range(10))
    size = path.stat().st_size
    files = TraceFiles(tmp_path, chunk_bytes=400)
    first = files.next()
    assert first is not None
    files.published(first)
    path.unlink()
    assert (files.next(), files.lost_bytes) == (None, size - first.end)
    (tmp_path / "b.jsonl").write_text('{"resourceSpans": []}\n' + "x" * 800 + '\n{"resourceSpans": [], "n": 1}\n')
    before = files.lost_bytes
    assert taken(files)[-1] == b'{"resourceSpans": [], "n": 1}'
    assert files.lost_bytes - before >= 128


def test_positions_that_say_nothing_are_refused(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", 1)
    (tmp_path / POSITIONS).write_text('{"1:2": 3}')
    with pytest.raises(ValueError, match="remove it, and all is published again"):
        TraceFiles(tmp_path).next()


async def test_the_topic_is_made_once_and_by_one() -> None:
    fake = FakeTopic(exists=False)
    await TracesTopic(fake, fake).ensure()
    assert fake.made_with["max.message.bytes"] == str(8 * 2**20)
    fake.made_with = {}
    await TracesTopic(fake, fake).ensure()
    assert fake.made_with == {}


async def test_of_two_processes_that_make_the_topic_both_go_on() -> None:
    class MadeMeanwhile(FakeTopic):
        async def check_topic(self, topic: str) -> int:
            raise NONE_THERE

    fake = MadeMeanwhile()
    topic = TracesTopic(fake, fake)
    await topic.ensure()
    fake.bytes_max = 5
    assert await topic.write([b"short", b"too long"]) == [True, False]
    assert (topic.counted.records, topic.counted.bytes, topic.counted.refused) == (1, 5, 1)


async def test_a_topic_that_was_deleted_is_there_again_when_its_sender_comes_again() -> None:
    """Also where nothing but what senders bring goes into it."""
    fake = FakeTopic()
    topic = TracesTopic(fake, fake)
    await topic.write([b"first"])
    fake.exists = False
    with pytest.raises(RegnumError, match="no such topic"):
        await topic.write([b"second"])
    assert fake.exists
    assert await topic.write([b"second"]) == [True]
    assert (fake.values, topic.counted.failures) == ([b"first", b"second"], 1)


async def test_while_the_topic_is_away_traces_wait_in_their_files(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", 1, 2)
    fake, clock, told = FakeTopic(), FakeClock(), list[str]()
    fake.trouble = AWAY
    topic = TracesTopic(fake, fake)
    task = asyncio.create_task(follow(TraceFiles(tmp_path), topic, clock, told.append))

    async def until_it_waits() -> None:
        async with asyncio.timeout(10):
            while not clock.sleepers:
                await asyncio.sleep(0.001)

    await until_it_waits()
    assert (told, fake.values, topic.counted.failures) == (["traces wait in their files: no leader answers"], [], 1)
    append(tmp_path / "a.jsonl", 3)
    fake.trouble = None
    await clock.advance(RETRY_S)
    await until_it_waits()
    assert (numbers(fake.values), task.done()) == ([1, 2, 3], False)
    fake.trouble = FORBIDDEN
    append(tmp_path / "a.jsonl", 4)
    await clock.advance(RETRY_S)
    with pytest.raises(RegnumError, match="no right"):
        await asyncio.wait_for(task, 10)


async def test_what_a_collector_sends_is_taken_when_the_topic_has_it(tmp_path: Path) -> None:
    FullChangeTrace().write(tmp_path / "sent")
    (of_report,) = analyse(tmp_path / "sent").changes
    fake = FakeTopic()
    async with (
        receiving("127.0.0.1:0", DocumentReceiver(TracesTopic(fake, fake).write)) as port,
        open_channel(Address(host="127.0.0.1", port=port)) as channel,
    ):
        export: Any = TraceServiceStub(channel).Export  # type: ignore[no-untyped-call]
        for request in requests_of(tmp_path / "sent"):
            answer = await export(request)
            assert answer.partial_success.rejected_spans == 0
        (tmp_path / "got").mkdir()
        (tmp_path / "got" / "a.jsonl").write_bytes(b"".join(b"%s\n" % value for value in fake.values))
        assert analyse(tmp_path / "got").changes == [of_report]
        made = Spans(1)
        made.add("a", 0, 1)
        made.add("b", 0, 1)
        fake.bytes_max = 10
        assert (await export(sent_as(line(made.made)))).partial_success.rejected_spans == 2
        fake.trouble = AWAY
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await export(sent_as(line(made.made)))
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE, "a sender keeps what it can send again"
