"""Changes topics at the controller and describes the cluster.

A mutation carries an id that the controller stores with what it changed, so it may be sent again until its outcome is
known, to whoever is the
controller by then (safety rule S20). Topics are deleted by topic id where it is known: a repeat cannot hit another
topic of that name.
"""

import random
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeVar

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.ids import encode_id
from regnum_model.nodes import Address
from regnum_service.channel import Channels
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import RegnumError

from regnum_client.bootstrap import bootstrap_addresses
from regnum_client.cluster_view import ClusterView, TopicView
from regnum_client.connections import Connections, call
from regnum_client.controller_search import ControllerSearch
from regnum_client.errors import ClientClosedError
from regnum_client.metadata import Metadata

A = TypeVar("A")

TOPIC_WAIT_S: Final = 0.5
"""How long a topic that no broker knows is waited for when it is described: news of it may be on its way."""
CALL_S_MAX: Final = 15.0
"""Deadline of one call; a longer wait is made of several, so that a frozen controller costs no more than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create."""

    name: str
    """Name: 1 to 249 of [a-zA-Z0-9._-]."""
    partitions: int = 1
    """Number of partitions; 0 together with an assignment."""
    replication_factor: int = 0
    """Replicas of each partition. 0: the cluster's default."""
    assignment: Mapping[int, Sequence[int]] | None = None
    """Broker ids of each partition, the preferred leader first. None: the controller places the replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic that was created (or would be, when validating only)."""

    name: str
    """Name."""
    topic_id: str
    """Topic id; empty when validating only."""
    partitions: int
    """Number of partitions."""
    replication_factor: int
    """Replicas of each partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopic:
    """A topic that was deleted."""

    name: str
    """Name, free again."""
    topic_id: str
    """Topic id that it had; empty when it was not known."""


class Admin:
    """Topics and the cluster. The plural methods answer for each topic, the singular ones raise."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        timeout_s: float = 30.0,
        client_id: str = "regnum-admin",
        clock: Clock | None = None,
        chance: random.Random | None = None,
        channels: Channels | None = None,
    ) -> None:
        self._bootstrap: Final = bootstrap
        self._timeout_s: Final = timeout_s
        self._client_id: Final = client_id
        self._clock: Final[Clock] = clock or SystemClock()
        self._chance: Final = chance or random.Random()
        self._connections: Final = Connections(channels or Channels())
        self._metadata: Metadata | None = None

    async def start(self) -> None:
        """Find the cluster. Raises RegnumError when no broker answers in time."""
        metadata = Metadata(
            bootstrap_addresses(self._bootstrap),
            self._connections,
            clock=self._clock,
            chance=self._chance,
            client_id=self._client_id,
        )
        try:
            await metadata.start(timeout_s=self._timeout_s)
        except BaseException:
            await metadata.close()
            await self._connections.close()
            raise
        self._metadata = metadata

    async def close(self) -> None:
        """Close the connections."""
        metadata, self._metadata = self._metadata, None
        if metadata is not None:
            await metadata.close()
            await self._connections.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def describe_cluster(self) -> ClusterView:
        """Brokers and controller, as a broker knows them now."""
        return await self._open().newer_than(self._clock.monotonic(), timeout_s=self._timeout_s)

    async def list_topics(self) -> tuple[TopicView, ...]:
        """All topics, by name."""
        view = await self._open().all_topics(timeout_s=self._timeout_s)
        return tuple(view.topics[name] for name in sorted(view.topics))

    async def describe_topic(self, name: str) -> TopicView:
        """One topic. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        metadata = self._open()
        await metadata.topic(name, timeout_s=TOPIC_WAIT_S)
        view = await metadata.newer_than(self._clock.monotonic(), timeout_s=self._timeout_s)
        return view.topics.get(name) or await metadata.topic(name, timeout_s=TOPIC_WAIT_S)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 0,
        assignment: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create one topic. Raises TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_REPLICATION_FACTOR, ..."""
        topic = NewTopic(name=name, partitions=partitions, replication_factor=replication_factor, assignment=assignment)
        return _or_raise(await self.create_topics([topic], validate_only=validate_only), name)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | RegnumError]:
        """Create topics, each on its own; the answer has one entry for each name."""
        mutations = {topic.name: encode_id(uuid.uuid4()) for topic in topics}

        def request(names: Sequence[str], timeout_ms: int) -> admin_pb2.CreateTopicsRequest:
            wanted = [topic for topic in topics if topic.name in names]
            return admin_pb2.CreateTopicsRequest(
                header=RequestHeader(client_id=self._client_id),
                topics=[_new_topic(topic, mutations[topic.name]) for topic in wanted],
                timeout_ms=timeout_ms,
                validate_only=validate_only,
            )

        async def ask(address: Address, names: Sequence[str], timeout_ms: int) -> dict[str, CreatedTopic | RegnumError]:
            answer = await call(
                self._connections.admin(address).CreateTopics,
                request(names, timeout_ms),
                timeout_s=timeout_ms / 1000 + 1,
            )
            return {
                result.name: CreatedTopic(
                    name=result.name,
                    topic_id=result.topic_id,
                    partitions=result.partitions,
                    replication_factor=result.replication_factor,
                )
                if result.error_code == errors_pb2.ERROR_CODE_NONE
                else RegnumError(result.error_code, result.error_message, metadata={"topic": result.name})
                for result in answer.results
            }

        return await self._mutate([topic.name for topic in topics], ask)

    async def delete_topic(self, name: str) -> DeletedTopic:
        """Delete one topic. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        return _or_raise(await self.delete_topics([name]), name)

    async def delete_topics(self, names: Sequence[str]) -> dict[str, DeletedTopic | RegnumError]:
        """Delete topics, each on its own; the answer has one entry for each name."""
        metadata = self._open()
        view = await metadata.all_topics(timeout_s=self._timeout_s)
        # A topic that this broker does not know yet is named only; the controller knows for certain.
        ids = {name: view.topics[name].topic_id if name in view.topics else "" for name in names}
        mutations = {name: encode_id(uuid.uuid4()) for name in names}

        async def ask(
            address: Address, wanted: Sequence[str], timeout_ms: int
        ) -> dict[str, DeletedTopic | RegnumError]:
            request = admin_pb2.DeleteTopicsRequest(
                header=RequestHeader(client_id=self._client_id),
                topics=[
                    admin_pb2.DeletableTopic(name=name, topic_id=ids[name], mutation_id=mutations[name])
                    for name in wanted
                ],
                timeout_ms=timeout_ms,
            )
            answer = await call(self._connections.admin(address).DeleteTopics, request, timeout_s=timeout_ms / 1000 + 1)
            return {
                name: DeletedTopic(name=name, topic_id=result.topic_id or ids[name])
                if result.error_code == errors_pb2.ERROR_CODE_NONE
                else RegnumError(result.error_code, result.error_message, metadata={"topic": name})
                for name, result in zip(wanted, answer.results, strict=True)
            }

        return await self._mutate(list(dict.fromkeys(names)), ask)

    def _open(self) -> Metadata:
        if self._metadata is None:
            raise ClientClosedError("admin client")
        return self._metadata

    async def _mutate(
        self,
        names: Sequence[str],
        ask: Callable[[Address, Sequence[str], int], Awaitable[dict[str, A | RegnumError]]],
    ) -> dict[str, A | RegnumError]:
        """Ask the controller, whoever that is, until each topic has a definite answer or the time is up."""
        search = ControllerSearch(self._open(), clock=self._clock, chance=self._chance, timeout_s=self._timeout_s)
        answers: dict[str, A | RegnumError] = {}
        missing = list(names)
        while missing:
            address = await search.address()
            left_s = search.left_s
            try:
                answered = await ask(address, missing, max(1, int(min(left_s, CALL_S_MAX) * 1000)))
            except RegnumError as error:
                await search.failed(address, error)
                continue
            answers.update(answered)
            passing = [name for name in missing if _passes(answered.get(name))]
            if passing and search.left_s <= 0:
                break
            missing = passing
            if missing:
                await search.pause()
        return answers


def _passes(answer: object) -> bool:
    # What the controller itself does not know does not exist: waiting cannot help.
    definite = {errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID}
    return isinstance(answer, RegnumError) and answer.traits.retriable and answer.code not in definite


def _or_raise(answers: Mapping[str, A | RegnumError], name: str) -> A:
    answer = answers[name]
    if isinstance(answer, RegnumError):
        raise answer
    return answer


def _new_topic(topic: NewTopic, mutation_id: str) -> admin_pb2.NewTopic:
    return admin_pb2.NewTopic(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignment=[
            admin_pb2.ReplicaAssignment(partition=partition, replicas=replicas)
            for partition, replicas in sorted((topic.assignment or {}).items())
        ],
        mutation_id=mutation_id,
    )
