"""What comes in at a broker's internal listener, and what goes out, when a failpoint lets it."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
from regnum.replication.v1 import control_pb2, replication_pb2
from regnum_model.ids import PartitionKey, TopicId
from regnum_service.failpoints.trigger import FailpointTrigger
from regnum_telemetry import conventions

from regnum_broker.replication.partition import Partition
from regnum_broker.replication.sessions.fetch_session import FetchSession
from regnum_broker.serving.metadata_cache import MetadataCache

Handler = Any
"""grpc.RpcMethodHandler, whose stubs are generic and whose class is not."""


class FailpointInterceptor(grpc.aio.ServerInterceptor):
    """Stands before all others: an order that is delayed has not been received."""

    def __init__(self, trigger: FailpointTrigger) -> None:
        """Only assigns."""
        self._trigger: Final = trigger

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler, when the order may come in."""
        if handler_call_details.method == f"/{conventions.LEADER_AND_ISR}":
            await self._trigger.reach("receive")
        return await continuation(handler_call_details)


class FailpointMetadata:
    """Takes changes of metadata up."""

    def __init__(self, cache: MetadataCache, trigger: FailpointTrigger) -> None:
        """Only assigns."""
        self._cache: Final = cache
        self._trigger: Final = trigger

    async def take(
        self, request: control_pb2.UpdateMetadataRequest, parts: list[control_pb2.UpdateMetadataRequest]
    ) -> control_pb2.UpdateMetadataResponse | None:
        """See MetadataCache."""
        await self._trigger.reach("metadata")
        return await self._cache.take(request, parts)


class FailpointSession:
    """A follower's fetch session, whose answers with records wait."""

    def __init__(
        self, session: FetchSession, trigger: FailpointTrigger, find: Callable[[PartitionKey], Partition | None]
    ) -> None:
        """Only assigns; ``find``: the replica of a key."""
        self._session: Final = session
        self._trigger: Final = trigger
        self._find: Final = find

    @property
    def answer_bytes(self) -> int:
        """See FetchSession."""
        return self._session.answer_bytes

    async def next_answer(self) -> replication_pb2.FetchReplicaResponse | None:
        """See FetchSession."""
        answer = await self._session.next_answer()
        if answer is not None and (topics := self._topics(answer)):
            await self._trigger.reach("replicate", topics)
        return answer

    def _topics(self, answer: replication_pb2.FetchReplicaResponse) -> list[str]:
        found = (
            self._find(PartitionKey(TopicId(one.topic_id), one.partition)) for one in answer.partitions if one.records
        )
        return [partition.topic for partition in found if partition is not None]

    def push(self, request: replication_pb2.FetchReplicaRequest) -> None:
        """See FetchSession."""
        self._session.push(request)

    def end(self) -> None:
        """See FetchSession."""
        self._session.end()

    def close(self) -> None:
        """See FetchSession."""
        self._session.close()
