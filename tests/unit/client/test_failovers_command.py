"""`regnum failovers report` where it cannot run: it says so, and nothing else."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
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
async def test_without_java_it_says_what_to_install(tmp_path, form):
    status, out, err = await report(tmp_path, "--output", form, path=str(tmp_path))
    assert (status, out) == (5, "")
    assert "openjdk-17" in err
    if form == "json":
        assert json.loads(err.splitlines()[-1])["error"]["code"] == "SPARK_UNAVAILABLE"
