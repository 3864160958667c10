"""Changes as they happen: a folder of traces is followed whatever becomes of its files, and a waterfall grows."""

import asyncio
import re
import threading
from pathlib import Path

import pytest
from regnum.types.v1 import errors_pb2
from regnum_console.live.feed import ChangeFeed, Changes, Sources
from regnum_console.live.tail import Found, TraceTail, files_in
from regnum_insight.attribution.changes import SELECTION, change_of
from regnum_insight.engine import analyse
from regnum_insight.reporting.page import page_of
from regnum_insight.reporting.waterfall import waterfall
from regnum_insight.spans.otlp import ALL
from regnum_insight.spans.span import Span
from regnum_service.errors import RegnumError
from regnum_telemetry import conventions as names
from regnum_testing.asgi import EventStream, ask
from regnum_testing.change_traces import FULL_STEPS_MS, FullChangeTrace
from regnum_testing.clock import FakeClock
from regnum_testing.fake_console import FakeConsole, event_of
from regnum_testing.otlp_lines import Spans, line
from regnum_testing.waiting import DEADLINE_S, until, within


def spans_named(trace: int, *named: str) -> str:
    made = Spans(trace)
    for name in named:
        made.add(name, 0, 1)
    return f"{line(made.made)}\n"


def seen(tail: TraceTail) -> list[str]:
    return [span.name for span in tail.look()]


def read_back(folder: Path) -> list[Span]:
    return TraceTail(folder, SELECTION).look()


def test_what_is_written_comes_once_and_half_a_line_when_it_is_whole(tmp_path: Path) -> None:
    tail = TraceTail(tmp_path / "traces", ALL)
    assert seen(tail) == []
    (tmp_path / "traces").mkdir()
    file = tmp_path / "traces" / "regnum-broker-1.jsonl"
    file.write_text(spans_named(1, "a"))
    assert seen(tail) == ["a"]
    whole = spans_named(2, "b")
    with file.open("a") as writing:
        writing.write(whole[:50])
        writing.flush()
        assert seen(tail) == []
        writing.write(whole[50:])
    assert seen(tail) == ["b"]
    assert seen(tail) == []
    (file.parent / "notes.txt").write_text(spans_named(3, "no traces"))
    (file.parent / "regnum-broker-2.jsonl").write_text(spans_named(3, "c"))
    assert seen(tail) == ["c"]


def test_a_file_that_is_set_aside_is_read_to_its_end_and_the_next_from_its_begin(tmp_path: Path) -> None:
    file = tmp_path / "regnum-broker-1.jsonl"
    file.write_text(spans_named(1, "a"))
    tail = TraceTail(tmp_path, ALL)
    assert seen(tail) == ["a"]
    with file.open("a") as writing:
        writing.write(spans_named(2, "last of the old"))
    aside = file.rename(tmp_path / "regnum-broker-1.000001.jsonl")
    file.write_text(spans_named(3, "first of the new"))
    assert sorted(seen(tail)) == ["first of the new", "last of the old"]
    aside.unlink()
    assert seen(tail) == []


def test_a_file_that_a_look_misses_while_it_is_set_aside_is_not_read_again(tmp_path: Path) -> None:
    missing = 0

    def find(folder: Path) -> Found:
        """Files of the folder, without the first ``missing``."""
        nonlocal missing
        names = sorted(files_in(folder).items(), key=lambda one: one[1][0].name)[missing:]
        missing = 0
        return dict(names)

    for name in ("regnum-broker-1", "regnum-broker-2"):
        (tmp_path / f"{name}.jsonl").write_text(spans_named(1, name))
    tail = TraceTail(tmp_path, ALL, find=find)
    assert len(seen(tail)) == 2
    for gone in (1, 2):
        missing = gone
        assert seen(tail) == []
        assert seen(tail) == []
    with (tmp_path / "regnum-broker-1.jsonl").open("a") as writing:
        writing.write(spans_named(2, "new"))
    missing = 1
    assert seen(tail) == ["new"]


