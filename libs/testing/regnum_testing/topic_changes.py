"""Changes of topics as a client makes them, each with what must be true before and after, whoever dies meanwhile."""

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_client import ElectionType
from regnum_model import paths
from regnum_model.broker_configs import FOLLOWER_THROTTLE_RATE, LEADER_THROTTLE_RATE
from regnum_model.ids import BrokerId, encode_id
from regnum_model.nodes import LeaderAndIsr

from regnum_testing.failpoint_cluster import CALM_S, Cut
from regnum_testing.topic_client import GONE, Answer, Hands
from regnum_testing.waiting import DEADLINE_S, eventually, within

WATCHED: Final = (
    "/brokers/topics/{topic}|/brokers/topics/{topic}/*|/brokers/topic_ids/*|/admin/*|/config/topics/{topic}"
)
"""Paths of the writes of a change, as patterns of failpoints."""


def _header() -> RequestHeader:
    return RequestHeader(client_id="test")


def _assignment(wanted: dict[int, Sequence[int]]) -> list[admin_pb2.ReplicaAssignment]:
    return [admin_pb2.ReplicaAssignment(partition=number, replicas=ids) for number, ids in wanted.items()]


class Change(ABC):
    """One kind of change. Each is made once for each topic."""

    name: str
    """As tests call it."""
    settings: Mapping[str, str] = MappingProxyType({})
    """Settings that the cluster has meanwhile."""
    ordered: bool = True
    """Whether brokers are told to do something."""

    @abstractmethod
    async def prepare(self, hands: Hands, topic: str, /) -> None:
        """Make what is changed."""

    @abstractmethod
    async def ask(self, hands: Hands, topic: str, mutation: str, /) -> Answer:
        """Make the change, or the same call again; returns the definite answer."""

    @abstractmethod
    async def check(self, hands: Hands, topic: str) -> None:
        """Assert what holds once nothing is left behind."""


def mutation_id() -> str:
    """A fresh one."""
    return encode_id(uuid.uuid4())


_NONE: Final = errors_pb2.ERROR_CODE_NONE


class Creation(Change):
    """A topic with two partitions is created."""

    name = "create"
    wanted: Final[dict[int, Sequence[int]]] = {0: (1, 2), 1: (2, 3)}

    async def prepare(self, hands: Hands, topic: str) -> None:
        """See Change. There is nothing yet."""

    async def ask(self, hands: Hands, topic: str, mutation: str, /) -> Answer:
        """See Change."""
        request = admin_pb2.CreateTopicsRequest(
            header=_header(),
            topics=[admin_pb2.NewTopic(name=topic, assignment=_assignment(self.wanted), mutation_id=mutation)],
            timeout_ms=10_000,
        )
        return await hands.ask(
            "CreateTopics", request, lambda one: (one.error_code, f"{one.topic_id} {one.partitions}")
        )

    async def check(self, hands: Hands, topic: str) -> None:
        """See Change."""
        await hands.assigned(topic, self.wanted)
        await hands.write(topic, 2)
        await hands.holds(topic, 2)


class Deletion(Change):
    """A topic with records is deleted."""

    name = "delete"

    def __init__(self) -> None:
        self._ids: Final[dict[str, str]] = {}

    async def prepare(self, hands: Hands, topic: str) -> None:
        """See Change."""
        await hands.create(topic, {0: (1, 2), 1: (2, 3)})
        self._ids[topic] = (await hands.node(topic)).topic_id or ""

    async def ask(self, hands: Hands, topic: str, mutation: str, /) -> Answer:
        """See Change. That the id is gone is the same answer: no other topic can have it."""
        request = admin_pb2.DeleteTopicsRequest(
            header=_header(),
            topics=[admin_pb2.DeletableTopic(name=topic, topic_id=self._ids[topic], mutation_id=mutation)],
            timeout_ms=10_000,
        )
        return await hands.ask(
            "DeleteTopics", request, lambda one: (_NONE if one.error_code in GONE else one.error_code, "")
        )

    async def check(self, hands: Hands, topic: str) -> None:
        """See Change."""
        assert await hands.failpoints.store.exists(paths.topic(topic), current=True) is None


class Addition(Change):
    """A topic of one partition gets two more."""

    name = "add partitions"
    wanted: Final[dict[int, Sequence[int]]] = {0: (1, 2), 1: (2, 3), 2: (3, 1)}

    async def prepare(self, hands: Hands, topic: str) -> None:
        """See Change."""
        await hands.create(topic, {0: (1, 2)})

    async def ask(self, hands: Hands, topic: str, mutation: str, /) -> Answer:
        """See Change."""
        new = admin_pb2.NewPartitions(
            name=topic,
            count=3,
            assignment=_assignment({number: ids for number, ids in self.wanted.items() if number > 0}),
            mutation_id=mutation,
        )
        request = admin_pb2.CreatePartitionsRequest(header=_header(), topics=[new], timeout_ms=10_000)
        return await hands.ask("CreatePartitions", request, lambda one: (one.error_code, str(one.partitions)))

    async def check(self, hands: Hands, topic: str) -> None:
        """See Change."""
        await hands.assigned(topic, self.wanted)
        await hands.holds(topic, 1)


