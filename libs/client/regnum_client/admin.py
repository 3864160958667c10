"""Changes topics, quotas and settings at the controller and describes the cluster.

A mutation carries an id that the controller stores with what it changed, so it may be sent again until its outcome is
known, to whoever is the
controller by then (safety rule S20). Topics are deleted by topic id where it is known: a repeat cannot hit another
topic of that name.
"""

import random
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.ids import encode_id
from regnum_model.nodes import Address
from regnum_model.quotas import QuotaEntity
from regnum_service.channel import Channels
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import RegnumError

from regnum_client.bootstrap import bootstrap_addresses
from regnum_client.client_quotas import (
    ClientQuota,
    QuotaAlteration,
    alteration_to_wire,
    entity_to_wire,
    quota_from_wire,
)
from regnum_client.cluster_view import ClusterView, TopicView
from regnum_client.configs import (
    ConfigAlteration,
    ConfigEntry,
    ConfigResource,
    altered_from_wire,
    config_alteration_to_wire,
    described_from_wire,
    resource_to_wire,
)
from regnum_client.connections import Connections, call
from regnum_client.controller_search import ControllerSearch
from regnum_client.errors import ClientClosedError
from regnum_client.forgetting import ForgottenBroker
from regnum_client.metadata import Metadata
from regnum_client.recovery import PartitionRecovery, in_pages
from regnum_client.topic_mutation import CALL_S_MAX, Answered, TopicMutation, Waiting
from regnum_client.topics import (
    CreatedTopic,
    DeletedTopic,
    NewTopic,
    created_from_wire,
    deleted_from_wire,
    new_topic_to_wire,
)

A = TypeVar("A")