@pytest.mark.parametrize("torn", ["", '{"resourceSpans": [{', "\x00\x00", "[]", "7"])
def test_a_file_that_is_cut_is_read_anew_and_a_torn_line_costs_itself(tmp_path: Path, torn: str) -> None:
    file = tmp_path / "regnum-broker-1.jsonl"
    file.write_text(spans_named(1, "a", "b", "c"))
    tail = TraceTail(tmp_path, ALL)
    assert len(seen(tail)) == 3
    file.write_text(f"{torn}\n{spans_named(2, 'd')}")
    assert seen(tail) == ["d"]


def test_another_file_that_gets_the_place_of_a_removed_one_is_read_from_its_begin(tmp_path: Path) -> None:
    file = tmp_path / "regnum-broker-1.jsonl"
    file.write_text(spans_named(1, "a"))
    tail = TraceTail(tmp_path, ALL)
    assert seen(tail) == ["a"]
    # The same inode under the name of another process, as file systems hand them out again.
    with file.open("a") as writing:
        writing.write(spans_named(2, "b"))
    file.rename(tmp_path / "regnum-broker-2.jsonl")
    assert seen(tail) == ["a", "b"]


def test_of_a_past_of_any_size_the_newest_is_read_and_one_look_is_bounded(tmp_path: Path) -> None:
    one = len(spans_named(1, "n-0000"))
    file = tmp_path / "regnum-broker-1.jsonl"
    file.write_text("".join(spans_named(1, f"n-{n:04}") for n in range(100)))
    assert seen(TraceTail(tmp_path, ALL, backlog_bytes=10 * one + 5)) == [f"n-{n:04}" for n in range(90, 100)]
    tail = TraceTail(tmp_path, ALL, look_bytes=30 * one)
    looks = [seen(tail) for _ in range(5)]
    assert max(map(len, looks)) <= 30
    assert [name for look in looks for name in look] == [f"n-{n:04}" for n in range(100)]


def test_spans_one_by_one_come_to_the_change_of_the_report_whatever_their_order(tmp_path: Path) -> None:
    FullChangeTrace().write(tmp_path)
    (of_report,) = analyse(tmp_path).changes
    for order in (1, -1):
        changes = Changes()
        for span in read_back(tmp_path)[::order]:
            changes.take([span])
        (known,) = changes.newest_first()
        assert known.change == of_report


def test_what_is_held_is_bounded(tmp_path: Path) -> None:
    changes = Changes(changes_max=3, waiting_max=4)
    for trace in range(1, 9):
        FullChangeTrace(trace).write(tmp_path / str(trace))
        changes.take(read_back(tmp_path / str(trace)))
        changes.take([Span(f"{900 + trace:032x}", "1" * 16, "", "send orders", 4, 1, 2, "client 1", {})])
    assert len(changes.newest_first()) == 3
    assert len(changes._waiting) <= 4
    few = Changes(held_max=300)
    for trace in range(1, 9):
        few.take(read_back(tmp_path / str(trace)))
        few.take([Span(f"{900 + trace:032x}", "1" * 16, "", "send orders", 4, 1, 2, "client 1", {})])
    known = few.newest_first()
    assert known
    assert sum(len(one.spans) for one in known) <= 300


def test_long_texts_count_for_what_they_take() -> None:
    changes = Changes(held_max=300)

    def long(trace: int, id: int) -> Span:
        return Span(f"{trace:032x}", f"{id:016x}", "", "send orders", 4, 1, 2, "client 1", {"text": "x" * 16 * 1024})

    for number in range(100):
        changes.take([long(number, 1)])
        changes.take([long(number, 1)])
    assert len(changes._waiting) == 300 // 17
    for number in range(3_000):
        changes.take([long(7, number)])
    assert sum(len(of.spans) for of in changes._waiting.values()) <= 300 // 17


