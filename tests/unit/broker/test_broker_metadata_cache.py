"""Metadata changes are intervals (safety rules S17 and S18)."""

import asyncio

import pytest
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.identity import Identity
from regnum_broker.replication.replicas import Replicas
from regnum_broker.serving.metadata_cache import SLICE, MetadataCache
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, Registration
from regnum_model.nodes import Address

NONE = errors_pb2.ERROR_CODE_NONE


class Receiver:
    """A cache and one stream to it."""

    def __init__(self, *, broker_epoch: int = 10) -> None:
        self.fence = Fence()
        self.fence.registered(Identity(broker_epoch=BrokerEpoch(broker_epoch), registration=Registration(0)))
        self.replicas = Replicas(BrokerId(1))
        self.changed_leaders: list[tuple[str, int]] = []
        """Partitions, with their leaders as the cache has them when it tells of the change."""
        self.cache = MetadataCache(self.fence, self.replicas.learn_listeners, self._note_leaders)
        self._parts: list[control_pb2.UpdateMetadataRequest] = []

    def _note_leaders(self, topic: types_pb2.TopicState) -> None:
        for state in topic.partitions:
            if not state.removed:
                known = self.cache.topics[topic.name].partitions
                self.changed_leaders.append((topic.name, known[state.partition].leader))

    async def give(
        self,
        from_: int,
        to: int,
        *topics: types_pb2.TopicState,
        epoch: int = 1,
        parts: int = 1,
        top: int = 10,
        base: tuple[int, int] = (0, 0),
        brokers: tuple[int, ...] = (2,),
        gone: tuple[int, ...] = (),
    ) -> tuple[int, int] | None:
        request = control_pb2.UpdateMetadataRequest(
            controller_epoch=epoch,
            from_version=from_,
            to_version=to,
            base_epoch=base[0],
            base_version=base[1],
            parts=parts,
            max_broker_epoch=top,
            cluster_id="c",
            all_brokers=from_ == 0 or base != (0, 0),
            brokers=[types_pb2.Broker(id=id, internal=types_pb2.Endpoint(host="h", port=id)) for id in brokers],
            removed_brokers=gone,
            topics=topics,
        )
        return await self.hand(request)

    async def more(self, *topics: types_pb2.TopicState) -> tuple[int, int] | None:
        return await self.hand(control_pb2.UpdateMetadataRequest(topics=topics))

    async def hand(self, request: control_pb2.UpdateMetadataRequest) -> tuple[int, int] | None:
        answer = await self.cache.take(request, self._parts)
        return None if answer is None else (answer.version, answer.error_code)

    @property
    def brokers(self) -> list[int]:
        return [broker.id for broker in self.cache.brokers]


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
    assert await receiver.give(5, 6, epoch=2) == (5, errors_pb2.ERROR_CODE_INVALID_REQUEST)
    assert receiver.cache.version == before
    await receiver.give(0, 6, epoch=2)
    assert receiver.cache.version > before


async def test_whoever_leads_hears_of_other_leaders_when_the_picture_can_name_them() -> None:
    receiver = Receiver()
    await receiver.give(0, 5, topic("a", (0, 1), (1, 2)))
    assert receiver.changed_leaders == [], "a full picture comes with a full set of orders"
    await receiver.give(5, 7, topic("a", (1, 3)), parts=2)
    await receiver.more(topic("b", (0, 2)))
    assert receiver.changed_leaders == [("a", 3), ("b", 2)]
    await receiver.give(4, 5, topic("a", (1, 2)))
    assert len(receiver.changed_leaders) == 2, "old news"


async def test_a_full_picture_then_changes() -> None:
    receiver = Receiver()
    assert await receiver.give(0, 5, topic("a", (0, 1), (1, 2))) == (5, NONE)
    assert await receiver.give(5, 6, topic("a", (1, 3)), topic("b", (0, 1), id="b")) == (6, NONE)
    assert [state.leader for state in receiver.cache.topics["a"].partitions.values()] == [1, 3]
    assert receiver.cache.knows("b", 0)
    assert not receiver.cache.knows("b", 1)
    assert receiver.replicas.address_of(BrokerId(2)) == Address(host="h", port=2)


