"""`regnum failovers report`: in one process, or by Spark where asked for; where it cannot run it says so."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from regnum_telemetry import conventions as names
from regnum_testing.change_tables import put, told_of
from regnum_testing.change_traces import FULL_STEPS_MS, ChangeTrace, FullChangeTrace, two_releases
from regnum_testing.command_here import CommandHere
from regnum_testing.waiting import DEADLINE_S


async def report(folder: Path, *arguments: str, path: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", "import sys; from regnum_client.command import main; sys.exit(main())", "failovers", "report"),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "PATH": path, "JAVA_HOME": "", "REGNUM_PROFILE": str(folder / "profile.json")},
    )
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.parametrize("form", ["table", "json"])
async def test_without_java_spark_says_what_to_install(tmp_path, form):
    status, out, err = await report(tmp_path, "--spark", "--output", form, path=str(tmp_path))
    assert (status, out) == (5, "")
    assert "openjdk-17" in err
    if form == "json":
        assert json.loads(err.splitlines()[-1])["error"]["code"] == "SPARK_UNAVAILABLE"


async def test_no_java_is_needed(tmp_path):
    ChangeTrace().write(tmp_path / "traces")
    status, out, err = await report(tmp_path, "--traces", "traces", "-o", "json", path=str(tmp_path))
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert [(row["victim"], row["worst"], row["total_ms"]) for row in told["failovers"]] == [
        ("broker 1", "orders/0", 85)
    ]
    assert (tmp_path / "failovers" / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


async def test_without_traces_it_says_where_it_looked(tmp_path):
    status, out, err = await report(tmp_path, "--traces", "nowhere", path=str(tmp_path))
    assert (status, out) == (3, "")
    assert "there is no nowhere; name the folder that has traces with --traces" in err


async def test_names_in_traces_move_no_cursor(tmp_path):
    here = CommandHere("127.0.0.1:1")
    two_releases(tmp_path / "traces")
    for file in (tmp_path / "traces").rglob("*.jsonl"):
        text = file.read_text(encoding="utf-8")
        text = text.replace('"orders"', r'"\u001b[2Jorders"').replace('"blue"', r'"\u001b[31mblue"')
        file.write_text(text, encoding="utf-8")
    put(told_of(tmp_path / "traces"), tmp_path / "tables")
    told = await here.alone("failovers", "report", "--traces", str(tmp_path / "traces"), "--out", str(tmp_path / "out"))
    assert r"\u001b[2Jorders/0" in told.out
    trends = await here.alone("failovers", "trends", "--tables", str(tmp_path / "tables"))
    assert r"\u001b[31mblue" in trends.out
    assert "\x1b" not in told.out + trends.out


async def test_trends_are_those_of_tables(tmp_path):
    here = CommandHere("127.0.0.1:1")
    two_releases(tmp_path / "traces")
    put(told_of(tmp_path / "traces"), tmp_path / "tables")
    told = await here.alone("failovers", "trends", "--tables", str(tmp_path / "tables"), "--since", "2027-01-15")
    assert (told.status, told.err) == (0, "")
    assert "2027-01-01  blue" in told.out
    assert "1.0.0 to 1.1.0, failures: " in told.out
    assert "too few changes: 5 and 5" in told.out
    told = await here.alone(
        "failovers", "trends", "--tables", f"{tmp_path}/tables", "--by", "day", "--since", "2027-01-16", "-o", "json"
    )
    assert len(json.loads(told.out)["parts"]) == 4
    nothing = await here.alone("failovers", "trends", "--tables", str(tmp_path), "-o", "json")
    assert (nothing.status, nothing.error["code"]) == (3, "NO_TRACES")


async def test_changes_are_listed_by_what_they_are_about(tmp_path: Path) -> None:
    here = CommandHere("127.0.0.1:1")
    traces = str(tmp_path / "traces")
    FullChangeTrace(1).write(tmp_path / "traces" / "1")
    FullChangeTrace(2, kind=names.KIND_BALANCE, before_ms=7_000.0).write(tmp_path / "traces" / "2")

    async def listed(*options: str) -> list[str]:
        ran = await here.alone("failovers", "list", "--traces", traces, "-o", "json", *options)
        assert ran.status == 0, ran.err
        return [row["trace_id"].lstrip("0") for row in json.loads(ran.out)]

    assert await listed() == ["2", "1"]
    assert await listed("--longest") == ["1", "2"]
    assert await listed("--kind", "balance") == ["2"]
    assert await listed("--victim", "broker-1", "--min-ms", "100", "--error", "any") == ["1"]
    assert await listed("--partition", "orders/0", "--broker", "2", "-n", "1") == ["2"]
    people = await here.alone("failovers", "list", "--traces", traces, "-n", "1")
    assert people.out.splitlines()[0].split()[:2] == ["STARTED", "KIND"]
    assert people.err == "1 more; raise --limit\n"
    nothing = await here.alone("failovers", "list", "--traces", traces, "--broker", "9")
    assert (nothing.status, nothing.out, nothing.err) == (0, "", "none of 2 changes matches\n")
    for wrong, status, advice in (
        (("--traces", traces, "--since", "yesterday"), 2, "is no time"),
        (("--traces", str(tmp_path / "none")), 3, "--traces"),
        (("--traces", traces, "--kind", ""), 2, "--kind"),
    ):
        ended = await here.alone("failovers", "list", *wrong)
        assert (ended.status, advice in ended.err) == (status, True), ended.err


async def test_two_changes_are_compared_by_the_beginnings_of_their_trace_ids(tmp_path: Path) -> None:
    here = CommandHere("127.0.0.1:1")
    traces = ("--traces", str(tmp_path / "traces"))
    first, second = f"{0x1F:032X}", f"{0x1A:031x}"
    FullChangeTrace(0x1F).write(tmp_path / "traces" / "1")
    slow = {**FULL_STEPS_MS, "leads": 66.0}
    FullChangeTrace(0x1A0, steps_ms=slow, before_ms=7_000.0).write(tmp_path / "traces" / "2")
    people = await here.alone("failovers", "compare", first, second, *traces)
    assert people.status == 0, people.err
    assert any(line.split()[:4] == ["leads", "6.0", "66.0", "+60.0"] for line in people.out.splitlines())
    told = json.loads((await here.alone("failovers", "compare", first, second, *traces, "-o", "json")).out)
    assert told["stages"][-1]["difference_ms"] == 60.0
    ambiguous = await here.alone("failovers", "compare", "0", second, *traces)
    assert (ambiguous.status, "2 changes have a trace" in ambiguous.err) == (2, True)
    unknown = await here.alone("failovers", "compare", "ff", second, *traces)
    assert (unknown.status, "regnum failovers list" in unknown.err) == (3, True)