def test_links_count_for_what_they_take() -> None:
    changes = Changes(held_max=300)
    links = tuple((f"{number:032x}", "1" * 16) for number in range(1, 65))
    for number in range(100):
        changes.take([Span(f"{number:032x}", "1" * 16, "", "send orders", 4, 1, 2, "client 1", {}, links)])
    assert len(changes._waiting) == 300 // 17


def test_an_opening_record_alone_is_drawn(tmp_path: Path) -> None:
    FullChangeTrace().write(tmp_path)
    opened = [span for span in read_back(tmp_path) if span.name == names.CHANGE_OPENED]
    change = change_of(opened)
    assert change is not None
    picture = waterfall(change, opened)
    assert "opened" in picture
    assert picture.count("<rect") == 1


async def test_a_waterfall_grows_on_an_open_page_until_it_is_that_of_the_report(tmp_path: Path) -> None:
    FullChangeTrace().write(tmp_path / "whole")
    analysis = analyse(tmp_path / "whole")
    traces = tmp_path / "traces"
    traces.mkdir()
    console = FakeConsole(source=TraceTail(traces, SELECTION))
    async with EventStream(console.app, "/live/changes") as stream:
        assert "no change yet" in (await stream.next("part"))["html"]
        await stream.next("part")
        spans = (tmp_path / "whole" / "regnum-election-1.jsonl").read_text()
        (traces / "regnum-election-1.jsonl").write_text(spans)
        await until(lambda: console.clock.sleepers > 0)
        await console.clock.advance(0.2)
        first = (await stream.next("part"))["html"]
        assert "acknowledged" not in first
        for file in (tmp_path / "whole").iterdir():
            (traces / file.name).write_bytes(file.read_bytes())
        await until(lambda: console.clock.sleepers > 0)
        await console.clock.advance(1.0)
        while "acknowledged" not in (last := (await stream.next("part"))["html"]):
            assert "<section" not in last, "what comes after the first look is the list of it"
    assert "<rect" in first
    told = r'data-total-ms=[\'"]([^\'"]+)[\'"] data-steps-ms=[\'"]([^\'"]+)[\'"]'
    of_report = re.search(told, page_of(analysis, made="now", source="traces"))
    of_console = re.search(told, last)
    assert of_report is not None
    assert of_console is not None
    assert of_console.groups() == of_report.groups()
    page = (await ask(console.app, f"/changes/{analysis.changes[0].trace_id}")).text
    assert "orders/1" in page
    assert f"/live/changes/{analysis.changes[0].trace_id}" in page


async def test_however_many_pages_are_open_files_are_looked_at_ten_times_a_second() -> None:
    looks = 0

    class Counted:
        def look(self) -> list[Span]:
            nonlocal looks
            looks += 1
            return []

    console = FakeConsole(source=Counted())
    feed = ChangeFeed(Counted(), console.clock)
    for _ in range(20):
        await feed.look()
    assert looks == 1
    await console.clock.advance(0.11)
    await feed.look()
    assert looks == 2


async def test_a_page_that_is_closed_during_a_look_takes_nothing_from_the_others(tmp_path: Path) -> None:
    FullChangeTrace().write(tmp_path)
    tail, looking, go_on, at_a_time = TraceTail(tmp_path, SELECTION), threading.Event(), threading.Event(), []

    class Held:
        def look(self) -> list[Span]:
            at_a_time.append("begin")
            looking.set()
            go_on.wait(DEADLINE_S)
            at_a_time.append("end")
            return tail.look()

    feed = ChangeFeed(Held(), FakeClock())
    closed = asyncio.create_task(feed.look())
    await until(looking.is_set)
    closed.cancel()
    await asyncio.wait({closed})
    another = asyncio.create_task(feed.look())
    go_on.set()
    assert len(await within(another)) == 1
    assert at_a_time == ["begin", "end"]


async def test_a_page_says_that_traces_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "traces"
    file.touch()
    answer = await ask(FakeConsole(source=TraceTail(file, SELECTION)).app, "/changes")
    assert answer.status >= 500
    assert f"traces cannot be read: {file}" in answer.text


