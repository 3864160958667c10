"""What a member of a group asks of its coordinator, and what it makes of the answers."""

import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from regnum.broker.v1 import group_pb2
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.consumer.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    assignment_bytes,
    assignment_of,
    subscription_bytes,
)
from regnum_client.consumer.groups.coordinator import CoordinatorCalls
from regnum_client.consumer.groups.leading import Leading
from regnum_client.consumer.groups.members.member_events import (
    Event,
    Join,
    JoinAgain,
    Joined,
    Leave,
    Left,
    Sync,
    SyncAgain,
    Synced,
)
from regnum_client.consumer.settings import ConsumerSettings
from regnum_client.errors import BackgroundTaskError

T = TypeVar("T")

_LOG: Final = logging.getLogger("regnum_client")

LEAVE_S: Final = 5.0
"""The coordinator hears that a member goes, or finds out by its silence."""
REBALANCE_TIMEOUT_S_MAX: Final = 3_600.0
"""The longest time that brokers let a rebalance wait for a member."""
AGAIN_S: Final = 0.1
"""Pause after a call was refused, before what follows from that."""


class MemberCalls:
    """Of one member."""

    def __init__(
        self,
        calls: CoordinatorCalls,
        *,
        instance_id: str,
        leading: Leading,
        settings: ConsumerSettings,
        clock: Clock,
        chance: random.Random,
    ) -> None:
        """Only assigns."""
        self._calls: Final = calls
        self._instance_id: Final = instance_id
        self._leading: Final = leading
        self._settings: Final = settings
        self._clock: Final = clock
        self._chance: Final = chance

    async def join(self, action: Join) -> Event:
        """Join, and wait for the others. Raises RegnumError."""
        settings = self._settings
        data = subscription_bytes(action.subscription)
        request = group_pb2.JoinGroupRequest(
            header=self._calls.header,
            group_id=self._calls.group_id,
            member_id=action.member_id,
            group_instance_id=self._instance_id,
            session_timeout_ms=round(settings.session_timeout_s * 1000),
            rebalance_timeout_ms=round(min(settings.max_poll_interval_s, REBALANCE_TIMEOUT_S_MAX) * 1000),
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                group_pb2.GroupProtocol(name=name, metadata=data) for name in settings.partition_assignment_strategy
            ],
        )
        answer = await self._calls.ask(lambda stub: stub.JoinGroup, request, timeout_s=None)
        if answer.join_again:
            return JoinAgain(answer.member_id)
        roll = tuple((one.member_id, one.group_instance_id, one.metadata) for one in answer.members)
        leads = answer.leader == answer.member_id
        if not leads:
            self._leading.forget()
        elif answer.skip_assignment:
            await self._leading.watch_of(roll)
        return Joined(
            member_id=answer.member_id,
            generation=answer.generation_id,
            protocol=answer.protocol_name,
            roll=roll if leads and not answer.skip_assignment else None,
        )

    async def sync(self, action: Sync) -> Event:
        """Assign, where it leads, and wait for what is assigned to it. Raises RegnumError."""
        assignments: list[group_pb2.GroupAssignment] = []
        roll = action.roll
        if roll is not None:
            assigned = await self._insist(lambda: self._leading.assign(roll, action.protocol))
            assignments = [
                group_pb2.GroupAssignment(member_id=member_id, assignment=assignment_bytes(partitions))
                for member_id, partitions in assigned.items()
            ]
        request = group_pb2.SyncGroupRequest(
            header=self._calls.header,
            group_id=self._calls.group_id,
            generation_id=action.generation,
            member_id=action.member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=action.protocol,
            assignments=assignments,
        )
        answer = await self._calls.ask(lambda stub: stub.SyncGroup, request, timeout_s=None)
        return SyncAgain() if answer.sync_again else Synced(assignment_of(answer.assignment))

    async def leave(self, action: Leave) -> Event:
        """Say that it goes; what is not heard is found out."""
        request = group_pb2.LeaveGroupRequest(
            header=self._calls.header,
            group_id=self._calls.group_id,
            members=[group_pb2.LeavingMember(member_id=action.member_id)],
        )
        try:
            await self._calls.ask(lambda stub: stub.LeaveGroup, request, timeout_s=LEAVE_S)
        except RegnumError as error:
            _LOG.info("group %s: left without a word: %s", self._calls.group_id, error.message)
        return Left()

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask brokers what topics there are, until they say."""
        while True:
            try:
                return await ask()
            except BackgroundTaskError:
                raise
            except RegnumError as error:
                _LOG.warning("group %s: %s", self._calls.group_id, error.message)
                await self._clock.sleep(AGAIN_S * (0.5 + self._chance.random()))
