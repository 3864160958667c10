"""Three real etcd members, each killed in turn, first the leader: a session over all of them survives."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Final

import grpc
import pytest_asyncio
from regnum_coordination import open_store
from regnum_coordination.drivers.etcd.rpc import HAS_LEADER
from regnum_coordination.errors import ConnectionLoss
from regnum_coordination.port import SessionState, Set
from regnum_coordination.recipes.resolve import Resolver
from regnum_service.clock import SystemClock
from regnum_testing.ports import unused_port
from regnum_testing.waiting import eventually, within

_BINARY: Final = Path(sys.executable).with_name("etcd")


class _Members:
    """Three servers that form one store."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes] | None] = [None, None, None]
        self._peers = [f"http://127.0.0.1:{unused_port()}" for _ in self._processes]
        self.ports: Final = [unused_port() for _ in self._processes]
        """Ports for clients."""

    def start(self, member: int) -> None:
        """Start one; it keeps its data."""
        client, peer = f"http://127.0.0.1:{self.ports[member]}", self._peers[member]
        with (self._directory / f"etcd{member}.log").open("ab") as log:
            self._processes[member] = subprocess.Popen(
                [
                    _BINARY,
                    *("--name", f"m{member}", "--data-dir", str(self._directory / f"data{member}")),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", ",".join(f"m{n}={peer}" for n, peer in enumerate(self._peers))),
                    *("--log-level", "warn"),
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def kill(self, member: int) -> None:
        """Kill -9."""
        process = self._processes[member]
        if process is not None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(timeout=10)
        self._processes[member] = None

    async def leader(self) -> int:
        """Which member leads; returns when all three agree."""
        found: set[int] = set()

        async def agreed() -> bool:
            found.clear()
            try:
                found.update([await self._leader_by(member) for member in range(3)])
            except grpc.aio.AioRpcError:
                return False
            return len(found) == 1 and found != {-1}

        await eventually(agreed, within_s=30.0, what="a leader of all three members")
        return found.pop()

    async def _leader_by(self, asked: int) -> int:
        """Which member leads according to one of them; -1 for none."""
        from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc  # noqa: PLC0415 - loadable once the driver is

        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.ports[asked]}") as channel:
            maintenance, cluster = rpc_pb2_grpc.MaintenanceStub(channel), rpc_pb2_grpc.ClusterStub(channel)
            status = await maintenance.Status(rpc_pb2.StatusRequest(), timeout=2, metadata=HAS_LEADER)
            listed = await cluster.MemberList(rpc_pb2.MemberListRequest(), timeout=2, metadata=HAS_LEADER)
        names = [member.name for member in listed.members if status.leader == member.ID]
        return int(names[0][1:]) if names and names[0] else -1


@pytest_asyncio.fixture
async def members(tmp_path: Path) -> AsyncIterator[_Members]:
    made = _Members(tmp_path)
    try:
        for member in range(3):
            made.start(member)
        yield made
    finally:
        for member in range(3):
            made.kill(member)


async def test_a_session_survives_the_death_of_each_member_in_turn(members: _Members) -> None:
    """The keep-alives stay with one member until it dies, so one of the kills is that one's."""
    listed = ",".join(f"127.0.0.1:{port}" for port in members.ports)
    first = await members.leader()
    # A write that was on its way to the dead leader is never answered: it is the time-out that sends it again.
    store = await open_store(f"etcd://{listed}/members", operation_timeout_s=1.5)
    resolver = Resolver(store, SystemClock())
    await store.create("/e", b"0", ephemeral=True)
    async with aclosing(store.watch_node("/e")) as states:
        await within(anext(states))
        for written, member in enumerate((first, (first + 1) % 3, (first + 2) % 3)):
            members.kill(member)
            data = str(written + 1).encode()
            await within(resolver.multi([Set("/e", data, written)]), 10.0)
            seen = await within(anext(states))
            assert seen is not None
            assert seen.data == data

            async def reads() -> bool:
                try:
                    return (await store.get("/e")).data == data  # noqa: B023 - awaited in the same round
                except ConnectionLoss:
                    return False

            await eventually(reads)
            members.start(member)
            await members.leader()

        async def connected() -> bool:
            return store.session_state is SessionState.CONNECTED

        await eventually(connected)
    assert (await store.get("/e")).stat.ephemeral_owner == store.session_id
    await store.close()
