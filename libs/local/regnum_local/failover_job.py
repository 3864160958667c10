"""Runs the Spark job over traces on this machine, in a process of its own: Spark and Java stay out of the caller's."""

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from regnum_service.errors import ExitStatus

from regnum_local import tether
from regnum_local.java import INSTALL, JAVA_MAJOR_MIN, find_java

TIMEOUT_S: Final = 300.0
"""A minute is usual on a slow machine; a job that takes longer than this hangs."""
END_TIMEOUT_S: Final = 10.0
"""Time that its processes get to end by themselves."""
_POLL_S: Final = 0.05
LOG_NAME: Final = "spark.log"
_TAIL_LINES: Final = 15
_NO_TRACES: Final = ExitStatus.NOT_FOUND


class JobError(Exception):
    """The job did not run to its end. The message says what to do."""

    exit_status: ExitStatus
    """Exit status for a command that ends with it."""

    def __init__(self, message: str, *, exit_status: ExitStatus) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class JobUnavailableError(JobError):
    """Spark or Java is not installed here."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_status=ExitStatus.UNAVAILABLE)


def check_available(environment: Mapping[str, str] = os.environ) -> None:
    """Whether the job could run here; raises JobUnavailableError, which says what to install. Starts nothing."""
    for package in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            raise JobUnavailableError(f"{package} is not installed; install it with: pip install 'regnum[spark]'")
    if find_java(environment) is None:
        raise JobUnavailableError(
            f"Spark needs Java {JAVA_MAJOR_MIN} or newer, and there is no java on PATH or in JAVA_HOME; install it, "
            f"for example with: {INSTALL}"
        )


async def run_failover_job(
    traces: Path, out: Path, *, form: str = "json", environment: Mapping[str, str] = os.environ
) -> str:
    """Run it over the files of a folder; returns what it printed. What Spark says goes to ``out/spark.log``.

    Raises JobError. The processes are gone when it returns, also when it is cancelled.
    """
    check_available(environment)
    await _check_java_version(environment)
    if not await asyncio.to_thread(traces.is_dir):
        raise JobError(f"there is no folder {traces} with traces; name the one that has them", exit_status=_NO_TRACES)
    log = out / LOG_NAME
    await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
    variables = {
        # A Spark installed elsewhere is another version than the package.
        **{name: value for name, value in environment.items() if name not in {"SPARK_HOME", "PYSPARK_GATEWAY_PORT"}},
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Its output is read here, whatever the locale.
        "PYTHONIOENCODING": "utf-8",
    }
    arguments = ("-P", "-m", "regnum_failover", str(traces), str(out), "--output", form)
    with log.open("wb") as errors:
        # A session of its own: Spark is two processes, and Ctrl-C is ours to pass on.
        job = await asyncio.create_subprocess_exec(
            sys.executable,
            # It gets SIGTERM when this process dies, and Java ends with it.
            *("-S", "-E", "-P", tether.__file__, str(os.getpid())),
            sys.executable,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=variables,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                printed, _ = await job.communicate()
        except TimeoutError:
            raise JobError(
                f"the job did not end within {TIMEOUT_S:g} s; see {log}", exit_status=ExitStatus.FAILED
            ) from None
        finally:
            await _see_it_end(job)
    if job.returncode:
        raise JobError(_complaint(log), exit_status=_status(job.returncode))
    return printed.decode("utf-8")


async def failover_report(traces: Path, out: Path, *, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What the job found, as values; see ``run_failover_job``."""
    value: dict[str, Any] = json.loads(await run_failover_job(traces, out, environment=environment))
    return value


async def _check_java_version(environment: Mapping[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        str(find_java(environment)),
        "-version",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=dict(environment),
    )
    said, _ = await process.communicate()
    version = re.search(rb'version "(\d+)', said)
    if process.returncode or version is None or int(version[1]) < JAVA_MAJOR_MIN:
        first = said.decode("utf-8", "replace").splitlines()[:1]
        raise JobUnavailableError(
            f"Spark needs Java {JAVA_MAJOR_MIN} or newer; java says: {' '.join(first) or 'nothing'}; "
            "set JAVA_HOME to a newer one"
        )


async def _see_it_end(job: asyncio.subprocess.Process) -> None:
    """The Java process outlives its parent by the moment it needs to clear its folders away; a hung one is killed."""
    with contextlib.suppress(ProcessLookupError):
        if job.returncode is None:
            os.killpg(job.pid, signal.SIGTERM)
        for _ in range(round(END_TIMEOUT_S / _POLL_S)):
            os.killpg(job.pid, 0)
            await asyncio.sleep(_POLL_S)
        os.killpg(job.pid, signal.SIGKILL)
    await job.wait()


def _complaint(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    own = [text for text in lines[-1:] if text.startswith(("there are no traces", "the job failed"))]
    return own[0] if own else "\n".join(["the job failed:", *lines[-_TAIL_LINES:], f"all of it: {log}"])


def _status(returned: int) -> ExitStatus:
    return ExitStatus.NOT_FOUND if returned == ExitStatus.NOT_FOUND else ExitStatus.FAILED
