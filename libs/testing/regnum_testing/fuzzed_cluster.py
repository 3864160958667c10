"""One process of each kind that anything is sent to: what is true of them, whether they live, what is in the store."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import grpc
import pytest
from google.protobuf.message import Message
from regnum.broker.v1 import group_pb2, group_pb2_grpc
from regnum_client import CLUSTER_CONFIG, Admin, ConfigAlteration, Producer
from regnum_model import paths
from regnum_model.nodes import Address, TopicNode

from regnum_testing.every_call import Answer, Call, Known, calls_of, opened, send_all
from regnum_testing.every_kind import EveryKind
from regnum_testing.waiting import DEADLINE_S, eventually

TIMEOUT_S: Final = 0.2
"""A call that waits for something is cut off."""

QUIET_LOOKS: Final = 50
"""Looks, some 10 ms apart, of which all see the same: then nothing is under way."""

TOPIC: Final = "t"
"""A topic that there is, with one partition and a record."""


@dataclass(slots=True)
class World:
    """The cluster, and a loop that turns while a test waits for it."""

    runner: asyncio.Runner
    cluster: EveryKind

    @property
    def bootstrap(self) -> list[str]:
        """The broker."""
        return [str(self.cluster.processes["broker"].listeners["client_listen"])]

    def known(self) -> Known:
        """What is true of the cluster now."""
        nodes = self.cluster.nodes()
        topic_id = TopicNode.decode(nodes[paths.topic(TOPIC)]).topic_id
        return {
            "topic": [TOPIC],
            "name": [TOPIC],
            "topics": [TOPIC],
            "topic_id": [topic_id],
            "group_id": ["g"],
            "group_ids": ["g", "h"],
            "protocol_type": ["consumer"],
            "partition": [0],
            "partitions": [1, 2],
            "broker_id": [1],
            "replica_id": [1],
            "leader": [1],
            "controller_id": [1],
            "controller_epoch": [int(nodes[paths.CONTROLLER_EPOCH])],
            "part": [0],
            "parts": [1],
            # Versions that a broker passes on.
            "api_version": [1, 2, 5],
            "version_zero": [True],
        }

    def alive(self) -> None:
        """Raise AssertionError when a process has ended."""
        for kind, process in self.cluster.processes.items():
            assert process.supervisor.failure is None, f"{kind} ended: {process.supervisor.failure!r}"

    async def begin(self) -> None:
        """Start everything; there is a topic, and the broker coordinates groups."""
        await self.cluster.start()
        await self.create_and_write(TOPIC)
        await self.coordinate()

    async def create_and_write(self, topic: str) -> None:
        """What the cluster is for."""
        async with asyncio.timeout(DEADLINE_S), Admin(self.bootstrap) as admin:
            await admin.create_topic(topic, partitions=1, replication_factor=1)
            async with Producer(self.bootstrap) as producer:
                await asyncio.wait_for(await producer.send(topic, b"still here"), DEADLINE_S)

    async def coordinate(self) -> None:
        """Let the broker coordinate groups: before, it says of every group that it is not available."""
        async with asyncio.timeout(DEADLINE_S), Admin(self.bootstrap) as admin:
            # Three replicas, as the cluster would have them, do not fit one broker.
            await admin.alter_config(ConfigAlteration(resource=CLUSTER_CONFIG, set={"default.replication.factor": "1"}))
        listener = self.cluster.processes["broker"].listeners["client_listen"]
        names = [f"group-{number}" for number in range(100)]
        async with opened(listener) as channel:
            groups: group_pb2_grpc.GroupServiceAsyncStub = group_pb2_grpc.GroupServiceStub(channel)

            async def answers() -> bool:
                try:
                    await groups.FindCoordinator(group_pb2.FindCoordinatorRequest(group_ids=names), timeout=DEADLINE_S)
                    for name in names:
                        await groups.OffsetFetch(group_pb2.OffsetFetchRequest(group_id=name), timeout=DEADLINE_S)
                except grpc.RpcError:
                    return False
                return True

            await eventually(answers, what="the broker coordinates groups")

    async def make_good(self) -> None:
        """What a right request may have done: deleted the topic, or had nothing more placed on the one broker."""
        async with asyncio.timeout(DEADLINE_S), Admin(self.bootstrap) as admin:
            await admin.drain_broker(1, undo=True)
        if paths.topic(TOPIC) not in self.cluster.nodes():
            await self.create_and_write(TOPIC)

    def calls(self, address: Address) -> list[Call]:
        """Every call of a listener."""

        async def served() -> list[Call]:
            async with opened(address) as channel:
                return await calls_of(channel)

        return self.runner.run(served())

    def send(self, address: Address, call: Call, requests: Sequence[Message | bytes], *, half_close: bool) -> None:
        """Send a batch and look at what it did: AssertionError when a process ended, or a refusal left something."""

        async def all_of_them() -> list[Answer]:
            async with opened(address) as channel:
                return await send_all(channel, call, requests, half_close=half_close, timeout_s=TIMEOUT_S)

        for _ in range(2):
            before = self.cluster.nodes()
            answers = self.runner.run(all_of_them())
            self.alive()
            unexpected = [answer for answer in answers if answer.unexpected]
            assert not unexpected, f"{call.path}: {unexpected[:3]}"
            if not all(answer.refused for answer in answers) or self.cluster.nodes() == before:
                return
            # A call before this one may have effects that come later, such as a controller that was asked to resign.
            # What this one does it does again.
            self.runner.run(self.quiet())
        pytest.fail(f"refused, and something is left behind: {call.path}")

    async def quiet(self) -> None:
        """Somebody reigns, and nothing has changed for a while."""
        seen: list[object] = []

        async def unchanged() -> bool:
            nodes = self.cluster.nodes()
            if seen and seen[-1] != nodes:
                seen.clear()
            seen.append(nodes)
            return len(seen) >= QUIET_LOOKS and paths.CONTROLLER in nodes

        await eventually(unchanged, what="the cluster is quiet")
