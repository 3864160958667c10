"""Who reads what: the assignors of Kafka, by their names. Pure.

Goals: each partition of a topic that somebody wants has exactly one owner, who wants it; the same members get the same,
whoever assigns and in whatever order they are told.

``range`` (KIP-54's words: co-partitioned): topic by topic, runs of partitions to the members in order; those that come
first get one more. Partition n of two topics with as many partitions goes to the same member. ``roundrobin``: all
partitions of all topics in order, to one member after the other. Both are *eager*: every member gives up all that it
has before it joins again. ``cooperative-sticky`` (module ``sticky``): members keep what they have, and only what moves
is given up first (KIP-429).

Example: topics a and b of three partitions, members x and y: range gives x a0 a1 b0 b1 and y a2 b2; roundrobin gives x
a0 a2 b1 and y a1 b0 b2.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from types import MappingProxyType
from typing import Final

from regnum_client.consumer.groups.consumer_protocol import Subscription
from regnum_client.consumer.groups.sticky import assign_sticky
from regnum_client.records import TopicPartition

Assignment = dict[str, frozenset[TopicPartition]]
"""What each member gets, by member id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member as the leader knows it."""

    member_id: str
    """Given by the coordinator."""
    instance_id: str = ""
    """Name of a static member; empty: a dynamic one."""
    subscription: Subscription
    """What it wants and has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignor:
    """A way to share."""

    name: str
    """As members offer it to the coordinator."""
    cooperative: bool
    """Members keep what they have while the group rebalances."""
    assign: Callable[[Sequence[GroupMember], Mapping[str, int]], Assignment]
    """From the members, and the number of partitions of each topic that exists, to what each gets."""


def assign_ranges(members: Sequence[GroupMember], partitions: Mapping[str, int]) -> Assignment:
    """Kafka's RangeAssignor, without racks."""
    assigned: dict[str, list[TopicPartition]] = {one.member_id: [] for one in members}
    for topic in sorted(partitions):
        wanting = [one for one in in_order(members) if topic in one.subscription.topics]
        if not wanting:
            continue
        each, more = divmod(partitions[topic], len(wanting))
        first = 0
        for place, member in enumerate(wanting):
            count = each + (place < more)
            assigned[member.member_id] += [TopicPartition(topic, number) for number in range(first, first + count)]
            first += count
    return {member_id: frozenset(given) for member_id, given in assigned.items()}


def assign_round_robin(members: Sequence[GroupMember], partitions: Mapping[str, int]) -> Assignment:
    """Kafka's RoundRobinAssignor: members that do not want a topic are passed over."""
    assigned: dict[str, list[TopicPartition]] = {one.member_id: [] for one in members}
    wanted = frozenset().union(*(one.subscription.topics for one in members))
    turn = cycle(in_order(members))
    for topic in sorted(wanted & partitions.keys()):
        for number in range(partitions[topic]):
            member = next(one for one in turn if topic in one.subscription.topics)
            assigned[member.member_id].append(TopicPartition(topic, number))
    return {member_id: frozenset(given) for member_id, given in assigned.items()}


def assign_cooperatively(members: Sequence[GroupMember], partitions: Mapping[str, int]) -> Assignment:
    """Kafka's CooperativeStickyAssignor: what another one still has is given to nobody yet.

    Its owner hears that it has to give it up, does so and joins again; then the partition is free.
    """
    target = assign_sticky({one.member_id: one.subscription for one in in_order(members)}, partitions)
    claimed: dict[TopicPartition, set[str]] = {}
    for one in members:
        for partition in one.subscription.owned:
            claimed.setdefault(partition, set()).add(one.member_id)
    return {
        member_id: frozenset(one for one in given if claimed.get(one, set()) <= {member_id})
        for member_id, given in target.items()
    }


def in_order(members: Sequence[GroupMember]) -> list[GroupMember]:
    """As Kafka orders them: static members by their names, so that a restart changes nothing, then the others."""
    return sorted(members, key=lambda one: (not one.instance_id, one.instance_id or one.member_id))


ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {
        one.name: one
        for one in (
            Assignor(name="range", cooperative=False, assign=assign_ranges),
            Assignor(name="roundrobin", cooperative=False, assign=assign_round_robin),
            Assignor(name="cooperative-sticky", cooperative=True, assign=assign_cooperatively),
        )
    }
)
"""By name."""


def is_cooperative(names: Sequence[str]) -> bool:
    """Whether members keep what they have through a rebalance: only if every assignor that they offer allows it."""
    return all(ASSIGNORS[name].cooperative for name in names)
