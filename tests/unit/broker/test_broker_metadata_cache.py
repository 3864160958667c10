"""Metadata changes are intervals (safety rules S17 and S18)."""

import pytest
from regnum.broker.v1 import control_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.fence import Fence
from regnum_broker.identity import Identity
from regnum_broker.metadata_cache import MetadataCache
from regnum_broker.replicas import Replicas
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, Registration
from regnum_model.nodes import Address

NONE = errors_pb2.ERROR_CODE_NONE


class Receiver:
    """A cache and one stream to it."""

    def __init__(self, *, broker_epoch: int = 10) -> None:
        self.fence = Fence()
        self.fence.registered(Identity(broker_epoch=BrokerEpoch(broker_epoch), registration=Registration(0)))
        self.replicas = Replicas(BrokerId(1))
        self.cache = MetadataCache(self.fence, self.replicas.learn_listeners)
        self._parts: list[control_pb2.UpdateMetadataRequest] = []

    async def give(
        self,
        from_: int,
        to: int,
        *topics: types_pb2.TopicState,
        epoch: int = 1,
        part: int = 0,
        parts: int = 1,
        top: int = 10,
    ) -> tuple[int, int] | None:
        request = control_pb2.UpdateMetadataRequest(
            controller_epoch=epoch,
            from_version=from_,
            to_version=to,
            part=part,
            parts=parts,
            max_broker_epoch=top,
            cluster_id="c",
            brokers=[types_pb2.Broker(id=2, internal=types_pb2.Endpoint(host="h", port=1))] if part == 0 else [],
            topics=topics,
        )
        answer = await self.cache.take(request, self._parts)
        return None if answer is None else (answer.version, answer.error_code)


def topic(name: str, *states: tuple[int, int], id: str = "id", deleted: bool = False) -> types_pb2.TopicState:
    return types_pb2.TopicState(
        name=name,
        topic_id=id,
        deleted=deleted,
        partitions=[types_pb2.PartitionState(partition=number, leader=leader) for number, leader in states],
    )


async def test_clients_are_told_the_version_of_the_picture_that_they_get() -> None:
    """A change under a new controller epoch that cannot be applied does not make the old picture a new one."""
    receiver = Receiver()
    await receiver.give(0, 5, topic("a", (0, 1)))
    before = receiver.cache.version
    assert await receiver.give(5, 6, epoch=2) == (0, errors_pb2.ERROR_CODE_INVALID_REQUEST)
    assert receiver.cache.version == before
    await receiver.give(0, 6, epoch=2)
    assert receiver.cache.version > before


async def test_a_full_picture_then_changes() -> None:
    receiver = Receiver()
    assert await receiver.give(0, 5, topic("a", (0, 1), (1, 2))) == (5, NONE)
    assert await receiver.give(5, 6, topic("a", (1, 3)), topic("b", (0, 1), id="b")) == (6, NONE)
    assert [state.leader for state in receiver.cache.topics["a"].partitions.values()] == [1, 3]
    assert receiver.cache.knows("b", 0)
    assert not receiver.cache.knows("b", 1)
    assert receiver.replicas.address_of(BrokerId(2)) == Address(host="h", port=1)


@pytest.mark.parametrize(
    ("from_", "to", "answer"),
    [
        (3, 8, (8, NONE)),
        (5, 8, (8, NONE)),
        (6, 8, (5, errors_pb2.ERROR_CODE_INVALID_REQUEST)),
        (3, 5, (5, NONE)),
        (3, 4, (5, NONE)),
        (0, 9, (9, NONE)),
    ],
)
async def test_an_interval_applies_where_it_covers_the_own_version(
    from_: int, to: int, answer: tuple[int, int]
) -> None:
    receiver = Receiver()
    await receiver.give(0, 5)
    assert await receiver.give(from_, to) == answer


async def test_nothing_but_a_full_picture_begins() -> None:
    receiver = Receiver()
    assert await receiver.give(1, 2) == (0, errors_pb2.ERROR_CODE_INVALID_REQUEST)


async def test_a_new_reign_begins_with_a_full_picture() -> None:
    receiver = Receiver()
    await receiver.give(0, 5, topic("a", (0, 1)))
    assert await receiver.give(5, 6, epoch=2) == (0, errors_pb2.ERROR_CODE_INVALID_REQUEST)
    assert receiver.cache.knows("a", 0)
    assert await receiver.give(0, 1, topic("z", (0, 1)), epoch=2) == (1, NONE)
    assert not receiver.cache.knows("a", 0)
    assert receiver.cache.version == (2 << 32) + 1


async def test_a_replaced_controller_is_refused() -> None:
    receiver = Receiver()
    receiver.fence.check_controller(ControllerEpoch(3))
    answer = await receiver.give(0, 5, epoch=2)
    assert answer == (0, errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH)


async def test_a_picture_from_before_the_registration_is_refused() -> None:
    receiver = Receiver(broker_epoch=11)
    assert await receiver.give(0, 5, top=10) == (0, errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH)
    assert await receiver.give(0, 5, top=11) == (5, NONE)


async def test_parts_are_applied_together() -> None:
    receiver = Receiver()
    assert await receiver.give(0, 5, topic("a", (0, 1)), part=0, parts=2) is None
    assert not receiver.cache.knows("a", 0)
    assert await receiver.give(0, 5, topic("b", (0, 1)), part=1, parts=2) == (5, NONE)
    assert receiver.cache.knows("a", 0)
    assert receiver.cache.knows("b", 0)


async def test_parts_of_different_changes_do_not_mix() -> None:
    receiver = Receiver()
    assert await receiver.give(0, 5, part=0, parts=2) is None
    assert await receiver.give(0, 6, part=1, parts=2) == (0, errors_pb2.ERROR_CODE_INVALID_REQUEST)


async def test_a_deletion_is_of_one_life_of_a_topic() -> None:
    receiver = Receiver()
    await receiver.give(0, 5, topic("a", (0, 1), id="second"))
    await receiver.give(5, 6, topic("a", id="first", deleted=True))
    assert receiver.cache.knows("a", 0)
    await receiver.give(6, 7, topic("a", id="second", deleted=True))
    assert not receiver.cache.knows("a", 0)


async def test_another_life_of_a_topic_keeps_nothing_of_the_former() -> None:
    receiver = Receiver()
    await receiver.give(0, 5, topic("a", (0, 1), (1, 1), id="first"))
    await receiver.give(5, 6, topic("a", (0, 2), id="second"))
    assert list(receiver.cache.topics["a"].partitions) == [0]