async def test_names_by_id_are_those_of_the_same_picture() -> None:
    receiver = Receiver()

    def names() -> dict[str, str]:
        found = dict(receiver.cache.names_by_id)
        assert found == {view.topic_id: name for name, view in receiver.cache.topics.items()}
        return found

    await receiver.give(0, 5, topic("a", (0, 1), id="1"), topic("b", (0, 1), id="2"))
    assert names() == {"1": "a", "2": "b"}
    before = receiver.cache.names_by_id
    await receiver.give(5, 6, topic("a", (0, 2), id="1"), brokers=(3,))
    assert receiver.cache.names_by_id == before
    await receiver.give(6, 7, topic("a", (0, 2), id="3"), topic("c", (0, 1), id="4"))
    assert names() == {"3": "a", "2": "b", "4": "c"}
    await receiver.give(7, 8, topic("a", id="1", deleted=True), topic("b", deleted=True, id="2"))
    assert names() == {"3": "a", "4": "c"}, "an earlier life of a topic takes nothing with it"
    await receiver.give(0, 9, topic("d", (0, 1), id="5"), epoch=2)
    assert names() == {"5": "d"}


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
    assert await receiver.give(5, 6, epoch=2) == (5, errors_pb2.ERROR_CODE_INVALID_REQUEST)
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


@pytest.mark.parametrize(("meant_for", "taken"), [(10, False), (11, True), (12, True)])
async def test_below_protocol_2_the_own_epoch_decides_whatever_the_highest_is(meant_for: int, taken: bool) -> None:
    receiver = Receiver(broker_epoch=11)
    request = control_pb2.UpdateMetadataRequest(
        controller_epoch=1, to_version=5, parts=1, max_broker_epoch=-1, broker_epoch=meant_for, all_brokers=True
    )
    answer = (5, NONE) if taken else (0, errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH)
    assert await receiver.hand(request) == answer


async def test_parts_are_applied_together() -> None:
    receiver = Receiver()
    assert await receiver.give(0, 5, topic("a", (0, 1)), parts=2) is None
    assert not receiver.cache.knows("a", 0)
    assert await receiver.more(topic("b", (0, 1))) == (5, NONE)
    assert receiver.cache.knows("a", 0)
    assert receiver.cache.knows("b", 0)


async def test_parts_of_different_changes_do_not_mix() -> None:
    receiver = Receiver()
    assert await receiver.give(0, 5, topic("a", (0, 1)), parts=2) is None
    assert await receiver.give(0, 6, topic("b", (0, 1)), parts=2) is None
    assert await receiver.more(topic("c", (0, 1))) == (6, NONE)
    assert sorted(receiver.cache.topics) == ["b", "c"]


async def test_each_change_has_one_answer_also_when_its_first_part_is_refused() -> None:
    """A second answer would be taken for that to the next change."""
    receiver = Receiver(broker_epoch=11)
    assert await receiver.give(0, 5, topic("a", (0, 1)), parts=3, top=10) == (
        0,
        errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH,
    )
    assert await receiver.more(topic("b", (0, 1))) is None
    assert await receiver.more(topic("c", (0, 1))) is None
    assert not receiver.cache.topics


async def test_a_change_is_refused_when_a_newer_controller_speaks_before_its_last_part() -> None:
    receiver = Receiver()
    await receiver.give(0, 5, topic("a", (0, 1)))
    assert await receiver.give(5, 6, topic("a", (0, 2)), parts=2) is None
    receiver.fence.check_controller(ControllerEpoch(2))
    assert await receiver.more(topic("b", (0, 1))) == (5, errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH)
    assert receiver.cache.version == (1 << 32) + 5
    assert not receiver.cache.knows("b", 0)


