"""The tests run as well from a shell that ignores SIGINT."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
CHILD = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"


def hears_sigint() -> bool:
    """Whether a process started from here does."""
    started = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=60, check=True)
    return started.stdout.strip() == "True"


def test_processes_that_tests_start_hear_sigint() -> None:
    assert hears_sigint()


def test_they_do_when_the_tests_run_as_a_background_job() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{__file__}::{FIRST}"]
    shell = ["bash", "-c", """trap '' INT; exec "$@\"""", "bash", *command]
    ran = subprocess.run(shell, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stdout


FIRST = test_processes_that_tests_start_hear_sigint.__name__