class Removal(Change):
    """A topic of three partitions loses two."""

    name = "remove partitions"

    async def prepare(self, hands: Hands, topic: str) -> None:
        """See Change."""
        await hands.create(topic, {0: (1, 2), 1: (2, 3), 2: (3, 1)})

    async def ask(self, hands: Hands, topic: str, mutation: str, /) -> Answer:
        """See Change."""
        gone = admin_pb2.DeletablePartitions(name=topic, partitions=[1, 2], mutation_id=mutation)
        request = admin_pb2.DeletePartitionsRequest(header=_header(), topics=[gone], timeout_ms=10_000)
        return await hands.ask("DeletePartitions", request, lambda one: (one.error_code, str(one.partitions)))

    async def check(self, hands: Hands, topic: str) -> None:
        """See Change."""
        await hands.assigned(topic, {0: (1, 2)})
        await hands.holds(topic, 1)


class Reassignment(Change):
    """Two partitions go elsewhere: one keeps its leader, the other gets a new one."""

    name = "reassign"
    wanted: Final[dict[int, Sequence[int]]] = {0: (1, 3), 1: (3, 1)}

    async def prepare(self, hands: Hands, topic: str) -> None:
        """See Change."""
        await hands.create(topic, {0: (1, 2), 1: (2, 1)})

    async def ask(self, hands: Hands, topic: str, _mutation: str, /) -> Answer:
        """See Change. What is wanted is absolute: the call needs no mutation id."""
        targets = {(topic, number): tuple(ids) for number, ids in self.wanted.items()}
        failures = (await hands.admin.alter_partition_reassignments(targets)).values()
        return next((one.code for one in failures if one is not None), _NONE), ""

    async def check(self, hands: Hands, topic: str) -> None:
        """See Change."""
        await hands.assigned(topic, self.wanted)
        await hands.holds(topic, 2)


class Cancellation(Change):
    """A reassignment that cannot be over yet, for the throttle lets next to nothing through, is called back."""

    name = "cancel a reassignment"
    records: Final = 8
    settings = MappingProxyType(dict.fromkeys((LEADER_THROTTLE_RATE, FOLLOWER_THROTTLE_RATE), "1000"))

    async def prepare(self, hands: Hands, topic: str) -> None:
        """See Change."""
        await hands.create(topic, {0: (1, 2)})
        for _ in range(self.records - 1):
            await hands.write(topic, 1, value=b"x" * 50_000)
        outcomes = await hands.admin.alter_partition_reassignments({(topic, 0): (2, 3)})
        assert outcomes == {(topic, 0): None}

        async def filling() -> bool:
            """All three have their orders: the new one is being filled, and says how far."""
            found = await hands.admin.list_partition_reassignments([topic])
            return bool(found) and found[0].percent is not None

        await eventually(filling, what="a reassignment that has begun")

    async def ask(self, hands: Hands, topic: str, _mutation: str, /) -> Answer:
        """See Change. That there is none is the same answer, once it has been called back."""
        (failure,) = (await hands.admin.alter_partition_reassignments({(topic, 0): None})).values()
        if failure is None or failure.code == errors_pb2.ERROR_CODE_NO_REASSIGNMENT_IN_PROGRESS:
            return _NONE, ""
        return failure.code, ""

    async def check(self, hands: Hands, topic: str) -> None:
        """See Change."""
        await hands.assigned(topic, {0: (1, 2)})
        await hands.holds(topic, 1, records=self.records)


class PreferredElection(Change):
    """The first replica of the assignment is elected, while another one leads."""

    name = "elect the preferred leader"

    async def prepare(self, hands: Hands, topic: str) -> None:
        """See Change."""
        await hands.create(topic, {0: (1, 2)})
        assert await hands.admin.alter_partition_reassignments({(topic, 0): (2, 1)}) == {(topic, 0): None}
        await hands.failpoints.nothing_left()
        assert await self._leader(hands, topic) == 1

    async def ask(self, hands: Hands, topic: str, _mutation: str, /) -> Answer:
        """See Change. That it leads already is the same answer."""
        (result,) = await hands.admin.elect_leaders(ElectionType.PREFERRED, {topic: [0]})
        if result.failure is None or result.failure.code == errors_pb2.ERROR_CODE_ELECTION_NOT_NEEDED:
            return _NONE, ""
        return result.failure.code, ""

    async def check(self, hands: Hands, topic: str) -> None:
        """See Change."""
        assert await self._leader(hands, topic) == 2
        await hands.assigned(topic, {0: (2, 1)})
        await hands.holds(topic, 1)

    async def _leader(self, hands: Hands, topic: str) -> int:
        node = await hands.failpoints.store.get(paths.leader_and_isr(topic, 0), current=True)
        return LeaderAndIsr.decode(node.data).leader