async def test_streams_end_with_the_console_and_there_are_only_so_many() -> None:
    console = FakeConsole()
    async with EventStream(console.app, "/live/cluster") as stream:
        assert "All is well" in (await stream.next("part"))["html"]
        console.streams.closing.set()
        await stream.ended()


async def test_a_browser_that_connects_again_gets_what_it_has_not_seen() -> None:
    console = FakeConsole()
    console.cluster.events = [event_of(number) for number in (2, 3, 4)]
    async with EventStream(console.app, "/live/events?after=7.1", headers={"Last-Event-ID": "7.3"}) as stream:
        html = (await stream.next("part"))["html"]
    assert html.count("<tr>") == 2, "a head and one event"


async def test_a_stream_says_when_the_cluster_does_not_answer() -> None:
    console = FakeConsole()
    async with EventStream(console.app, "/live/moves") as stream:
        assert "No partition" in (await stream.next("part"))["html"]
        console.cluster.refusal = RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "no broker answers")
        await until(lambda: console.clock.sleepers > 0)
        await console.clock.advance(2.0)
        assert (await stream.next("trouble"))["text"] == "no broker answers"


async def test_changes_are_chosen_by_what_they_are_about_also_while_they_grow(tmp_path: Path) -> None:
    FullChangeTrace(1).write(tmp_path / "1")
    FullChangeTrace(2, kind=names.KIND_BALANCE, before_ms=7_000.0).write(tmp_path / "2")
    console = FakeConsole(source=TraceTail(tmp_path / "1", SELECTION))
    both = FakeConsole(source=Sources([TraceTail(tmp_path / "1", SELECTION), TraceTail(tmp_path / "2", SELECTION)]))

    async def chosen(query: str) -> list[int]:
        page = (await ask(both.app, f"/changes?{query}")).text.partition("All of them")[2]
        return [int(one, 16) for one in re.findall(r"/changes/([0-9a-f]{32})", page)]

    assert await chosen("") == [2, 1]
    assert await chosen("kind=balance") == [2]
    assert await chosen("min_ms=100&broker=2&partition=orders/0&error=any&victim=broker+1") == [1]
    assert await chosen("broker=9") == []
    assert "None of 2 changes matches" in (await ask(both.app, "/changes?broker=9")).text
    for wrong in ("broker=x", "min_ms=-1"):
        assert (await ask(both.app, f"/changes?{wrong}")).status == 400
    page = (await ask(console.app, "/changes?kind=balance&min_ms=50")).text
    assert 'data-live="/live/changes?kind=balance&amp;min_ms=50"' in page
    assert 'name="min_ms" value="50"' in page
    async with EventStream(console.app, "/live/changes?kind=balance") as stream:
        assert "None of 1 changes" in (await stream.next("part"))["html"]


async def test_a_change_stands_beside_another_stage_by_stage(tmp_path: Path) -> None:
    FullChangeTrace(1).write(tmp_path / "1")
    FullChangeTrace(2, steps_ms={**FULL_STEPS_MS, "leads": 66.0}, before_ms=7_000.0).write(tmp_path / "2")
    console = FakeConsole(source=Sources([TraceTail(tmp_path / "1", SELECTION), TraceTail(tmp_path / "2", SELECTION)]))
    first, second = f"{1:032x}", f"{2:032x}"
    page = (await ask(console.app, f"/changes/{first}")).text
    assert f'<option value="{second}">' in page
    assert "differs most" not in page
    page = (await ask(console.app, f"/changes/{first}?with={second}")).text
    cells = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", page))
    assert "leads differs most 6.0 66.0 +60.0" in cells
    assert "all 103.0 163.0 +60.0" in cells
    assert (await ask(console.app, f"/changes/{first}?with={9:032x}")).status == 404
    assert (await ask(console.app, f"/changes/{first}?with=%3Cb%3E")).status == 404
