"""Services that are told of a store which they can never use: they end at once, and say why in one line."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from regnum_service.errors import ExitStatus
from regnum_testing.ports import unused_port
from regnum_testing.waiting import DEADLINE_S

SERVICES = {
    "regnum_broker": ("--broker-id=1", "client", "internal"),
    "regnum_election": ("--election-id=1", "client", "internal", "lifeline"),
    "regnum_metadata": ("--metadata-id=1", "client", "internal"),
    "regnum_quota": ("--quota-id=1", "internal"),
}


def _flags(service: str, folder: Path) -> Sequence[str]:
    who, *listeners = SERVICES[service]
    home = "--data-dir" if service == "regnum_broker" else "--run-dir"
    return [who, f"{home}={folder}", *(f"--{name}-listen=127.0.0.1:{unused_port()}" for name in listeners)]


@pytest.mark.parametrize("service", SERVICES)
async def test_every_service_refuses_to_start(service: str, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", service, *_flags(service, tmp_path)),
        "--coordination=zookeeper://h/regnum?password=hunter2",
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_S):
        _, said = await process.communicate()
    assert process.returncode == ExitStatus.WRONG_USE, said.decode()
    assert "--coordination: 'zookeeper://h/regnum' has unknown options password" in said.decode()
    assert "Traceback" not in said.decode()
    assert "hunter2" not in said.decode()
