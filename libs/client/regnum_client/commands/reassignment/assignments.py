"""Where partitions are and where they go, of one moment: what brokers and controller say, once they agree.

Goals: a plan never begins from a moment that there has not been. What has just arrived would be planned again, with a
replica too many, or refused because every broker seems to have it already.

Constraints: partitions are known from brokers, which hear of a change after it is done; open reassignments are known
from the controller, which forgets a reassignment when it is done.

Algorithm: ask both, and compare. They disagree where a broker names replicas that are being added and the controller
has no open reassignment of that partition; and, where everything is asked for, where a broker of the cluster has more
or fewer partitions by the one than by the other. Then ask again, for a bounded time.

Example: orders/0 moved from (1, 2, 4) to (1, 2, 3). A broker that is a moment behind says (1, 2, 4, 3) with 3 being
added, and the controller has nothing open: asked again, the broker says (1, 2, 3).
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from regnum_client.admin.reassignment.plan import Place
from regnum_client.admin.reassignment.wording import named
from regnum_client.cluster.view import PartitionView, TopicView
from regnum_client.commands.invocation import CommandFailedError, Failure

if TYPE_CHECKING:
    from regnum_client.admin.admin import Admin
    from regnum_client.admin.leaders.brokers import BrokerDescription
    from regnum_client.admin.reassignment.values import OngoingReassignment

SETTLED_S: Final = 10.0
"""How long brokers may take to know what the controller has done."""

SETTLING_S: Final = 0.2
"""Pause between two looks at what brokers know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignments:
    """One look at partitions."""

    partitions: Mapping[Place, PartitionView]
    """As brokers know them."""
    ongoing: "Sequence[OngoingReassignment]"
    """Open reassignments, as the controller knows them."""
    brokers: "Sequence[BrokerDescription] | None" = None
    """All brokers as the controller knows them; None: it was not asked, for these are not all partitions."""

    def to_come(self) -> dict[Place, tuple[int, ...]]:
        """Replicas of each; of one that moves those that it will have."""
        found: dict[Place, tuple[int, ...]] = {place: one.replicas for place, one in self.partitions.items()}
        found.update({place: one.target for one in self.ongoing if (place := (one.topic, one.partition)) in found})
        return found

    def disagreement(self) -> str:
        """What brokers and controller do not say alike, for a person; empty: nothing."""
        moving = {(one.topic, one.partition) for one in self.ongoing}
        late = sorted(place for place, one in self.partitions.items() if one.adding_replicas and place not in moving)
        if late:
            return f"where {named(late)} {'is' if len(late) == 1 else 'are'}"
        if self.brokers is None:
            return ""
        counted = Counter(int(id) for one in self.partitions.values() for id in one.replicas)
        differ = sorted(one.id for one in self.brokers if one.replicas != counted.pop(one.id, 0))
        differ += sorted(counted)
        return f"how many replicas brokers {differ} have" if differ else ""


async def all_assignments(admin: "Admin") -> Assignments:
    """All partitions, and all brokers. Raises RegnumError, and CommandFailedError where they do not come to agree."""

    async def look() -> Assignments:
        partitions = by_place(await admin.list_topics())
        ongoing = await admin.list_partition_reassignments()
        return Assignments(partitions=partitions, ongoing=ongoing, brokers=await admin.describe_brokers())

    return await _agreed(look)


async def assignments_of(admin: "Admin", topics: Iterable[str]) -> Assignments:
    """The partitions of some topics. Raises as above."""
    names = sorted(set(topics))

    async def look() -> Assignments:
        partitions = by_place([await admin.describe_topic(name) for name in names])
        return Assignments(partitions=partitions, ongoing=await admin.list_partition_reassignments(names))

    return await _agreed(look)


def by_place(topics: Iterable[TopicView]) -> dict[Place, PartitionView]:
    """All partitions of topics."""
    return {(topic.name, number): one for topic in topics for number, one in topic.partitions.items()}


async def _agreed(look: Callable[[], Awaitable[Assignments]]) -> Assignments:
    import asyncio  # noqa: PLC0415 - help is to be there at once

    loop = asyncio.get_running_loop()
    until_s = loop.time() + SETTLED_S
    while True:
        seen = await look()
        what = seen.disagreement()
        if not what:
            return seen
        if loop.time() >= until_s:
            message = (
                f"brokers and the controller do not agree after {SETTLED_S:.0f} s on {what}: brokers do not hear of "
                "changes, or this client may not see every topic; see `regnum status`, and run it again"
            )
            raise CommandFailedError(Failure(code="METADATA_BEHIND", message=message, exit_status=5, metadata={}))
        await asyncio.sleep(SETTLING_S)
