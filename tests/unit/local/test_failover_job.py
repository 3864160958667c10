"""The Spark job as a process: what it needs, what it says, what it leaves."""

import json
import os
import shutil
from pathlib import Path

import pytest
from regnum_local.failover_job import JobError, JobUnavailableError, failover_report, run_failover_job
from regnum_service.errors import ExitStatus
from regnum_testing.otlp_lines import broker_failover, line


def java_that_says(folder: Path, text: str) -> dict[str, str]:
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


async def test_without_java_the_message_says_what_to_install(tmp_path):
    with pytest.raises(JobUnavailableError, match="openjdk-17") as caught:
        await run_failover_job(tmp_path, tmp_path / "out", environment={"PATH": str(tmp_path)})
    assert caught.value.exit_status is ExitStatus.UNAVAILABLE
    assert not (tmp_path / "out").exists()


async def test_an_old_java_is_named(tmp_path):
    environment = java_that_says(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    with pytest.raises(JobUnavailableError, match=r'java says: openjdk version "11\.0\.2"'):
        await run_failover_job(tmp_path, tmp_path / "out", environment=environment)


@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17")
@pytest.mark.full
async def test_the_job_reports_and_leaves_its_tables(tmp_path):
    traces, out = tmp_path / "traces", tmp_path / "tables"
    traces.mkdir()
    with pytest.raises(JobError, match="there are no traces") as caught:
        await run_failover_job(traces, out)
    assert caught.value.exit_status is ExitStatus.NOT_FOUND
    (traces / "regnum-broker-1.jsonl").write_text(f"{line(broker_failover(1, 0))}\n", encoding="utf-8")
    found = await failover_report(traces, out)
    # The longest outage of a client: it lasted 10 ms before the controller noticed.
    assert [row["total_ms"] for row in found["failovers"]] == [206]
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == ["failovers", "malformed", "stages"]
    assert json.dumps(found)
