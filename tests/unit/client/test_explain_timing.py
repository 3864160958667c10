"""`regnum explain --timing` right after a failure: it waits for what processes have not written yet, and no longer."""

import asyncio
import json
import time
from pathlib import Path

from regnum_client.commands.looking.timing import PAUSE_S, Asked, whole
from regnum_insight.attribution.changes import Change
from regnum_insight.engine import analyse
from regnum_telemetry import conventions as names
from regnum_testing.change_traces import FullChangeTrace
from regnum_testing.clock import FakeClock
from regnum_testing.command_here import CommandHere
from regnum_testing.otlp_lines import BASE_NS
from regnum_testing.waiting import within

WAIT_S = 10.0
CLIENTS = ("client 7", "reader 8")
ASKED = Asked("orders", 0, "")


class Traces:
    """Of one change that began a second ago, as they come to a folder."""

    def __init__(self, folder: Path, *, age_s: float = 1.0) -> None:
        self.folder = folder
        self.clock = FakeClock(wall_ms=BASE_NS // 1_000_000 + round(age_s * 1000))
        self.looks = 0
        self.told: list[str] = []

    def begin(self) -> None:
        """All but the root, and none of the clients' spans."""
        trace = FullChangeTrace()
        trace.unfinished()
        trace.write(self.folder, without=CLIENTS)

    def end(self, *, without: tuple[str, ...] = ()) -> None:
        """The root, and the clients that are not left out."""
        FullChangeTrace().write(self.folder, without=without)

    async def look(self) -> list[Change]:
        self.looks += 1
        return list(analyse(self.folder).changes)

    def asked(self, asked: Asked = ASKED, wait_s: float = WAIT_S) -> "asyncio.Task[tuple[list[Change], list[str]]]":
        waiting = whole(self.look, asked, wait_s=wait_s, clock=self.clock, tell=self.told.append)
        return asyncio.create_task(waiting)


async def test_it_waits_until_the_root_and_the_client_have_written(tmp_path):
    traces = Traces(tmp_path)
    traces.begin()
    waiting = traces.asked()
    await traces.clock.advance(2.0)
    assert not waiting.done()
    (told,) = traces.told
    assert told.startswith("waiting up to 10 s for the end of change 0000")
    traces.end(without=("client 7",))
    await traces.clock.advance(1.0)
    assert not waiting.done(), "its leader answered a client that records spans"
    traces.end()
    await traces.clock.advance(PAUSE_S)
    changes, late = await within(waiting)
    assert (late, changes[0].unfinished, changes[0].chains[0].name) == ([], False, "orders/0")


async def test_it_gives_up_after_the_time_that_it_said_and_says_what_was_not_there(tmp_path):
    traces = Traces(tmp_path)
    traces.begin()
    waiting = traces.asked()
    await traces.clock.advance(WAIT_S - 0.1)
    assert not waiting.done()
    await traces.clock.advance(0.1)
    changes, late = await within(waiting)
    assert late == [f"the end of change {1:032x}, which its controller writes"]
    assert [chain.name for chain in changes[0].unseen] == ["orders/0", "orders/1"], "what there is counts"


async def test_nothing_waits_for_an_old_change_nor_for_one_that_is_whole_nor_where_it_is_switched_off(tmp_path):
    for name, age_s, wait_s in (("old", WAIT_S + 1, WAIT_S), ("off", 1.0, 0.0)):
        traces = Traces(tmp_path / name, age_s=age_s)
        traces.begin()
        assert (await within(traces.asked(wait_s=wait_s)))[1] == []
        assert (traces.looks, traces.told) == (1, [])
    whole_ones = Traces(tmp_path / "whole")
    whole_ones.end()
    assert (await within(whole_ones.asked()))[1] == []
    assert whole_ones.looks == 1


async def test_a_change_that_is_under_way_may_be_of_a_partition_of_which_nothing_is_told_yet(tmp_path):
    traces = Traces(tmp_path)
    traces.begin()
    waiting, other = traces.asked(Asked("orders", 7, "")), traces.asked(Asked("orders", 7, "ff"))
    assert (await within(other))[1] == [], "another change is meant"
    await traces.clock.advance(PAUSE_S)
    assert not waiting.done()
    traces.end()
    await traces.clock.advance(PAUSE_S)
    assert (await within(waiting))[1] == []


async def test_a_change_before_the_last_one_of_a_partition_holds_nothing_up(tmp_path):
    traces = Traces(tmp_path / "1", age_s=3.0)
    traces.begin()
    FullChangeTrace(2, kind=names.KIND_ELECTION, before_ms=2_000).write(tmp_path / "1" / "2")
    changes, late = await within(traces.asked())
    assert (len(changes), late, traces.looks) == (2, [], 1)


async def test_the_command_says_what_is_missing_and_keeps_stdout_for_the_chain(tmp_path):
    here = CommandHere("127.0.0.1:1")
    trace = FullChangeTrace()
    trace.unfinished()
    # A change that begins in a minute, by the machine's clock: however slow the test is, it is not an old one.
    ahead_ms = (time.time_ns() - BASE_NS) / 1e6 + 60_000
    trace.write(tmp_path, without=CLIENTS, ahead_ms=dict.fromkeys(trace.documents(), ahead_ms))
    asked = ("explain", "orders/0", "--timing", "--traces", str(tmp_path), "--wait", "0.01")
    told = await here(*asked)
    assert told.status == 0
    assert "client, left no spans" in told.out
    assert f"after 0.01 s there was not yet the end of change {1:032x}" in told.out
    assert "waiting up to 0.01 s" in told.err
    told = await here(*asked, "-o", "json")
    document = json.loads(told.out)
    assert (told.err, document["change"]["unfinished"]) == ("", True)
    assert document["not_written"] == [f"the end of change {1:032x}, which its controller writes"]
    nothing = await here("explain", "orders/7", "--timing", "--traces", str(tmp_path), "--wait", "0.01")
    assert (nothing.status, "ask again later, or wait longer (--wait)" in nothing.err) == (3, True)
    assert "go with --timing" in (await here("explain", "orders/0", "--wait", "1")).err
