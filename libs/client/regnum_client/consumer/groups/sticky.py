"""Balance that moves little. Pure.

Goals: where all members want the same, nobody has two partitions more than another one; nobody could be relieved of a
partition by one that wants it and has two fewer; of all assignments like that, one close to what members have.

Constraints: members say themselves what they have. A member that was thought dead may claim what another one has
been given since: the later generation is right, and of the same generation neither (as in Kafka).

Algorithm: everybody keeps what it rightly has. What nobody has goes to the member with the least among those that want
it, partitions that few want first. Then, as long as somebody who wants it has two fewer, a partition of the member with
the most goes to the one with the least. Where all want the same, that moves as few as can be: only what is above a
member's final share is taken, and the shares that are one larger stay with those that had the most.

Example: x has 0 to 3, y joins: two of x's go to y, and x keeps the two with the lower numbers.
"""

from collections import Counter
from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from regnum_client.consumer.groups.consumer_protocol import Subscription
from regnum_client.records import TopicPartition


def assign_sticky(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> dict[str, set[TopicPartition]]:
    """What each member gets.

    Args:
        members: what each wants and has, in an order that does not depend on who assigns.
        partitions: how many partitions there are of each topic that exists.
    """
    owners = rightful_owners(members, partitions)
    wanted_by = Counter(topic for one in members.values() for topic in one.topics)
    free = [
        TopicPartition(topic, number)
        for topic in sorted(partitions, key=lambda topic: (wanted_by[topic], topic))
        for number in range(partitions[topic])
        if wanted_by[topic] and TopicPartition(topic, number) not in owners
    ]
    shares = _Shares(members, owners)
    for partition in free:
        shares.give(partition)
    while shares.level():
        # What moved may have made room for more, where members want different topics.
        pass
    return shares.given()


def rightful_owners(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> dict[TopicPartition, str]:
    """Who has what, of that which exists and which its owner still wants."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for member, one in members.items():
        for partition in one.owned:
            if partition.topic not in one.topics or partition.partition >= partitions.get(partition.topic, 0):
                continue
            known = claims.get(partition)
            if known is None or one.generation > known[0]:
                claims[partition] = (one.generation, member)
            elif one.generation == known[0]:
                claims[partition] = (one.generation, None)
    return {partition: owner for partition, (_, owner) in claims.items() if owner is not None}


class _Shares:
    """What members have so far. Those that want the same are alike, and of them the one with the least counts."""

    def __init__(self, members: Mapping[str, Subscription], owners: Mapping[TopicPartition, str]) -> None:
        self._place = {member: place for place, member in enumerate(members)}
        self._kind = {member: one.topics for member, one in members.items()}
        self._numbers: dict[str, dict[str, list[int]]] = {member: {} for member in members}
        self._count = dict.fromkeys(members, 0)
        for topic, number in sorted(owners):
            self._take(owners[TopicPartition(topic, number)], topic, number)
        self._least: dict[frozenset[str], list[tuple[int, int, str]]] = {}
        for member, topics in self._kind.items():
            self._least.setdefault(topics, []).append((self._count[member], self._place[member], member))
        for heap in self._least.values():
            heapify(heap)

    def given(self) -> dict[str, set[TopicPartition]]:
        """By member."""
        return {
            member: {TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers}
            for member, topics in self._numbers.items()
        }

    def give(self, partition: TopicPartition) -> None:
        """A partition that nobody has goes to the member with the least of those that want it."""
        best = self._with_least(partition.topic)
        self._take(best, *partition)
        self._changed(best)

    def level(self) -> bool:
        """Move partitions from those with the most, as long as one who wants them has two fewer. False: none moved."""
        most = [(-count, self._place[member], member) for member, count in self._count.items()]
        heapify(most)
        moved = False
        while most:
            load, place, member = heappop(most)
            if -load == self._count[member] and self._relieve(member):
                moved = True
                heappush(most, (-self._count[member], place, member))
        return moved

    def _relieve(self, member: str) -> bool:
        """Move one partition away from a member. False: nobody has two fewer and wants any."""
        for topic, numbers in sorted(self._numbers[member].items()):
            if not numbers:
                continue
            other = self._with_least(topic)
            if self._count[other] + 2 <= self._count[member]:
                number = numbers.pop()
                self._count[member] -= 1
                self._take(other, topic, number)
                self._changed(member)
                self._changed(other)
                return True
        return False

    def _take(self, member: str, topic: str, number: int) -> None:
        self._numbers[member].setdefault(topic, []).append(number)
        self._count[member] += 1

    def _changed(self, member: str) -> None:
        heappush(self._least[self._kind[member]], (self._count[member], self._place[member], member))

    def _with_least(self, topic: str) -> str:
        """The member with the least of those that want a topic; there is one."""
        return min(self._top(heap) for topics, heap in self._least.items() if topic in topics)[2]

    def _top(self, heap: list[tuple[int, int, str]]) -> tuple[int, int, str]:
        """The first entry that is true: each change has left one that no longer is."""
        while heap[0][0] != self._count[heap[0][2]]:
            heappop(heap)
        return heap[0]
