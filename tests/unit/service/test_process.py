"""The outermost frame of a service: what a signal does to it before and after it has started."""

import asyncio
import signal
import sys

import pytest
from regnum_testing.waiting import within

PROGRAM = """
import asyncio, sys, time
from regnum_service import process
from regnum_service.supervisor import Supervisor

async def main():
    supervisor = Supervisor("test")
    if "starting" in sys.argv:
        # As a start does that waits for a lock; and a thread that looks through logs.
        waiting = asyncio.to_thread(time.sleep, 1_000)
        print("here", flush=True)
        await waiting
    supervisor.defer("word", said)
    running = asyncio.create_task(supervisor.run_until_stopped())
    await asyncio.sleep(0)
    print("here", flush=True)
    return await running

async def said():
    print("in order", flush=True)

sys.exit(process.run(main))
"""


@pytest.mark.parametrize(
    ("moment", "status", "says"), [("starting", 128 + signal.SIGTERM, ""), ("started", 0, "in order")]
)
async def test_a_process_that_is_told_to_stop_while_it_starts_ends_by_itself(
    moment: str, status: int, says: str
) -> None:
    """One that leaves it to the kernel is not sent the signal when it is the first process of a container."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, moment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        while b"here" not in await within(process.stdout.readline()):
            assert not process.stdout.at_eof()
        process.send_signal(signal.SIGTERM)
        out, err = await within(process.communicate())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == status
    assert says in out.decode()
    assert ("stopped while starting" in err.decode()) is (moment == "starting")
