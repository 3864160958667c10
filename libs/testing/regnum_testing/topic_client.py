"""A client of a cluster whose controller dies: its SDK, and calls that can be made twice."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from regnum.types.v1 import errors_pb2
from regnum_client import Admin, Producer, TopicPartition
from regnum_client.cluster.connections import Connections, call
from regnum_local.demo.workload import read_everything
from regnum_local.plan import Role
from regnum_model import paths
from regnum_model.nodes import TopicNode
from regnum_service.channel import Channels
from regnum_service.errors import Code, RegnumError, traits_of

from regnum_testing.failpoint_cluster import FailpointCluster, failpoint_cluster
from regnum_testing.waiting import DEADLINE_S, eventually

CALL_S: Final = 15.0
"""Time-out of one call; the next one may have another controller."""

Answer = tuple[Code, str]
"""Error code and what else the answer says for certain."""


GONE: Final = frozenset({errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID})
"""Definite where the controller says it."""


class Hands:
    """A client of a cluster: its SDK, and calls made by hand, so that the same one can be made twice."""

    def __init__(self, failpoints: FailpointCluster, admin: Admin, producer: Producer) -> None:
        """Only assigns."""
        self.failpoints: Final = failpoints
        self.admin: Final = admin
        self.producer: Final = producer
        self._connections: Final = Connections(Channels())

    async def close(self) -> None:
        """Hang up."""
        await self._connections.close()

    async def ask(self, method: str, request: Any, read: Callable[[Any], Answer]) -> Answer:
        """Make a call, again and again and to whoever is the controller, until its answer is definite."""
        answers: list[Answer] = []

        async def answered() -> bool:
            member = self.failpoints.cluster.plan.get(await self.failpoints.controller())
            assert member is not None
            stub = self._connections.admin(member.address("client"))
            try:
                answer = await call(getattr(stub, method), request, timeout_s=CALL_S)
            except RegnumError as error:
                if not error.traits.retriable:
                    raise
                return False
            found = read(answer.results[0])
            if traits_of(found[0]).retriable and found[0] not in GONE:
                return False
            answers.append(found)
            return True

        await eventually(answered, what=f"an answer to {method}")
        return answers[0]

    async def write(self, topic: str, partitions: int, *, value: bytes = b"") -> None:
        """One record in each partition: its number, and something behind it."""
        for number in range(partitions):
            await (await self.producer.send(topic, b"%d %s" % (number, value), partition=number))

    async def holds(self, topic: str, partitions: int, *, records: int = 1) -> None:
        """Assert that each partition has what ``write`` wrote, that many times, and nothing else."""
        keys = [TopicPartition(topic, number) for number in range(partitions)]
        logs = await read_everything(self.failpoints.cluster.bootstrap, keys)
        found = {key.partition: [number for _, number in log] for key, log in logs.items()}
        assert found == {number: [number] * records for number in range(partitions)}, topic

    async def node(self, topic: str) -> TopicNode:
        """The topic's node."""
        return TopicNode.decode((await self.failpoints.store.get(paths.topic(topic), current=True)).data)

    async def assigned(self, topic: str, wanted: dict[int, Sequence[int]]) -> None:
        """Assert that the topic has these partitions at these brokers."""
        found = (await self.node(topic)).partitions
        assert {number: tuple(ids) for number, ids in found.items()} == {n: tuple(ids) for n, ids in wanted.items()}

    async def create(self, topic: str, assignment: dict[int, Sequence[int]]) -> None:
        """Create a topic and write one record into each partition."""
        await self.admin.create_topic(topic, partitions=0, assignment=assignment)
        await self.write(topic, len(assignment))


@asynccontextmanager
async def hands_on(
    data_dir: Path, *, coordination: str = "etcd", extra: Mapping[Role, Sequence[str]] | None = None
) -> AsyncIterator[Hands]:
    """A cluster with failpoints (see ``failpoint_cluster``), and a client of it."""
    async with (
        failpoint_cluster(data_dir, coordination=coordination, extra=extra) as failpoints,
        Admin(failpoints.cluster.bootstrap, timeout_s=DEADLINE_S) as admin,
        Producer(failpoints.cluster.bootstrap) as producer,
    ):
        hands = Hands(failpoints, admin, producer)
        try:
            yield hands
        finally:
            await hands.close()
