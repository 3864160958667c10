"""States in the words of FollowState: what is written is what is read, and what contradicts itself is not believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum.election.v1 import standby_pb2
from regnum_election.standby.states import StateError, StateReader, StateWriter
from regnum_model.ids import NO_LEADER, BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, LogId, TopicId
from regnum_model.nodes import LeaderAndIsr, Membership

TOPIC = TopicId("AAAAAAAAAAAAAAAAAAAAAA")
BROKERS = st.integers(0, 5).map(BrokerId)


@st.composite
def states(draw: st.DrawFn) -> LeaderAndIsr:
    isr = tuple(draw(st.lists(BROKERS, min_size=1, max_size=4, unique=True)))
    elr = tuple(id for id in draw(st.lists(BROKERS, max_size=2, unique=True)) if id not in isr)
    epochs, logs = st.integers(1, 3).map(BrokerEpoch), st.sampled_from([LogId("one"), LogId("two")])
    return LeaderAndIsr(
        topic_id=TOPIC,
        leader=draw(st.sampled_from([*isr, NO_LEADER])),
        leader_epoch=LeaderEpoch(draw(st.integers(0, 2**31 - 1))),
        isr=isr,
        elr=elr,
        members={id: Membership(broker_epoch=draw(epochs), log_id=draw(logs)) for id in (*isr, *elr)},
        controller_epoch=ControllerEpoch(draw(st.integers(0, 2**31 - 1))),
    )


@given(st.lists(st.lists(states(), max_size=5), max_size=4))
def test_states_are_read_as_they_were_written_however_a_change_is_cut_into_parts(
    parts: list[list[LeaderAndIsr]],
) -> None:
    writer, reader = StateWriter(), StateReader()
    reader.begin()
    for some in parts:
        messages = [writer.message(state) for state in some]
        reader.listed(writer.take_unlisted())
        assert [reader.state(TOPIC, message) for message in messages] == some


def _member(id: int) -> standby_pb2.FollowedMember:
    return standby_pb2.FollowedMember(broker_id=id, broker_epoch=1, log_id="log")


@pytest.mark.parametrize(
    "message",
    [
        standby_pb2.FollowedState(leader=1, isr=[], members=[0, 1]),
        standby_pb2.FollowedState(leader=2, isr=[1], members=[0, 1]),
        standby_pb2.FollowedState(leader=1, isr=[1, 2], elr=[2], members=[0, 1]),
        standby_pb2.FollowedState(leader=1, isr=[1, 2], members=[0]),
        standby_pb2.FollowedState(leader=1, isr=[1], elr=[3], members=[0, 1]),
        standby_pb2.FollowedState(leader=1, isr=[1], members=[0, 2]),
        standby_pb2.FollowedState(leader=1, isr=[1], members=[-1]),
    ],
)
def test_what_contradicts_itself_is_no_state(message: standby_pb2.FollowedState) -> None:
    reader = StateReader()
    reader.begin()
    reader.listed([_member(1), _member(2)])
    with pytest.raises(StateError):
        reader.state(TOPIC, message)


def test_a_change_knows_nothing_of_the_list_of_the_one_before() -> None:
    reader = StateReader()
    message = standby_pb2.FollowedState(leader=1, isr=[1], members=[0])
    reader.begin()
    reader.listed([_member(1)])
    reader.state(TOPIC, message)
    reader.begin()
    with pytest.raises(StateError):
        reader.state(TOPIC, message)


def test_what_states_have_in_common_is_one_value() -> None:
    reader = StateReader()
    found = []
    for _ in range(2):
        reader.begin()
        reader.listed([_member(1), _member(2)])
        found.append(reader.state(TOPIC, standby_pb2.FollowedState(leader=1, isr=[1, 2], members=[0, 1])))
    assert found[0].members is found[1].members
    assert found[0].isr is found[1].isr
