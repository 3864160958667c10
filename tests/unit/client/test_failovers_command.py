"""`regnum failovers report`: in one process, or by Spark where asked for; where it cannot run it says so."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from regnum_testing.change_tables import put, told_of
from regnum_testing.change_traces import ChangeTrace, two_releases
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
