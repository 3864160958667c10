"""The leader of a group assigns, and watches the topics that it assigned."""

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Final

from regnum_service.errors import RegnumError

from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.view import ClusterView
from regnum_client.consumer.groups.assignors import ASSIGNORS, Assignment, GroupMember
from regnum_client.consumer.groups.consumer_protocol import subscription_of

_LOG: Final = logging.getLogger("regnum_client")

ON_LOOP_MAX: Final = 2_000
"""Partitions that are assigned without a thread (safety rule S22)."""

Roll = tuple[tuple[str, str, bytes], ...]
"""Id, name and subscription of each member."""


class Leading:
    """Of one member, whether it leads or not."""

    def __init__(self, metadata: Metadata, *, timeout_s: float) -> None:
        """Only assigns; ``timeout_s``: how long brokers may take to say what topics there are."""
        self._metadata: Final = metadata
        self._timeout_s: Final = timeout_s
        self._assigned_from: dict[str, int] | None = None

    @property
    def topics(self) -> Collection[str]:
        """Topics that it watches; none unless it leads."""
        return (self._assigned_from or {}).keys()

    def forget(self) -> None:
        """Another member leads."""
        self._assigned_from = None

    async def assign(self, roll: Roll, protocol: str) -> Assignment:
        """What each member gets. Raises RegnumError when nobody says what partitions there are."""
        members = await asyncio.to_thread(_members, roll) if len(roll) > 1 else _members(roll)
        await self.watch(members)
        partitions = {name: count for name, count in (self._assigned_from or {}).items() if count}
        assign = ASSIGNORS[protocol].assign
        if sum(partitions.values()) <= ON_LOOP_MAX and len(members) <= ON_LOOP_MAX // 100:
            return assign(members, partitions)
        return await asyncio.to_thread(assign, members, partitions)

    async def watch(self, members: Iterable[GroupMember]) -> None:
        """Notice from now on when a topic that one of them wants gets or loses partitions, comes or goes.

        Raises RegnumError when nobody says what partitions there are.
        """
        topics = _topics(members)
        await self._metadata.use(topics, timeout_s=self._timeout_s)
        self._assigned_from = _counts(self._metadata.view, topics)

    async def watch_of(self, roll: Roll) -> None:
        """The same for members as the coordinator names them, and who is not to wait: what is heard later is news."""
        members = _members(roll)
        try:
            await self.watch(members)
        except RegnumError as error:
            _LOG.warning("a leader does not know yet what topics it watches: %s", error.message)
            self._assigned_from = _counts(self._metadata.view, _topics(members))

    @property
    def is_outdated(self) -> bool:
        """Topics have other partitions than those that this member assigned."""
        known = self._assigned_from
        return known is not None and _counts(self._metadata.view, known) != known


def _members(roll: Roll) -> list[GroupMember]:
    members = [
        GroupMember(member_id=member_id, instance_id=instance_id, subscription=subscription_of(data))
        for member_id, instance_id, data in roll
    ]
    for one in members:
        if not one.subscription.topics:
            _LOG.warning("member %s of the group says no topics that can be read: it gets nothing", one.member_id)
    return members


def _topics(members: Iterable[GroupMember]) -> frozenset[str]:
    return frozenset[str]().union(*(one.subscription.topics for one in members))


def _counts(view: ClusterView, topics: Iterable[str]) -> dict[str, int]:
    """Partitions of each topic; 0 where there is no such topic."""
    return {name: len(known.partitions) if (known := view.topics.get(name)) else 0 for name in topics}
