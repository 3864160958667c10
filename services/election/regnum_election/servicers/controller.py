"""ControllerService on the internal listener: what brokers ask of the controller, and a controller of candidates."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

import grpc
from regnum.election.v1 import controller_pb2, controller_pb2_grpc, history_pb2, standby_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.access import Operation
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch
from regnum_service.access.audit import AuditLog, Mutated, NoAudit
from regnum_service.access.authorization import FAILED, Authorizer
from regnum_service.access.identity import caller, calling
from regnum_service.errors import RegnumError

from regnum_election.admission.stand_in import Account
from regnum_election.candidacy.role import ControllerRole
from regnum_election.decisions.rejection import Rejection
from regnum_election.history.events import Position
from regnum_election.history.following import follow
from regnum_election.history.log import EventLog
from regnum_election.servicers.callers import client_of, wait_s
from regnum_election.servicers.envelope import EnvelopeOpener
from regnum_election.topics.creation import Created
from regnum_election.topics.internal import internal_topic
from regnum_election.topics.requests import TopicRequest

ITEM_ERRORS: Final = frozenset({errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH, errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE})
"""Errors about the broker that asks; they travel in the answer."""

CLUSTER_ACCOUNT: Final = Account(user="__cluster", client_id="", strict=False)
"""What the cluster does for itself: no client can speak for it, and it is not refused."""

NAME_LENGTH_MAX: Final = 255
"""Characters of a group's name, or of a transactional id."""

Context = grpc.aio.ServicerContext[Any, Any]


