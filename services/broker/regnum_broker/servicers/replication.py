"""ReplicationService: followers' fetches."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol

from regnum.replication.v1 import replication_pb2, replication_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.ids import NO_EPOCH, BrokerId, LeaderEpoch, PartitionKey, TopicId
from regnum_service.errors import Code, RegnumError
from regnum_service.limits.held_bytes import HeldBytes, Holding, Purpose
from regnum_service.slices import slices

from regnum_broker.log.epochs import UNDEFINED_OFFSET
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.replicas import Replicas

QUERIES_MAX: Final = 10_000
"""Partitions of one OffsetForLeaderEpoch."""

SLICE: Final = 500
"""Partitions answered between two turns of the event loop (safety rule S22)."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class Session(Protocol):
    """What a follower's stream is served by: ``FetchSession``."""

    @property
    def answer_bytes(self) -> int:
        """Bytes of records in the newest answer."""

    async def next_answer(self) -> replication_pb2.FetchReplicaResponse | None:
        """The next answer, as soon as there is one; None: the end."""

    def push(self, request: replication_pb2.FetchReplicaRequest) -> None:
        """A request arrived."""

    def end(self) -> None:
        """No further request will come."""

    def close(self) -> None:
        """The stream is over."""


class ReplicationServicer(replication_pb2_grpc.ReplicationServiceServicer):
    """One fetch session for each stream."""

    def __init__(self, *, make_session: Callable[[], Session], replicas: Replicas, held: HeldBytes) -> None:
        """Only assigns; ``held`` is where the bytes of answers are counted. Nobody is refused for them."""
        self._held: Final = held
        self._make_session: Final = make_session
        self._replicas: Final = replicas

    async def FetchReplica(  # noqa: N802 - gRPC's name
        self,
        request_iterator: AsyncIterator[replication_pb2.FetchReplicaRequest],
        context: Context,
    ) -> AsyncIterator[replication_pb2.FetchReplicaResponse]:
        """A fetch session."""
        session = self._make_session()
        holding = Holding(self._held, context.peer(), Purpose.REPLICATION)
        receiver = asyncio.create_task(self._receive(session, request_iterator), name="fetch session: receive")
        try:
            while (answer := await session.next_answer()) is not None:
                holding.become(session.answer_bytes)
                yield answer
                # Else a follower at rest would keep its last answer here.
                del answer
                holding.become(0)
            await receiver
        finally:
            holding.close()
            receiver.cancel()
            session.close()

    async def _receive(self, session: Session, requests: AsyncIterator[replication_pb2.FetchReplicaRequest]) -> None:
        try:
            async for request in requests:
                self._replicas.note_fetch(BrokerId(request.replica_id))
                session.push(request)
        finally:
            session.end()

    async def OffsetForLeaderEpoch(  # noqa: N802 - gRPC's name
        self,
        request: replication_pb2.OffsetForLeaderEpochRequest,
        context: Context,  # noqa: ARG002
    ) -> replication_pb2.OffsetForLeaderEpochResponse:
        """Where leader epochs end."""
        if len(request.queries) > QUERIES_MAX:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST, f"more than {QUERIES_MAX} partitions: split the request"
            )
        response = replication_pb2.OffsetForLeaderEpochResponse()
        async for queries in slices(request.queries, SLICE):
            response.ends.extend(map(self._end, queries))
        return response

    def _end(self, query: replication_pb2.EpochQuery) -> replication_pb2.EpochEnd:
        partition = self._replicas.get(PartitionKey(TopicId(query.topic_id), query.partition))
        code: Code = errors_pb2.ERROR_CODE_NONE
        if partition is None:
            code = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID
        elif query.current_leader_epoch < partition.leader_epoch:
            code = errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH
        elif query.current_leader_epoch > partition.leader_epoch:
            code = errors_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH
        elif not isinstance(partition.role, Leadership):
            code = errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
        answer = replication_pb2.EpochEnd(
            topic_id=query.topic_id,
            partition=query.partition,
            error_code=code,
            leader_epoch=NO_EPOCH,
            end_offset=UNDEFINED_OFFSET,
        )
        if partition is not None and code == errors_pb2.ERROR_CODE_NONE:
            log = partition.log
            end = log.epochs.end_offset_for(LeaderEpoch(query.leader_epoch), log_end_offset=log.log_end_offset)
            answer.leader_epoch, answer.end_offset = end.epoch, end.end_offset
        return answer
