"""What a partition costs in the controller's memory: the picture, and the messages that are kept for brokers."""

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Final

import pytest
from regnum.replication.v1 import control_pb2
from regnum_election.decisions.cluster import Broker, Cluster, HeldState, Partition, Topic
from regnum_election.dispatch.control_requests import ControlRequests
from regnum_election.dispatch.outbox import PARTITIONS_PER_MESSAGE, StatesCall
from regnum_election.reign.reign import Reign
from regnum_model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ElectionId,
    LeaderEpoch,
    LogId,
    Registration,
    TopicId,
)
from regnum_model.nodes import Address, LeaderAndIsr, Membership, TopicNode

PARTITIONS: Final = 4_000
BYTES_MAX: Final = 2_048
"""For one partition."""

MEMBERS: Final = {
    BrokerId(id): Membership(broker_epoch=BrokerEpoch(10**9 + id), log_id=LogId(f"log-of-{id}".ljust(22, "x")))
    for id in range(1, 10)
}


def topics(partitions: int) -> Iterator[tuple[Topic, dict[int, Partition]]]:
    """As read from a store: nothing is shared but what decoding shares."""
    for number in range(PARTITIONS // partitions):
        id = TopicId(f"{number:022d}")
        replicas = {one: tuple(BrokerId(1 + (number + one + k) % 9) for k in range(3)) for one in range(partitions)}
        node = TopicNode.decode(TopicNode(topic_id=id, partitions=replicas).encode())
        members: dict[int, Partition] = {}
        for one, assigned in node.partitions.items():
            state = LeaderAndIsr(
                topic_id=id,
                leader=assigned[0],
                leader_epoch=LeaderEpoch(0),
                isr=assigned,
                elr=(),
                members={broker: MEMBERS[broker] for broker in assigned},
                controller_epoch=ControllerEpoch(1),
            )
            held = HeldState(state=LeaderAndIsr.decode(state.encode()), version=0)
            members[one] = Partition(replicas=assigned, held=held)
        topic = Topic(name=f"a-topic-{number}", id=id, version=0, partitions=tuple(sorted(members)), creation_id=number)
        yield topic, members


def broker(id: BrokerId) -> Broker:
    """One that the states know."""
    address = Address(host="127.0.0.1", port=1)
    return Broker(
        id=id,
        epoch=MEMBERS[id].broker_epoch,
        registration=Registration(0),
        node_version=0,
        rack=None,
        log_ids=frozenset(),
        client=address,
        internal=address,
    )


def remember_messages(book: ControlRequests, picture: Cluster) -> None:
    for id in MEMBERS:
        keys = tuple(picture.of_broker(id))
        for start in range(0, len(keys), PARTITIONS_PER_MESSAGE):
            some = keys[start : start + PARTITIONS_PER_MESSAGE]
            call = StatesCall(keys=some, marks=(), init=False, part=0, parts=1)
            request, told = book.leader_and_isr(picture, broker(id), call)
            message = control_pb2.LeaderAndIsrRequest.FromString(request)
            assert len(told) == len(message.partitions) == len(some)


@pytest.mark.parametrize("partitions", [4, 1_000])
def test_a_partition_costs_the_controller_two_kilobytes_at_most(partitions: int) -> None:
    book = ControlRequests(Reign(controller_id=ElectionId(1), epoch=ControllerEpoch(1), epoch_version=0))
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        picture = Cluster().with_topics(topics(partitions))
        remember_messages(book, picture)
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used / PARTITIONS <= BYTES_MAX
    # Message objects live in memory of their own, which no trace shows: what is kept must be bytes.
    assert all(isinstance(data, bytes) for *_, data in book._built.values())


def test_states_of_the_same_replicas_share_them() -> None:
    (_, members), *_ = topics(1_000)
    first, second = members[0].held, members[9].held
    assert first is not None
    assert second is not None
    assert first.state.isr is second.state.isr
    assert first.state.members is second.state.members


def test_a_member_that_is_no_number_is_not_taken_for_one_that_was_read_before() -> None:
    """A cache takes True for 1."""
    state = LeaderAndIsr(
        topic_id=TopicId("t" * 22),
        leader=BrokerId(1),
        leader_epoch=LeaderEpoch(0),
        isr=(BrokerId(1),),
        elr=(),
        members={BrokerId(1): Membership(broker_epoch=BrokerEpoch(1), log_id=LogId("log"))},
        controller_epoch=ControllerEpoch(1),
    )
    data = state.encode()
    assert LeaderAndIsr.decode(data) == state.kept() == state
    for wrong in (b"[true,", b"[1.0,", b'["1",'):
        with pytest.raises(ValueError, match="broker epoch"):
            LeaderAndIsr.decode(data.replace(b"[1,", wrong))