TOPIC_WAIT_S: Final = 0.5
"""How long a topic that no broker knows is waited for when it is described: news of it may be on its way."""


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
        await metadata.start(timeout_s=self._timeout_s)
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
        known = await metadata.topics([name], timeout_s=self._timeout_s)
        return known.get(name) or await metadata.topic(name, timeout_s=TOPIC_WAIT_S)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
    ) -> CreatedTopic:
        """Create one topic. Raises TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_REPLICATION_FACTOR, ..."""
        topic = NewTopic(name=name, partitions=partitions, replication_factor=replication_factor, assignment=assignment)
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
            on_wait: is told of every wait for a quota.
        """
        mutations = {topic.name: encode_id(uuid.uuid4()) for topic in topics}
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

        mutation = TopicMutation(
            self._search(timeout_s),
            ask,
            clock=self._clock,
            verb="created",
            retry_on_quota_violation=retry_on_quota_violation,
            on_wait=on_wait,
        )
        return await mutation.carry_out(list(wanted))

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
        mutations = {name: encode_id(uuid.uuid4()) for name in names}

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

        mutation = TopicMutation(
            self._search(timeout_s),
            ask,
            clock=self._clock,
            verb="deleted",
            retry_on_quota_violation=retry_on_quota_violation,
            on_wait=on_wait,
        )
        return await mutation.carry_out(list(ids))

    async def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> dict[QuotaEntity, RegnumError | None]:
        """Set and remove quotas, each entity on its own; None says that it was done.

        It has no mutation id: a call whose outcome is unknown is not sent again (safety rule S20) and raises.
        """
        request = admin_pb2.AlterClientQuotasRequest(
            header=RequestHeader(client_id=self._client_id),
            alterations=[alteration_to_wire(alteration) for alteration in alterations],
            validate_only=validate_only,
        )
        search = self._search()
        while True:
            address = await search.address()
            try:
                answer = await call(
                    self._connections.admin(address).AlterClientQuotas, request, timeout_s=_call_s(search)
                )
                break
            except RegnumError as error:
                if not error.traits.outcome_known:
                    raise RegnumError(
                        error.code,
                        f"{error.message}. The quotas may have been changed all the same: see `regnum quotas describe`",
                        metadata=error.metadata,
                    ) from error
                await search.failed(address, error)
        return {
            alteration.entity: None
            if result.error_code == errors_pb2.ERROR_CODE_NONE
            else RegnumError(result.error_code, result.error_message, metadata={"entity": str(alteration.entity)})
            for alteration, result in zip(alterations, answer.results, strict=True)
        }

    async def alter_client_quota(
        self, entity: QuotaEntity, *, set: Mapping[str, float] | None = None, remove: Collection[str] = ()
    ) -> None:
        """Set and remove quotas of one entity. Raises INVALID_REQUEST for a key or a limit that is none."""
        answers = await self.alter_client_quotas([QuotaAlteration(entity=entity, set=set or {}, remove=remove)])
        for error in answers.values():
            if error is not None:
                raise error

    async def describe_client_quotas(self, entity: QuotaEntity | None = None) -> tuple[ClientQuota, ...]:
        """The quotas that are set: of exactly this entity, or all."""
        request = admin_pb2.DescribeClientQuotasRequest(
            header=RequestHeader(client_id=self._client_id), entity=None if entity is None else entity_to_wire(entity)
        )
        search = self._search()
        while True:
            address = await search.address()
            try:
                answer = await call(
                    self._connections.admin(address).DescribeClientQuotas, request, timeout_s=_call_s(search)
                )
            except RegnumError as error:
                await search.failed(address, error)
                continue
            return tuple(sorted((quota_from_wire(one) for one in answer.quotas), key=lambda one: str(one.entity)))

    async def recover_partitions(
        self, topic: str, partitions: Sequence[int] = (), *, accept_loss: bool = False
    ) -> tuple[PartitionRecovery, ...]:
        """What is left of partitions that nobody may lead; with ``accept_loss`` the best replica of each is elected.

        A partition that has a leader, or gets one without loss, is ELECTION_NOT_NEEDED. What is lost stays lost: look
        without ``accept_loss`` first. A call whose outcome is unknown is not sent again and raises; look again then.

        Args:
            topic: name.
            partitions: their numbers; empty: all without a leader.
            accept_loss: whether anything is changed.
        """

        async def ask(request: admin_pb2.RecoverPartitionsRequest) -> admin_pb2.RecoverPartitionsResponse:
            request.header.client_id = self._client_id
            search = self._search()
            while True:
                address = await search.address()
                timeout_s = _call_s(search)
                request.timeout_ms = max(1, int(timeout_s * 1000))
                try:
                    return await call(self._connections.admin(address).RecoverPartitions, request, timeout_s=timeout_s)
                except RegnumError as error:
                    unknown = accept_loss and not error.traits.outcome_known
                    # What the controller itself does not know does not exist: waiting cannot help.
                    if unknown or error.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION:
                        raise
                    await search.failed(address, error)

        pages = in_pages(ask, topic=topic, partitions=partitions, accept_loss=accept_loss)
        return tuple([one async for one in pages])

    async def forget_broker(self, broker: int, *, validate_only: bool = False) -> ForgottenBroker:
        """Let no deletion wait any more for a broker that never comes back with its disks; it may be called again.

        Raises INVALID_REQUEST while the broker is registered, and when nothing is known of it.

        Args:
            broker: its id.
            validate_only: only count.
        """
        search = self._search()
        while True:
            address = await search.address()
            left_s = _call_s(search)
            request = admin_pb2.ForgetBrokerRequest(
                header=RequestHeader(client_id=self._client_id),
                broker_id=broker,
                validate_only=validate_only,
                timeout_ms=max(1, int(left_s * 1000)),
            )
            try:
                answer = await call(self._connections.admin(address).ForgetBroker, request, timeout_s=left_s + 1)
            except RegnumError as error:
                await search.failed(address, error)
                continue
            return ForgottenBroker(
                deletions=answer.deletions,
                deletions_ended=answer.deletions_ended,
                assigned_partitions=answer.assigned_partitions,
            )

    async def alter_configs(
        self, alterations: Sequence[ConfigAlteration], *, validate_only: bool = False
    ) -> dict[ConfigResource, RegnumError | None]:
        """Change settings, each resource on its own; None says that it was done and that live leaders were told.

        It has no mutation id: a call whose outcome is unknown is not sent again (safety rule S20) and raises.
        """
        search = self._search()
        while True:
            address = await search.address()
            left_s = _call_s(search)
            request = admin_pb2.IncrementalAlterConfigsRequest(
                header=RequestHeader(client_id=self._client_id),
                alterations=[config_alteration_to_wire(alteration) for alteration in alterations],
                validate_only=validate_only,
                timeout_ms=max(1, int(left_s * 1000)),
            )
            try:
                answer = await call(
                    self._connections.admin(address).IncrementalAlterConfigs, request, timeout_s=left_s + 1
                )
                break
            except RegnumError as error:
                if not error.traits.outcome_known:
                    raise RegnumError(
                        error.code,
                        f"{error.message}. Settings may have been changed all the same: see `regnum configs describe`",
                        metadata=error.metadata,
                    ) from error
                await search.failed(address, error)
        return {
            alteration.resource: altered_from_wire(result, alteration.resource)
            for alteration, result in zip(alterations, answer.results, strict=True)
        }

    async def alter_config(self, alteration: ConfigAlteration, *, validate_only: bool = False) -> None:
        """Change settings of one resource. Raises INVALID_CONFIG, UNKNOWN_TOPIC_OR_PARTITION, ..."""
        for error in (await self.alter_configs([alteration], validate_only=validate_only)).values():
            if error is not None:
                raise error

    async def describe_configs(
        self, resources: Sequence[ConfigResource] = ()
    ) -> dict[ConfigResource, tuple[ConfigEntry, ...] | RegnumError]:
        """Settings in force: of these, or of the cluster and every topic with settings of its own."""
        request = admin_pb2.DescribeConfigsRequest(
            header=RequestHeader(client_id=self._client_id),
            resources=[resource_to_wire(resource) for resource in resources],
        )
        search = self._search()
        while True:
            address = await search.address()
            try:
                answer = await call(
                    self._connections.admin(address).DescribeConfigs, request, timeout_s=_call_s(search)
                )
            except RegnumError as error:
                await search.failed(address, error)
                continue
            return dict(described_from_wire(result) for result in answer.results)

    async def describe_config(self, resource: ConfigResource) -> tuple[ConfigEntry, ...]:
        """Settings of one resource. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        answer = (await self.describe_configs([resource]))[resource]
        if isinstance(answer, RegnumError):
            raise answer
        return answer

    def _open(self) -> Metadata:
        if self._metadata is None:
            raise ClientClosedError("admin client")
        return self._metadata

    def _search(self, timeout_s: float | None = None) -> ControllerSearch:
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        return ControllerSearch(self._open(), clock=self._clock, chance=self._chance, timeout_s=wait_s)


def _call_s(search: ControllerSearch) -> float:
    return max(0.001, min(search.left_s, CALL_S_MAX))


def _or_raise(answers: Mapping[str, A | RegnumError], name: str) -> A:
    answer = answers[name]
    if isinstance(answer, RegnumError):
        raise answer
    return answer
