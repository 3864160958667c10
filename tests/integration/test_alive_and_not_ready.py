"""A process that waits, for a lock or for the store, is alive and not ready, and its log says which one it is."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Self

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from regnum_broker.log.disk.lock import LockHolder, acquire_lock
from regnum_service.channel import CHANNEL_OPTIONS, aio_channel
from regnum_service.server import LIVENESS
from regnum_testing.ports import unused_port, unused_ports
from regnum_testing.waiting import DEADLINE_S, until, within

SERVICES = {
    "election": ("regnum.admin.v1.AdminService", ("client", "internal", "lifeline")),
    "quota": ("regnum.quota.v1.QuotaService", ("internal",)),
    "metadata": ("regnum.metadata.v1.MetadataService", ("client", "internal")),
    "broker": ("regnum.broker.v1.LogService", ("client", "internal")),
}


class Process:
    """A service with a store that nobody runs."""

    def __init__(self, folder: Path, service: str) -> None:
        self.service, listeners = SERVICES[service]
        self.health, *ports = unused_ports(1 + len(listeners))
        self.log = folder / "log.jsonl"
        self.data = folder / "data"
        self.arguments = [
            *(sys.executable, "-P", "-m", f"regnum_{service}", f"--{service}-id", "7"),
            *("--coordination", f"etcd://127.0.0.1:{unused_port()}", "--health-listen", f"127.0.0.1:{self.health}"),
            *(f"--{name}-listen=127.0.0.1:{port}" for name, port in zip(listeners, ports, strict=True)),
            *(("--data-dir", str(self.data), "--reserve-bytes", "0") if service == "broker" else ()),
        ]
        self.ran: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        with self.log.open("wb") as log:
            self.ran = await asyncio.create_subprocess_exec(*self.arguments, stderr=log)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self.ran is not None and self.ran.returncode is None:
            self.ran.kill()
            await self.ran.wait()

    async def asked(self, service: str) -> int | None:
        """What health says; None: nobody answers yet."""
        async with aio_channel(f"127.0.0.1:{self.health}", options=CHANNEL_OPTIONS) as channel:
            try:
                answer = await health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE_S
                )
            except grpc.aio.AioRpcError:
                return None
            status: int = answer.status
            return status

    async def is_alive(self) -> bool:
        return await self.asked(LIVENESS) == health_pb2.HealthCheckResponse.SERVING

    async def is_ready(self) -> bool:
        return await self.asked(self.service) == health_pb2.HealthCheckResponse.SERVING

    def said(self, text: str) -> bool:
        return text in self.log.read_text()

    async def stopped(self) -> int:
        assert self.ran is not None
        self.ran.send_signal(signal.SIGTERM)
        return await within(self.ran.wait())


async def test_a_broker_whose_directory_is_held_and_then_has_no_store_is_alive_all_the_time(tmp_path: Path) -> None:
    process = Process(tmp_path, "broker")
    process.data.mkdir()
    before = LockHolder(pid=1, host="regnum-broker-7", pid_namespace="pid:[1]", since_ms=1_700_000_000_000)
    held = acquire_lock(process.data / ".lock", before)
    async with process:
        await until(process.is_alive, "the broker is alive")
        await until(lambda: process.said("waiting for the log directory"), "it says what it waits for")
        assert process.said("a process of host regnum-broker-7, since 2023-11-14T22:13:20+00:00")
        assert await process.is_alive()
        assert not await process.is_ready()
        os.close(held)
        await until(lambda: process.said("log directory is free"), "it goes on")
        assert await process.is_alive()
        assert not await process.is_ready()
        await until(lambda: process.said("store"), "it looks for the store")
        assert await process.is_alive()
        lines = [json.loads(line) for line in process.log.read_text().splitlines()]
    assert {line["service"] for line in lines} == {"broker-7"}


@pytest.mark.full
@pytest.mark.parametrize("service", ["quota", "election", "metadata"])
async def test_a_process_without_a_store_is_alive_and_not_ready_and_named_in_every_line(
    tmp_path: Path, service: str
) -> None:
    process = Process(tmp_path, service)
    async with process:
        await until(process.is_alive, "the process is alive")
        assert not await process.is_ready()
        await until(lambda: process.said("store"), "it looks for the store")
        assert await process.is_alive()
        assert not await process.is_ready()
        assert await process.stopped() == 0
        lines = [json.loads(line) for line in process.log.read_text().splitlines()]
    assert len(lines) > 1
    assert {line["service"] for line in lines} == {f"{service}-7"}
