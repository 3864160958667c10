"""States of partitions in the words of FollowState, and back. Pure.

A change lists each membership once, and states name it by its place in that list: thousands of partitions have the same
few members, and a standby puts together in microseconds what it would take ten times as long to read from the store's
words.
"""

from collections.abc import Mapping, Sequence

from regnum.election.v1 import standby_pb2
from regnum_model.ids import NO_LEADER, BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, LogId, TopicId
from regnum_model.nodes import LeaderAndIsr, Membership
from regnum_model.sharing import MemberKey, Shared, broker_ids, memberships


class StateError(Exception):
    """A state contradicts itself, or names a membership that was not listed."""


class StateWriter:
    """Of one change."""

    def __init__(self) -> None:
        self._places: dict[tuple[BrokerId, BrokerEpoch, LogId], int] = {}
        self._unlisted: list[standby_pb2.FollowedMember] = []

    def message(self, state: LeaderAndIsr) -> standby_pb2.FollowedState:
        """A state."""
        return standby_pb2.FollowedState(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            controller_epoch=state.controller_epoch,
            isr=state.isr,
            elr=state.elr,
            members=[self._place(id, member) for id, member in state.members.items()],
        )

    def take_unlisted(self) -> list[standby_pb2.FollowedMember]:
        """Memberships that were named and not listed before: they go with the next part at the latest."""
        unlisted, self._unlisted = self._unlisted, []
        return unlisted

    def _place(self, id: BrokerId, member: Membership) -> int:
        whose = (id, member.broker_epoch, member.log_id)
        place = self._places.get(whose)
        if place is None:
            place = self._places[whose] = len(self._places)
            self._unlisted.append(
                standby_pb2.FollowedMember(broker_id=id, broker_epoch=member.broker_epoch, log_id=member.log_id)
            )
        return place


class StateReader:
    """For the life of a standby: what states have in common is shared by all of them."""

    def __init__(self) -> None:
        self._listed: list[tuple[int, int, str]] = []
        self._of_places: dict[tuple[int, ...], Mapping[BrokerId, Membership]] = {}
        self._members: Shared[MemberKey, Mapping[BrokerId, Membership]] = Shared(memberships)
        self._ids = Shared(broker_ids)

    def begin(self) -> None:
        """A change begins: nothing is listed."""
        self._listed = []
        self._of_places = {}

    def listed(self, members: Sequence[standby_pb2.FollowedMember]) -> None:
        """The next memberships of the list."""
        self._listed += [(member.broker_id, member.broker_epoch, member.log_id) for member in members]

    def ids(self, ids: Sequence[int]) -> tuple[BrokerId, ...]:
        """Broker ids, as one value for all that have the same."""
        return self._ids[tuple(ids)]

    def state(self, topic_id: TopicId, message: standby_pb2.FollowedState) -> LeaderAndIsr:
        """A state. Raises StateError."""
        isr, elr, leader = self.ids(message.isr), self.ids(message.elr), message.leader
        members = self._of_places.get(places := tuple(message.members))
        if members is None:
            members = self._of_places[places] = self._named(places)
        fits = isr and (leader == NO_LEADER or leader in isr) and not set(isr) & set(elr)
        if not fits or not all(id in members for id in isr) or not all(id in members for id in elr):
            raise StateError(f"leader {leader}, ISR {isr}, ELR {elr}, members {sorted(members)}")
        return LeaderAndIsr(
            topic_id=topic_id,
            leader=BrokerId(leader),
            leader_epoch=LeaderEpoch(message.leader_epoch),
            isr=isr,
            elr=elr,
            members=members,
            controller_epoch=ControllerEpoch(message.controller_epoch),
        )

    def _named(self, places: Sequence[int]) -> Mapping[BrokerId, Membership]:
        if not all(0 <= place < len(self._listed) for place in places):
            raise StateError(f"memberships {places} of {len(self._listed)}")
        return self._members[tuple([self._listed[place] for place in places])]