async def test_a_change_is_refused_when_a_newer_controller_speaks_while_it_is_applied() -> None:
    receiver = Receiver()
    many = [topic(f"t{number}", (0, 1)) for number in range(3 * SLICE)]
    applying = asyncio.ensure_future(receiver.give(0, 5, *many))
    # One turn: a slice of it is applied, and the others are not.
    await asyncio.sleep(0)
    assert not applying.done()
    receiver.fence.check_controller(ControllerEpoch(2))
    assert await applying == (0, errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH)
    assert not receiver.cache.topics


async def test_brokers_are_changed_as_topics_are() -> None:
    receiver = Receiver()
    await receiver.give(0, 5, brokers=(1, 2, 3))
    await receiver.give(5, 6, brokers=())
    assert receiver.brokers == [1, 2, 3]
    await receiver.give(6, 7, brokers=(4,), gone=(2, 9))
    assert receiver.brokers == [1, 3, 4]
    await receiver.give(0, 8, brokers=(3,))
    assert receiver.brokers == [3]


@pytest.mark.parametrize(
    ("own", "takes"),
    [((1, 4), False), ((1, 5), True), ((1, 7), True), ((1, 8), False), ((2, 6), False), ((3, 9), False)],
)
async def test_a_reign_that_goes_on_from_the_one_before(own: tuple[int, int], takes: bool) -> None:
    """It is not for who is beyond what the new controller knew of, or not as far, or of any other epoch."""
    receiver = Receiver()
    await receiver.give(0, own[1], topic("a", (0, 1)), epoch=own[0])
    answer = await receiver.give(5, 10, topic("b", (0, 1), id="b"), epoch=3, base=(1, 7), brokers=(6,))
    if takes:
        assert answer == (10, NONE)
        assert sorted(receiver.cache.topics) == ["a", "b"]
        assert receiver.brokers == [6]
        assert receiver.cache.version == (3 << 32) + 10
    else:
        assert answer == (own[1], errors_pb2.ERROR_CODE_INVALID_REQUEST)
        assert receiver.cache.version == (own[0] << 32) + own[1]


async def test_a_deletion_is_of_one_life_of_a_topic() -> None:
    receiver = Receiver()
    await receiver.give(0, 5, topic("a", (0, 1), id="second"))
    await receiver.give(5, 6, topic("a", id="first", deleted=True))
    assert receiver.cache.knows("a", 0)
    await receiver.give(6, 7, topic("a", id="second", deleted=True))
    assert not receiver.cache.knows("a", 0)


async def test_a_deletion_that_names_no_life_is_of_the_present_one() -> None:
    """Metadata processes take it the same way: both know the same topics."""
    receiver = Receiver()
    await receiver.give(0, 5, topic("a", (0, 1), id="second"))
    await receiver.give(5, 6, topic("a", id="", deleted=True))
    assert not receiver.cache.knows("a", 0)


async def test_another_life_of_a_topic_keeps_nothing_of_the_former() -> None:
    receiver = Receiver()
    await receiver.give(0, 5, topic("a", (0, 1), (1, 1), id="first"))
    await receiver.give(5, 6, topic("a", (0, 2), id="second"))
    assert list(receiver.cache.topics["a"].partitions) == [0]


async def test_a_removed_partition_is_known_no_more() -> None:
    receiver = Receiver()
    states = [types_pb2.PartitionState(partition=number, leader=2) for number in range(2)]
    await receiver.give(0, 1, types_pb2.TopicState(name="t", topic_id="a", partitions=states))
    removed = types_pb2.PartitionState(partition=1, leader=-1, removed=True)
    await receiver.give(1, 2, types_pb2.TopicState(name="t", topic_id="a", partitions=[removed]))
    assert receiver.cache.knows("t", 0)
    assert not receiver.cache.knows("t", 1)


async def test_what_came_true_in_the_turn_in_which_the_time_was_over_is_true() -> None:
    receiver = Receiver()
    true: list[str] = []
    # The time is over at once: the next turn of the loop ends the wait, and the one behind it says what came of it.
    waiting = asyncio.create_task(receiver.cache.until(lambda: bool(true), 0.0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    true.append("came")
    assert await waiting
    assert not await receiver.cache.until(lambda: False, 0.0)
