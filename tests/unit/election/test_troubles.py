"""The book of unhealthy partitions."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from regnum_election.decisions.cluster import HeldState, Partition
from regnum_election.health.troubles import WORST_FIRST, TroubleBook, Troubles, troubles_of
from regnum_model.ids import (
    NO_LEADER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    LogId,
    PartitionKey,
    TopicId,
)
from regnum_model.nodes import LeaderAndIsr, Membership
from regnum_model.reassignment import Reassignment
from regnum_model.topic_filter import Trouble

T = TopicId("t" * 22)
U = TopicId("u" * 22)
REPLICAS = (BrokerId(1), BrokerId(2), BrokerId(3))


def partition(*isr: int, leader: int | None = None, trouble: str | None = None) -> Partition:
    members = {BrokerId(id): Membership(broker_epoch=BrokerEpoch(id), log_id=LogId(f"log-{id}")) for id in isr}
    state = LeaderAndIsr(
        topic_id=T,
        leader=BrokerId(isr[0] if leader is None else leader),
        leader_epoch=LeaderEpoch(0),
        isr=tuple(map(BrokerId, isr)),
        elr=(),
        members=members,
        controller_epoch=ControllerEpoch(1),
    )
    return Partition(replicas=REPLICAS, held=HeldState(state=state, version=0), trouble=trouble)


def what(found: Partition, min_insync: int = 2) -> Troubles:
    return troubles_of(found, lambda: min_insync)


def key(number: int, topic: TopicId = T) -> PartitionKey:
    return PartitionKey(topic, number)


def test_what_is_wrong_with_a_partition() -> None:
    assert what(partition(1, 2, 3)) == ()
    assert what(partition(1, 2)) == (Trouble.UNDER_REPLICATED,)
    assert what(partition(1)) == (Trouble.UNDER_MIN_ISR, Trouble.UNDER_REPLICATED)
    assert what(partition(1), min_insync=1) == (Trouble.UNDER_REPLICATED,)
    assert what(partition(1, leader=NO_LEADER)) == (
        Trouble.OFFLINE,
        Trouble.UNDER_MIN_ISR,
        Trouble.UNDER_REPLICATED,
    )
    assert what(partition(1, 2, 3, leader=NO_LEADER)) == (Trouble.OFFLINE,)
    assert what(Partition(replicas=REPLICAS)) == (Trouble.OFFLINE,)
    assert what(partition(1, 2, 3, trouble="unreadable")) == (Trouble.OFFLINE,)


def test_a_partition_to_which_no_write_can_succeed_is_in_trouble_though_it_is_whole() -> None:
    def refusing(*ids: int, min_insync: int = 2, isr: tuple[int, ...] = (1, 2, 3)) -> Troubles:
        return troubles_of(partition(*isr), lambda: min_insync, refusing=frozenset(map(BrokerId, ids)))

    assert refusing(1) == (Trouble.NOT_WRITABLE,), "its leader"
    assert refusing(2) == (), "enough members are left, and this one leaves as soon as it lacks something"
    assert refusing(2, 3) == (Trouble.NOT_WRITABLE,)
    assert refusing(2, 3, min_insync=1) == ()
    assert refusing(4) == ()
    assert refusing(2, isr=(1, 2)) == (Trouble.NOT_WRITABLE, Trouble.UNDER_REPLICATED)
    assert refusing(1, isr=(1,)) == (Trouble.UNDER_MIN_ISR, Trouble.NOT_WRITABLE, Trouble.UNDER_REPLICATED)
    assert refusing(2, isr=(1,)) == (Trouble.UNDER_MIN_ISR, Trouble.UNDER_REPLICATED), "one trouble says it"
    offline = troubles_of(partition(1, 2, 3, leader=NO_LEADER), lambda: 2, refusing={BrokerId(1), BrokerId(2)})
    assert offline == (Trouble.OFFLINE,)
    assert troubles_of(partition(1, 2, 3), lambda: 2, waits=True) == (Trouble.NOT_WRITABLE,)


def test_a_partition_that_moves_is_whole_with_as_many_in_sync_as_it_had() -> None:
    move = Reassignment(origin=REPLICAS, target=(BrokerId(4), BrokerId(5), BrokerId(6)))
    grown = replace(partition(1, 2, 3), replicas=(*REPLICAS, *move.target), reassignment=move)
    assert what(grown) == ()
    assert what(replace(partition(1, 2), replicas=grown.replicas, reassignment=move)) == (Trouble.UNDER_REPLICATED,)


def test_min_insync_is_not_asked_for_while_a_partition_is_whole() -> None:
    def never() -> int:
        raise AssertionError

    assert troubles_of(partition(1, 2, 3), never) == ()


def test_what_lasts_is_found_once_and_counted_until_it_is_well() -> None:
    book = TroubleBook()
    book.note(key(0), (Trouble.UNDER_REPLICATED,), 10.0)
    book.note(key(1), (Trouble.UNDER_REPLICATED,), 12.0)
    assert book.turn(14.9, 5.0, most=10) == []
    assert book.turn(15.0, 5.0, most=10) == [(Trouble.UNDER_REPLICATED, key(0), 10.0)]
    assert book.turn(15.0, 5.0, most=10) == []
    assert (book.count(Trouble.UNDER_REPLICATED), book.count_long(Trouble.UNDER_REPLICATED)) == (2, 1)
    # Looked at again, and as bad as before: its time goes on.
    book.note(key(1), (Trouble.UNDER_REPLICATED,), 16.0)
    assert book.turn(17.0, 5.0, most=10) == [(Trouble.UNDER_REPLICATED, key(1), 12.0)]
    book.note(key(0), (), 18.0)
    assert (book.count(Trouble.UNDER_REPLICATED), book.count_long(Trouble.UNDER_REPLICATED)) == (1, 1)


def test_each_trouble_has_its_own_time() -> None:
    book = TroubleBook()
    book.note(key(0), (Trouble.UNDER_REPLICATED,), 0.0)
    book.note(key(0), (Trouble.OFFLINE, Trouble.UNDER_REPLICATED), 8.0)
    assert book.turn(10.0, 10.0, most=10) == [(Trouble.UNDER_REPLICATED, key(0), 0.0)]
    assert [one.since_s for one in book.first(1)] == [8.0]


def test_a_turn_takes_no_more_than_it_is_told_and_the_next_one_goes_on() -> None:
    book = TroubleBook()
    for number in range(25):
        book.note(key(number), (Trouble.OFFLINE,), 0.0)
    assert [len(book.turn(100.0, 1.0, most=10)) for _ in range(4)] == [10, 10, 5, 0]


def test_the_worst_are_named_first_and_each_once() -> None:
    book = TroubleBook()
    for number in range(50):
        book.note(key(number), (Trouble.UNDER_REPLICATED,), 0.0)
    book.note(key(7), (Trouble.UNDER_MIN_ISR, Trouble.UNDER_REPLICATED), 5.0)
    book.note(key(9), (Trouble.OFFLINE, Trouble.UNDER_REPLICATED), 6.0)
    named = [one.key for one in book.first(4)]
    assert named == [key(9), key(7), key(0), key(1)]
    assert len(book.first(1_000)) == 50


def test_a_topic_that_is_gone_takes_its_partitions_along() -> None:
    book = TroubleBook()
    for number in range(3):
        book.note(key(number), (Trouble.OFFLINE,), 0.0)
        book.note(key(number, U), (Trouble.OFFLINE,), 0.0)
    book.turn(50.0, 1.0, most=4)
    book.forget(T)
    assert (book.count(Trouble.OFFLINE), set(book.keys)) == (3, {key(number, U) for number in range(3)})
    book.forget(T)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.sets(st.sampled_from(Trouble)).map(lambda found: tuple(one for one in WORST_FIRST if one in found)),
            st.booleans(),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_whatever_comes_the_book_says_what_is_wrong_now(
    steps: list[tuple[int, Troubles, bool, bool]],
) -> None:
    book = TroubleBook()
    now: dict[PartitionKey, dict[Trouble, float]] = {}
    for moment, (number, troubles, forget, turn) in enumerate(steps):
        where = key(number, T if number % 2 else U)
        if forget:
            book.forget(where.topic_id)
            now = {one: found for one, found in now.items() if one.topic_id != where.topic_id}
        else:
            book.note(where, troubles, float(moment))
            before = now.get(where, {})
            now[where] = {trouble: before.get(trouble, float(moment)) for trouble in troubles}
        if turn:
            book.turn(float(moment), 3.0, most=100)
            for trouble in Trouble:
                limit_s = 0.0 if trouble is Trouble.NOT_WRITABLE else 3.0
                lasting = sum(moment - found[trouble] >= limit_s for found in now.values() if trouble in found)
                assert book.count_long(trouble) == lasting
        for trouble in Trouble:
            assert book.count(trouble) == sum(trouble in found for found in now.values())
        assert set(book.keys) == {one for one, found in now.items() if found}
        for one in book.first(100):
            assert one.since_s == now[one.key][one.troubles[0]]
