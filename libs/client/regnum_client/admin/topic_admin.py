"""Creation and deletion of topics, and of their partitions.

A mutation carries an id that the controller stores with what it changed, so it may be sent again until its outcome is
known, to whoever is the controller by then (safety rule S20). Topics are deleted by topic id where it is known: a
repeat cannot hit another topic of that name. Partitions are removed by number.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from regnum.admin.v1 import admin_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_service.errors import RegnumError

from regnum_client.admin.carrying.topic_mutation import Answered, Ask, TopicMutation, Waiting
from regnum_client.admin.session import AdminSession
from regnum_client.admin.topics import (
    CreatedTopic,
    DeletedTopic,
    NewPartitions,
    NewTopic,
    TopicPartitions,
    created_from_wire,
    deleted_from_wire,
    new_partitions_to_wire,
    new_topic_to_wire,
    partitions_from_wire,
)
from regnum_client.cluster.connections import call

A = TypeVar("A")


class MutationSession(AdminSession):
    """What is charged to the mutation quota, and sent again until its outcome is known."""

    async def _carry_out(
        self,
        ask: Ask[A],
        names: list[str],
        verb: str,
        retry_on_quota_violation: bool,  # noqa: FBT001 - it has this name where callers meet it
        timeout_s: float | None,
        on_wait: Callable[[Waiting], None] | None,
    ) -> dict[str, A | RegnumError]:
        mutation = TopicMutation(
            self._search(timeout_s),
            ask,
            clock=self._clock,
            verb=verb,
            retry_on_quota_violation=retry_on_quota_violation,
            on_wait=on_wait,
        )
        return await mutation.carry_out(names)


class TopicAdmin(MutationSession):
    """Topics. The plural methods answer for each topic, the singular ones raise."""

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
    ) -> CreatedTopic:
        """Create one topic. Raises TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_REPLICATION_FACTOR, ..."""
        topic = NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=replication_factor,
            assignment=assignment,
            configs=configs or {},
        )
        answers = await self.create_topics(
            [topic], validate_only=validate_only, retry_on_quota_violation=retry_on_quota_violation
        )
        return _or_raise(answers, name)

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout_s: float | None = None,
        on_wait: Callable[[Waiting], None] | None = None,
    ) -> dict[str, CreatedTopic | RegnumError]:
        """Create topics, each on its own; the answer has one entry for each name.

        Args:
            topics: what to create.
            validate_only: check only; create nothing.
            retry_on_quota_violation: send what a quota refuses again when its wait is over. What cannot be sent
                before the time is up ends as ThrottlingQuotaExceededError.
            timeout_s: time for all of it; None: that of the client.
            on_wait: called for every wait for a quota.
        """
        mutations = {topic.name: self._mutation_id() for topic in topics}
        wanted = {topic.name: topic for topic in topics}

        async def ask(address: Address, names: Sequence[str], timeout_ms: int) -> Answered[CreatedTopic]:
            request = admin_pb2.CreateTopicsRequest(
                header=RequestHeader(client_id=self._client_id),
                topics=[new_topic_to_wire(wanted[name], mutations[name]) for name in names],
                timeout_ms=timeout_ms,
                validate_only=validate_only,
            )
            answer = await call(self._connections.admin(address).CreateTopics, request, timeout_s=timeout_ms / 1000 + 1)
            outcomes = {result.name: created_from_wire(result) for result in answer.results}
            return Answered(topics=outcomes, throttle_ms=answer.throttle_time_ms)

        return await self._carry_out(ask, list(wanted), "created", retry_on_quota_violation, timeout_s, on_wait)

    async def delete_topic(self, name: str, *, retry_on_quota_violation: bool = True) -> DeletedTopic:
        """Delete one topic. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        return _or_raise(await self.delete_topics([name], retry_on_quota_violation=retry_on_quota_violation), name)

    async def delete_topics(
        self,
        names: Sequence[str],
        *,
        retry_on_quota_violation: bool = True,
        timeout_s: float | None = None,
        on_wait: Callable[[Waiting], None] | None = None,
    ) -> dict[str, DeletedTopic | RegnumError]:
        """Delete topics, each on its own; the answer has one entry for each name. For the rest see create_topics."""
        known = await self._open().topics(names, timeout_s=self._timeout_s)
        # A topic that this broker does not know yet is named only; the controller knows for certain.
        ids = {name: known[name].topic_id if name in known else "" for name in names}
        mutations = {name: self._mutation_id() for name in names}

        async def ask(address: Address, wanted: Sequence[str], timeout_ms: int) -> Answered[DeletedTopic]:
            request = admin_pb2.DeleteTopicsRequest(
                header=RequestHeader(client_id=self._client_id),
                topics=[
                    admin_pb2.DeletableTopic(name=name, topic_id=ids[name], mutation_id=mutations[name])
                    for name in wanted
                ],
                timeout_ms=timeout_ms,
            )
            answer = await call(self._connections.admin(address).DeleteTopics, request, timeout_s=timeout_ms / 1000 + 1)
            outcomes = {
                name: deleted_from_wire(result, name=name, topic_id=ids[name])
                for name, result in zip(wanted, answer.results, strict=True)
            }
            return Answered(topics=outcomes, throttle_ms=answer.throttle_time_ms)

        return await self._carry_out(ask, list(ids), "deleted", retry_on_quota_violation, timeout_s, on_wait)