class ControllerServicer(controller_pb2_grpc.ControllerServiceServicer):
    """Calls of brokers, and of other election processes."""

    def __init__(
        self,
        role: ControllerRole,
        events: EventLog,
        *,
        reached_broker: Callable[[], Awaitable[BrokerId | None]],
        envelopes: EnvelopeOpener,
        authorizer: Authorizer,
        audit: AuditLog | None = None,
    ) -> None:
        """Only assigns.

        Args:
            role: who reigns.
            events: the event log of this process.
            reached_broker: a registered broker that this process reaches; None: none, or it could not reign.
            envelopes: opens what brokers pass on.
            authorizer: says what those may do that brokers act for.
            audit: where it is written down for whom topics are made; None: nowhere.
        """
        self._audit: Final = audit or NoAudit()
        self._envelopes = envelopes
        self._authorizer = authorizer
        self._role = role
        self._events = events
        self._reached_broker = reached_broker

    async def ControlledShutdown(  # noqa: N802 - the name in the proto
        self, request: controller_pb2.ControlledShutdownRequest, context: Context
    ) -> controller_pb2.ControlledShutdownResponse:
        """Move leadership away from a broker."""
        controller = await self._role.controller()
        try:
            departure = await controller.brokers.controlled_shutdown(
                BrokerId(request.broker_id),
                BrokerEpoch(request.broker_epoch),
                can_wait=request.can_wait,
                wait_s=wait_s(0, context),
            )
        except RegnumError as error:
            if error.code in ITEM_ERRORS:
                return controller_pb2.ControlledShutdownResponse(error_code=error.code)
            raise
        return controller_pb2.ControlledShutdownResponse(
            remaining_partitions=departure.remaining,
            below_min_isr=departure.below,
            held=[controller_pb2.HeldPartition(topic=topic, partition=number) for topic, number in departure.held],
        )

    async def AllocateProducerIds(  # noqa: N802 - the name in the proto
        self, request: controller_pb2.AllocateProducerIdsRequest, context: Context
    ) -> controller_pb2.AllocateProducerIdsResponse:
        """Hand out a block of producer ids."""
        controller = await self._role.controller()
        try:
            first, count = await controller.brokers.allocate_producer_ids(
                BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch), wait_s=wait_s(0, context)
            )
        except RegnumError as error:
            if error.code in ITEM_ERRORS:
                return controller_pb2.AllocateProducerIdsResponse(error_code=error.code)
            raise
        return controller_pb2.AllocateProducerIdsResponse(first_producer_id=first, count=count)

    async def Envelope(  # noqa: N802 - the name in the proto
        self, request: controller_pb2.EnvelopeRequest, context: Context
    ) -> controller_pb2.EnvelopeResponse:
        """Carry out what a client asked of a broker."""
        return await self._envelopes.open(request, context)

    async def CreateOffsetsTopic(  # noqa: N802 - the name in the proto
        self, request: controller_pb2.CreateOffsetsTopicRequest, context: Context
    ) -> controller_pb2.CreateOffsetsTopicResponse:
        """Create an internal topic, for whoever needs it and on the cluster's own account."""
        controller = await self._role.controller()
        try:
            controller.brokers.check(BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch))
        except RegnumError as error:
            if error.code in ITEM_ERRORS:
                return controller_pb2.CreateOffsetsTopicResponse(error_code=error.code, error_message=error.message)
            raise
        topic = internal_topic(request.topic)
        if topic is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST, f"{request.topic[:100]!r} is no internal topic of this release"
            )
        who = client_of(request.caller) if request.HasField("caller") else caller()
        with calling(who):
            if request.HasField("caller") and not self._authorizer.allows(
                who, Operation.DESCRIBE, topic.of, request.key[:NAME_LENGTH_MAX]
            ):
                return controller_pb2.CreateOffsetsTopicResponse(
                    error_code=FAILED[topic.of], error_message=f"{who.principal} may not look for that coordinator"
                )
            wanted = TopicRequest(
                name=topic.name,
                partitions=request.partitions,
                replication_factor=None,
                assignment=(),
                mutation=None,
                configs=topic.configs,
                internal=True,
            )
            answered = await controller.topics.create(
                [wanted], validate_only=False, wait_s=wait_s(0, context), account=CLUSTER_ACCOUNT
            )
        (outcome,) = answered.outcomes
        if isinstance(outcome, Created):
            # Who comes later finds it there, and has changed nothing.
            self._audit.mutated(
                who,
                "ControllerService/CreateOffsetsTopic",
                (Mutated(resource=f"topic:{topic.name}", detail=f"partitions {request.partitions}"),),
            )
        if isinstance(outcome, Rejection):
            return controller_pb2.CreateOffsetsTopicResponse(error_code=outcome.code, error_message=outcome.message)
        return controller_pb2.CreateOffsetsTopicResponse()

    async def ProbeBrokers(  # noqa: N802 - the name in the proto
        self,
        request: controller_pb2.ProbeBrokersRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> controller_pb2.ProbeBrokersResponse:
        """Say whether this process reaches a broker, to a controller that reaches none."""
        return controller_pb2.ProbeBrokersResponse(reached_broker=await self._reached_broker())

    async def FollowState(  # noqa: N802 - the name in the proto
        self,
        request: standby_pb2.FollowStateRequest,
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[standby_pb2.FollowStateResponse]:
        """Show the picture to a process that stands by."""
        controller = await self._role.controller()
        parts = controller.standbys.follow(ControllerEpoch(request.controller_epoch), request.version)
        async with aclosing(parts):
            async for part in parts:
                yield standby_pb2.FollowStateResponse(part=part)

    async def FollowEvents(  # noqa: N802 - the name in the proto
        self,
        request: history_pb2.FollowEventsRequest,
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[history_pb2.FollowEventsResponse]:
        """Show the event log to a process that stands by."""
        controller = await self._role.controller()

        async def check() -> None:
            if await self._role.controller() is not controller:
                raise RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "the reign is over; follow the next controller")

        position = Position(ControllerEpoch(request.controller_epoch), request.number)
        async with aclosing(follow(self._events, position, check=check)) as portions:
            async for entries in portions:
                yield history_pb2.FollowEventsResponse(entries=entries)
