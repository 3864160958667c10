"""What is read of the controller's orders, and what is shared by those that say the same."""

import pytest
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import types_pb2
from regnum_broker.cluster.orders.reading import SHARED_MAX, OrderReader


def message(
    partition: int = 0, *, topic: str = "t", isr: tuple[int, ...] = (1, 2), log_id: str = "log", epoch: int = 3
) -> control_pb2.LeaderAndIsrPartition:
    """As it comes over the wire: nothing in it is the same object as in another."""
    made = control_pb2.LeaderAndIsrPartition(
        topic=topic,
        topic_id="T" * 22,
        state=types_pb2.PartitionState(partition=partition, leader=1, leader_epoch=epoch, isr=isr, replicas=[1, 2]),
        members=[control_pb2.Member(broker_id=id, broker_epoch=10 * id, log_id=log_id) for id in (1, 2)],
    )
    return control_pb2.LeaderAndIsrPartition.FromString(made.SerializeToString())


def test_partitions_share_what_they_repeat() -> None:
    reader = OrderReader()
    one, other = reader.read(message(0)), reader.read(message(1))
    assert one is not None
    assert other is not None
    assert one.topic is other.topic
    assert one.key.topic_id is other.key.topic_id is other.state.topic_id
    assert one.state.isr is other.state.isr
    assert one.replicas is other.replicas
    assert one.state.members is other.state.members


def test_another_log_of_a_member_is_not_taken_for_the_one_before() -> None:
    reader = OrderReader()
    first, second = reader.read(message(log_id="log")), reader.read(message(log_id="other log"))
    assert first is not None
    assert second is not None
    assert {member.log_id for member in first.state.members.values()} == {"log"}
    assert {member.log_id for member in second.state.members.values()} == {"other log"}


@pytest.mark.parametrize("wrong", [message(isr=()), message(isr=(1, 3)), message(topic="a/b"), message(epoch=-1)])
def test_what_contradicts_itself_is_refused_each_time(wrong: control_pb2.LeaderAndIsrPartition) -> None:
    reader = OrderReader()
    assert [reader.read(wrong), reader.read(message()) is not None, reader.read(wrong)] == [None, True, None]


def test_what_is_kept_to_be_shared_is_bounded() -> None:
    reader = OrderReader()
    for number in range(2 * SHARED_MAX):
        assert reader.read(message(topic=f"t{number}")) is not None
    assert len(reader._topics) <= SHARED_MAX
