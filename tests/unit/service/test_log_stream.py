"""Logs on a disk that fails, or in a pipe that nobody reads: lines are lost, and nothing else."""

import errno
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from regnum_service.errors import ExitStatus
from regnum_service.log_stream import LOST, unfailing
from regnum_testing.waiting import DEADLINE_S

FAILS = """
import asyncio, os, resource, sys
from regnum_service import logs, process
from regnum_service.supervisor import Supervisor

read, write = os.pipe()
if sys.argv[1] == "pipe":
    os.dup2(write, 2)

async def main():
    supervisor = Supervisor("broker-1")

    async def disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        os.close(read)
        raise OSError("the disk failed")

    supervisor.start("storage", disk())
    status = await supervisor.run_until_stopped()
    sys.stderr.write("these words as well\\n")
    return 10 * status

logs.configure("broker-1")
os.close(write)
sys.exit(process.run(main))
"""
"""A process one part of which fails, from where on it can write to no file, or to no pipe."""


class Device(io.StringIO):
    """Fails while it is told to."""

    error: OSError | None = None

    def write(self, text: str) -> int:
        if self.error is not None:
            raise self.error
        return super().write(text)

    def flush(self) -> None:
        if self.error is not None:
            raise self.error


def test_lines_are_lost_while_it_fails_and_that_is_said_afterwards() -> None:
    device = Device()
    stream = unfailing(device)
    assert unfailing(stream) is stream
    stream.write("one\n")
    device.error = OSError(errno.ENOSPC, "No space left on device")
    assert stream.write("two\n") == 4
    stream.flush()
    device.error = None
    stream.write("three\n")
    stream.write("four\n")
    first, told, *others = device.getvalue().splitlines()
    assert (first, others) == ("one", ["three", "four"])
    assert json.loads(told)["event"] == LOST
    assert "No space left" in json.loads(told)["error"]
    device.close()
    stream.write("five\n")


@pytest.mark.parametrize("log_is_a", ["file", "pipe"])
def test_a_service_one_part_of_which_fails_ends_though_its_log_takes_no_line(log_is_a: str, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-c", FAILS, log_is_a]
        ended = subprocess.run(command, stderr=log, check=False, timeout=DEADLINE_S)
    assert ended.returncode == 10 * ExitStatus.FAILED
    assert b"failed" not in (tmp_path / "log").read_bytes()
