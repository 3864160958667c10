"""`regnum stop`, `kill`, `pause`, `resume` and `logs`: one process of a cluster on this machine."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from regnum_client.commands.logs.output import last_lines, later_lines
from regnum_local.files import write_json
from regnum_local.identity import ProcessIdentity
from regnum_local.plan import PORT_NAMES, Member, Plan, Role
from regnum_local.runtime_record import RuntimeRecord, write_record
from regnum_service.clock import SystemClock
from regnum_testing.command_here import CommandHere
from regnum_testing.ports import unused_port


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a cluster with two brokers, of which the first runs: it sleeps."""
    process = subprocess.Popen(["sleep", "600"])
    ports = [{name: unused_port() for name in PORT_NAMES[Role.BROKER]} for _ in range(2)]
    members = tuple(Member(role=Role.BROKER, id=id, ports=ports[id - 1]) for id in (1, 2))
    write_json(tmp_path / "cluster.json", Plan(members=members).to_json())
    identity = ProcessIdentity.of(process.pid)
    assert identity is not None
    launcher = ProcessIdentity.of_self()
    write_record(tmp_path, RuntimeRecord(launcher=launcher, processes={"broker-1": identity}))
    yield tmp_path
    process.kill()
    process.wait()


async def state_after(folder: Path, *words: str) -> tuple[int, str, str]:
    """Exit status, state of the process, and what was said."""
    ran = await CommandHere("").alone(*words, "--data-dir", str(folder), "-o", "json")
    return ran.status, json.loads(ran.out)[0]["state"] if ran.out else "", ran.err


async def test_a_process_is_paused_resumed_and_ended(folder: Path) -> None:
    assert (await state_after(folder, "pause", "broker-1"))[:2] == (0, "paused")
    status, _, said = await state_after(folder, "stop", "broker-1")
    assert (status, "`regnum resume broker-1` first" in said) == (4, True), "it could not stop in order"
    assert (await state_after(folder, "resume", "broker-1"))[:2] == (0, "running")
    status, _, said = await state_after(folder, "resume", "broker-1")
    assert (status, "is not paused" in said) == (4, True)
    assert (await state_after(folder, "stop", "broker-1"))[:2] == (0, "exited")
    status, _, said = await state_after(folder, "kill", "broker-1")
    assert (status, "`regnum start broker-1`" in said) == (4, True)


async def test_all_names_are_looked_at_before_anything_is_done(folder: Path) -> None:
    status, _, said = await state_after(folder, "kill", "broker-1", "brokr-2")
    assert (status, "did you mean 'broker-2'?" in said) == (3, True)
    status, _, said = await state_after(folder, "kill", "broker-1", "broker-2")
    assert (status, "broker-2 does not run" in said) == (4, True)
    assert (await state_after(folder, "kill", "broker-1"))[:2] == (0, "exited"), "it was left alone"


async def test_what_a_process_wrote_last_is_shown(folder: Path) -> None:
    regnum = CommandHere("")
    place = ("--data-dir", str(folder))
    assert (await regnum.alone("logs", "broker-1", *place)).status == 3, "it has written nothing"
    (folder / "logs").mkdir()
    (folder / "logs" / "broker-1.log").write_text("".join(f"line {number}\n" for number in range(100)))
    ran = await regnum.alone("logs", "broker-1", "-n", "2", *place)
    assert ran.out == "line 98\nline 99\n"
    rows = await regnum.alone("logs", "broker-1", "-n", "1", "-o", "jsonl", *place)
    assert json.loads(rows.out) == {"process": "broker-1", "line": "line 99"}
    assert (await regnum.alone("logs", "broker-1", "-f", "-o", "json", *place)).status == 2


async def test_lines_are_followed_as_they_come_and_only_whole(tmp_path: Path) -> None:
    path = tmp_path / "broker-1.log"
    path.write_bytes(b"one\ntwo\n\xff\n")
    lines, position = last_lines(path, 2)
    assert lines == ["two", "\ufffd"]
    assert last_lines(path, 0) == ([], position)
    assert last_lines(path, 9)[0] == ["one", "two", "\ufffd"]
    with path.open("ab") as log:
        log.write(b"three\nhalf")
        log.flush()
        following = later_lines(path, position, SystemClock())
        assert await anext(following) == ["three"]
        log.write(b" of it\n")
        log.flush()
        assert await anext(following) == ["half of it"]
        await following.aclose()


def test_many_lines_of_a_long_log_cost_no_more_than_some_reads_of_it(tmp_path: Path) -> None:
    path = tmp_path / "broker-1.log"
    path.write_bytes(b"".join(b"line %0200d\n" % number for number in range(150_000)))
    began_s = time.thread_time()
    read = path.read_bytes().decode().splitlines()
    read_s = time.thread_time() - began_s
    began_s = time.thread_time()
    lines, _ = last_lines(path, 149_000)
    assert time.thread_time() - began_s < 12 * read_s
    assert lines == read[1_000:]
