"""Profiles: what samples of stacks add up to."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest
from regnum_bench.profiling import Hot, hottest, hottest_markdown, profiled
from regnum_bench.waiting import MeasureError
from regnum_testing.waiting import eventually

STACKS = (
    "main;load;decode 6",
    "main;load 1",
    "main;main;send 3",
    "main;EpollSelector.select (selectors.py:451) 90",
    "run;_worker (concurrent/futures/thread.py:81) 70",
    "run;Condition.wait (threading.py:327) 50",
    "run;ThreadedChildWatcher._do_waitpid (asyncio/unix_events.py:1404) 30",
    "not a stack",
    "",
)


def _cpu_ticks(pid: int) -> int:
    """Processor time that a process has used: fields utime and stime of its stat."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_shares_are_of_all_samples_and_a_function_counts_once_in_a_stack() -> None:
    assert hottest(STACKS) == [
        Hot(function="decode", own=0.6, total=0.6),
        Hot(function="send", own=0.3, total=0.3),
        Hot(function="load", own=0.1, total=0.7),
        Hot(function="main", own=0.0, total=1.0),
    ]
    assert hottest([]) == []


def test_the_table_has_both_orders(tmp_path: Path) -> None:
    file = tmp_path / "profile-etcd-create-election-1.stacks"
    file.write_text("\n".join(STACKS))
    head, _, _, _, *rows = hottest_markdown(file, count=2).splitlines()
    # Ten samples at 200 a second; those of a loop that waits are none.
    assert head == "`profile-etcd-create-election-1.stacks`: 0.05 s of processor time"
    assert rows == ["| `decode` | 60.0% | | `main` | 100.0% |", "| `send` | 30.0% | | `load` | 70.0% |"]


@pytest.mark.skipif(
    shutil.which("py-spy", path=str(Path(sys.executable).parent)) is None, reason="py-spy is in the extra `bench`"
)
async def test_a_busy_process_is_sampled_and_one_that_is_gone_is_named(tmp_path: Path) -> None:
    busy = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "def busy():\n    print(flush=True)\n    while True: pass\nbusy()"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert busy.stdout is not None
        await busy.stdout.readline()
        file = tmp_path / "sub" / "profile-one.stacks"
        ticks_before = _cpu_ticks(busy.pid)

        async def sampled_long_enough() -> bool:
            # A quarter of a second, of which there are 200 samples a second.
            return _cpu_ticks(busy.pid) - ticks_before >= 0.25 * os.sysconf("SC_CLK_TCK")

        async with profiled({"one": busy.pid}, file.parent, "profile"):
            await eventually(sampled_long_enough)
        assert hottest(file.read_text().splitlines())[0].function.startswith("busy ")
    finally:
        busy.kill()
        await busy.wait()
    with pytest.raises(MeasureError, match="does not sample process"):
        async with profiled({"one": busy.pid}, tmp_path, "profile"):
            pass