Answers = dict[str, TopicPartitions | RegnumError]
"""By topic name."""


class PartitionAdmin(MutationSession):
    """Numbers of partitions. One topic raises, many topics answer for each."""

    async def create_partitions(
        self,
        topic: str,
        total: int = 0,
        *,
        assignment: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
    ) -> TopicPartitions:
        """Add partitions to one topic, so that it has ``total``; done when each has a leader.

        Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, ...
        """
        answers = await self.create_partitions_of_topics(
            [NewPartitions(topic=topic, total=total, assignment=assignment)],
            validate_only=validate_only,
            retry_on_quota_violation=retry_on_quota_violation,
        )
        return _or_raise(answers, topic)

    async def create_partitions_of_topics(
        self,
        topics: Sequence[NewPartitions],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout_s: float | None = None,
        on_wait: Callable[[Waiting], None] | None = None,
    ) -> Answers:
        """Add partitions to topics, each on its own; the answer has one entry for each name.

        Args:
            topics: what to add, each topic once.
            validate_only: check only; add nothing.
            retry_on_quota_violation: as for ``create_topics``.
            timeout_s: time for all of it; None: that of the client.
            on_wait: called for every wait for a quota.
        """
        mutations = {one.topic: self._mutation_id() for one in topics}
        wanted = {one.topic: one for one in topics}

        async def ask(address: Address, names: Sequence[str], timeout_ms: int) -> Answered[TopicPartitions]:
            request = admin_pb2.CreatePartitionsRequest(
                header=RequestHeader(client_id=self._client_id),
                topics=[new_partitions_to_wire(wanted[name], mutations[name]) for name in names],
                timeout_ms=timeout_ms,
                validate_only=validate_only,
            )
            stub = self._connections.admin(address)
            answer = await call(stub.CreatePartitions, request, timeout_s=timeout_ms / 1000 + 1)
            outcomes = {result.name: partitions_from_wire(result) for result in answer.results}
            return Answered(topics=outcomes, throttle_ms=answer.throttle_time_ms)

        return await self._carry_out(ask, list(wanted), "extended", retry_on_quota_violation, timeout_s, on_wait)

    async def delete_partitions(
        self,
        topic: str,
        partitions: Collection[int],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
    ) -> TopicPartitions:
        """Remove the highest partitions of one topic, with all their records.

        Raises UNKNOWN_TOPIC_OR_PARTITION; INVALID_PARTITIONS for any but the highest, or for all.
        """
        answers = await self.delete_partitions_of_topics(
            {topic: partitions}, validate_only=validate_only, retry_on_quota_violation=retry_on_quota_violation
        )
        return _or_raise(answers, topic)

    async def delete_partitions_of_topics(
        self,
        topics: Mapping[str, Collection[int]],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout_s: float | None = None,
        on_wait: Callable[[Waiting], None] | None = None,
    ) -> Answers:
        """Remove partitions by topic, each topic on its own. For the rest see ``create_partitions_of_topics``."""
        known = await self._open().topics(list(topics), timeout_s=self._timeout_s)
        # A topic that this broker does not know yet is named only; the controller knows for certain.
        ids = {name: known[name].topic_id if name in known else "" for name in topics}
        mutations = {name: self._mutation_id() for name in topics}

        async def ask(address: Address, names: Sequence[str], timeout_ms: int) -> Answered[TopicPartitions]:
            request = admin_pb2.DeletePartitionsRequest(
                header=RequestHeader(client_id=self._client_id),
                topics=[
                    admin_pb2.DeletablePartitions(
                        name=name, topic_id=ids[name], partitions=sorted(topics[name]), mutation_id=mutations[name]
                    )
                    for name in names
                ],
                timeout_ms=timeout_ms,
                validate_only=validate_only,
            )
            stub = self._connections.admin(address)
            answer = await call(stub.DeletePartitions, request, timeout_s=timeout_ms / 1000 + 1)
            outcomes = {result.name: partitions_from_wire(result) for result in answer.results}
            return Answered(topics=outcomes, throttle_ms=answer.throttle_time_ms)

        return await self._carry_out(ask, list(topics), "reduced", retry_on_quota_violation, timeout_s, on_wait)


def _or_raise(answers: Mapping[str, A | RegnumError], name: str) -> A:
    answer = answers[name]
    if isinstance(answer, RegnumError):
        raise answer
    return answer
