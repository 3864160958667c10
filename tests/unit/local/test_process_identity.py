"""A process is its pid, its start and its boot."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from regnum_local.identity import ProcessIdentity


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"], stdout=-1)
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_this_process_is_alive():
    identity = ProcessIdentity.of_self()
    assert identity.pid == os.getpid()
    assert identity.alive()
    assert ProcessIdentity.from_json(identity.to_json()) == identity


def test_a_process_that_ended_is_not_alive_even_before_it_is_reaped(sleeper):
    identity = ProcessIdentity.of(sleeper.pid)
    assert identity.send(signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.alive()
    assert not identity.send(signal.SIGTERM)
    sleeper.wait()
    assert ProcessIdentity.of(sleeper.pid) is None


@pytest.mark.parametrize("other", [{"start_ticks": 1}, {"boot_id": "another boot"}])
def test_a_reused_pid_is_never_signalled(sleeper, other):
    stranger = replace(ProcessIdentity.of(sleeper.pid), **other)
    assert not stranger.alive()
    assert not stranger.send(signal.SIGKILL)
    assert sleeper.poll() is None


def test_a_stopped_process_says_so(sleeper):
    identity = ProcessIdentity.of(sleeper.pid)
    assert identity.send(signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)
    assert identity.state() == "T"
    assert identity.alive()
    assert identity.send(signal.SIGCONT)
