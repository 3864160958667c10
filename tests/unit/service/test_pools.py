"""Threads for jobs are there from the beginning, or the start fails."""

import subprocess
import sys
import threading

from regnum_service.pools import DaemonThread, thread_pool
from regnum_testing.waiting import DEADLINE_S

NO_ROOM = """
import resource, sys, threading
from regnum_service.pools import thread_pool

used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
threading.stack_size(64 * 2**20)
resource.setrlimit(resource.RLIMIT_AS, (used + 160 * 2**20, resource.RLIM_INFINITY))
try:
    thread_pool("flusher", 8)
except RuntimeError as error:
    sys.exit(0 if "thread" in str(error) else 3)
sys.exit(4)
"""
"""A process with room for the stacks of some threads, and not for eight."""


def test_all_threads_of_a_pool_are_there_before_its_first_job() -> None:
    pool = thread_pool("test-pool", 5)
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("test-pool")]
    assert len(names) == 5
    assert [done.result(DEADLINE_S) for done in [pool.submit(int, number) for number in range(20)]] == list(range(20))
    pool.shutdown()


def test_a_machine_without_room_for_threads_says_so_at_the_start_and_ends() -> None:
    assert subprocess.run([sys.executable, "-c", NO_ROOM], check=False, timeout=DEADLINE_S).returncode == 0


def test_a_daemon_thread_outlives_a_job_that_nobody_wants_any_more() -> None:
    thread, go_on, ran = DaemonThread("test-daemon"), threading.Event(), list[str]()
    first = thread.submit(go_on.wait, DEADLINE_S)
    given_up = thread.submit(ran.append, "given up")
    last = thread.submit(ran.append, "last")
    assert given_up.cancel()
    go_on.set()
    assert first.result(DEADLINE_S)
    last.result(DEADLINE_S)
    assert ran == ["last"]
    thread.shutdown()