class GivingUp(Change):
    """A partition whose state nobody can read is given up with its records, which a person has accepted."""

    name = "give up a partition"

    async def prepare(self, hands: Hands, topic: str) -> None:
        """See Change. A controller that reads everything finds the damage."""
        await hands.create(topic, {0: (1, 2), 1: (2, 3)})
        await hands.failpoints.store.set(paths.leader_and_isr(topic, 1), b"nobody can read this", version=None)
        await hands.admin.resign_controller()

        async def found() -> bool:
            damaged = await hands.admin.give_up_partitions(topic, accept_loss=False)
            return [one.partition for one in damaged] == [1]

        await eventually(found, what="a controller that has found the damage")

    async def ask(self, hands: Hands, topic: str, _mutation: str, /) -> Answer:
        """See Change. A controller that has just begun may not have come to the damage yet, and says there is none."""

        async def gone() -> bool:
            await hands.admin.give_up_partitions(topic, [1], accept_loss=True)
            node = await hands.node(topic)
            return 1 not in node.partitions and 1 not in node.removing

        await eventually(gone, what=f"an end of partition 1 of {topic}")
        return _NONE, ""

    async def check(self, hands: Hands, topic: str) -> None:
        """See Change."""
        await hands.assigned(topic, {0: (1, 2)})
        await hands.holds(topic, 1)


class Draining(Change):
    """A broker is given nothing new from now on."""

    name = "drain a broker"
    broker: Final = BrokerId(3)
    ordered = False

    async def prepare(self, hands: Hands, _topic: str, /) -> None:
        """See Change. What the topic before left is taken back."""
        await hands.admin.drain_broker(self.broker, undo=True)

    async def ask(self, hands: Hands, _topic: str, _mutation: str, /) -> Answer:
        """See Change. That it is so already is the same answer."""
        await hands.admin.drain_broker(self.broker)
        return _NONE, ""

    async def check(self, hands: Hands, topic: str) -> None:
        """See Change."""
        assert await hands.failpoints.store.exists(paths.draining(self.broker), current=True) is not None
        await hands.admin.create_topic(topic, partitions=4, replication_factor=2)
        assert all(self.broker not in replicas for replicas in (await hands.node(topic)).partitions.values())


CHANGES: Final[tuple[type[Change], ...]] = (
    Creation,
    Deletion,
    Addition,
    Removal,
    Reassignment,
    Cancellation,
    PreferredElection,
    GivingUp,
    Draining,
)
"""All kinds."""

ONE_WRITE: Final[frozenset[type[Change]]] = frozenset({PreferredElection, Draining})
"""Those after whose only write nothing is left for whoever carries on."""


async def killed_at(hands: Hands, change: Change, cut: Cut, moment: str, topic: str) -> bool:
    """Make a change whose controller is killed ``before`` or ``after`` that step, and judge it.

    Returns whether it was killed: an order that was sent in another run may not be sent in this one. Raises
    AssertionError for what is left behind, missing, or answered otherwise when it is asked again.
    """
    failpoints, mutation = hands.failpoints, mutation_id()
    await change.prepare(hands, topic)
    controller = await failpoints.controller()
    failpoints.arm(controller, f"action=kill when={moment} {cut.words.format(topic=topic)}")
    answer = await within(change.ask(hands, topic, mutation), 2 * DEADLINE_S)
    assert answer[0] == _NONE, errors_pb2.ErrorCode.Name(answer[0])
    fired = await failpoints.fired(controller, within_s=CALM_S)
    if fired:
        await failpoints.revive(controller)
    await failpoints.nothing_left()
    assert await change.ask(hands, topic, mutation) == answer, "a repeat of the call is answered as the call was"
    await failpoints.nothing_left()
    await change.check(hands, topic)
    return fired


async def killed_twice_at(hands: Hands, change: Change, cut: Cut, successor: Cut, moment: str, topic: str) -> bool:
    """As ``killed_at`` after a step; then whoever carries on is killed at a step of its own, and judge that.

    Returns whether both were killed: a successor may find less to do than the step says.
    """
    failpoints, mutation = hands.failpoints, mutation_id()
    await change.prepare(hands, topic)
    first = await failpoints.controller()
    (second,) = [name for name in failpoints.elections if name != first]
    failpoints.arm(first, f"action=kill when=after {cut.words.format(topic=topic)}")
    failpoints.arm(second, f"action=kill when={moment} {successor.words.format(topic=topic)}")
    asking = asyncio.ensure_future(within(change.ask(hands, topic, mutation), 4 * DEADLINE_S))
    try:
        assert await failpoints.fired(first), cut
        # It stands by again, and is who carries on when the second is gone.
        await failpoints.revive(first)
        answer = await asking
    finally:
        asking.cancel()
    assert answer[0] == _NONE, errors_pb2.ErrorCode.Name(answer[0])
    await failpoints.nothing_left()
    failpoints.disarm(second)
    both = not failpoints.running(second)
    if both:
        await failpoints.revive(second)
    await failpoints.nothing_left()
    assert await change.ask(hands, topic, mutation) == answer, "a repeat of the call is answered as the call was"
    await failpoints.nothing_left()
    await change.check(hands, topic)
    return both
