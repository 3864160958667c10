"""The picture, what changed between two of them, and the transition tables."""

import pytest
from regnum_election.decisions import deletion, partitions
from regnum_election.decisions.cluster import Cluster, HeldState, Partition
from regnum_election.decisions.deletion import ReplicaState
from regnum_election.decisions.partitions import PartitionState
from regnum_election.decisions.registrations import compare
from regnum_model.ids import NO_LEADER, BrokerEpoch, BrokerId, PartitionKey, TopicId
from regnum_testing.election_values import broker, cluster, state, topic
from regnum_testing.election_values import replicas as assigned


def test_index_names_partitions_by_assignment() -> None:
    picture = cluster(1, 2, 3, topics=[topic("a", (1, 2), (2, 3)), topic("b", (3, 1))])
    a, b = picture.names["a"], picture.names["b"]
    assert set(picture.of_broker(BrokerId(1))) == {PartitionKey(a, 0), PartitionKey(b, 0)}
    assert set(picture.of_broker(BrokerId(2))) == {PartitionKey(a, 0), PartitionKey(a, 1)}
    assert set(picture.of_broker(BrokerId(9))) == set()


def test_a_topic_goes_with_its_index_entries() -> None:
    full = cluster(1, 2, topics=[topic("a", (1, 2)), topic("b", (1,))])
    picture = full.without_topics([full.names["a"]])
    assert set(picture.names) == {"b"}
    assert set(picture.of_broker(BrokerId(2))) == set()
    assert set(picture.of_broker(BrokerId(1))) == {PartitionKey(picture.names["b"], 0)}
    assert "a" in full.names, "the earlier picture stays as it was"


def test_two_lives_of_a_name_do_not_mix() -> None:
    first = topic("a", (1,), id="1" * 22)
    second = topic("a", (2,), id="2" * 22)
    picture = Cluster().with_topics([first]).with_topics([second]).without_topics([TopicId("1" * 22)])
    assert picture.names["a"] == "2" * 22
    assert set(picture.of_broker(BrokerId(1))) == set()


def test_an_older_state_never_replaces_a_newer_one() -> None:
    picture = cluster(1, topics=[topic("a", (1,))])
    key = PartitionKey(picture.names["a"], 0)
    newer = picture.with_states({key: HeldState(state=state(1, [1], epoch=9), version=4)})
    assert newer.with_states({key: HeldState(state=state(1, [1], epoch=8), version=3)}) == newer


def test_states_of_unknown_partitions_are_dropped() -> None:
    key = PartitionKey(TopicId("x" * 22), 0)
    assert Cluster().with_states({key: HeldState(state=state(1, [1]), version=0)}) == Cluster()


def test_a_broker_that_returns_is_not_leaving_any_more() -> None:
    picture = cluster(1).with_leaving(BrokerId(1)).with_broker(broker(1, epoch=9))
    assert picture.leaving == frozenset()


# Registrations


def test_compare_sees_gone_new_bounced_and_rewritten() -> None:
    known = {b.id: b for b in (broker(1), broker(2), broker(3), broker(4))}
    rewritten = broker(4, rack="r")
    now = {b.id: b for b in (broker(2), broker(3, epoch=30), rewritten, broker(5))}
    difference = compare(known, now, {})
    assert difference.gone == {1}
    assert [b.id for b in difference.arrived] == [3, 5]
    assert difference.rewritten == (rewritten,)
    assert not difference.is_empty


def test_a_fenced_registration_read_late_is_ignored() -> None:
    fenced = {BrokerId(1): BrokerEpoch(10)}
    assert compare({}, {BrokerId(1): broker(1, epoch=10)}, fenced).is_empty
    assert [b.epoch for b in compare({}, {BrokerId(1): broker(1, epoch=11)}, fenced).arrived] == [11]


def test_a_stale_read_never_takes_a_broker_back() -> None:
    assert compare({BrokerId(1): broker(1, epoch=9)}, {BrokerId(1): broker(1, epoch=8)}, {}).is_empty


# Tables


def partition(**changes: object) -> Partition:
    return Partition(replicas=assigned(1, 2), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        (None, PartitionState.NON_EXISTENT),
        (partition(creating=True), PartitionState.NEW),
        (partition(), PartitionState.OFFLINE),
        (partition(held=HeldState(state=state(1, [1]), version=0)), PartitionState.ONLINE),
        (partition(held=HeldState(state=state(NO_LEADER, [1]), version=0)), PartitionState.OFFLINE),
        (partition(held=HeldState(state=state(1, [1]), version=0), trouble="x"), PartitionState.OFFLINE),
    ],
)
def test_partition_state(picture: Partition | None, expected: PartitionState) -> None:
    assert partitions.state_of(picture) is expected


def test_partition_table_is_kafkas() -> None:
    online, offline, new, gone = (
        PartitionState.ONLINE,
        PartitionState.OFFLINE,
        PartitionState.NEW,
        PartitionState.NON_EXISTENT,
    )
    allowed = {
        (target, source)
        for target in PartitionState
        for source in PartitionState
        if partitions.may_enter(target, source)
    }
    assert allowed == {
        (new, gone),
        (online, new),
        (online, online),
        (online, offline),
        (offline, new),
        (offline, online),
        (offline, offline),
        (gone, offline),
    }


def test_a_replica_is_never_confirmed_without_having_been_told() -> None:
    assert deletion.may_enter(ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_STARTED)
    for source in set(ReplicaState) - {ReplicaState.DELETION_STARTED}:
        assert not deletion.may_enter(ReplicaState.DELETION_SUCCESSFUL, source)
