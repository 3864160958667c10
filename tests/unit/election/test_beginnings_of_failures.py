"""Where the trace of a failure begins, and what is believed of it."""

import pytest
from regnum.election.v1 import controller_pb2
from regnum_election.lifelines.stream import Stream, stream_of
from regnum_election.lifelines.witnessed import ACKNOWLEDGEMENTS_MAX, BROKEN_MAX, signs_of_broker, signs_of_controller
from regnum_election.reign.witnesses import Sign, Signs
from regnum_election.traces.beginning import Notice, failed
from regnum_model.ids import BrokerEpoch, BrokerId, ElectionId
from regnum_testing.election_values import broker

MS = 1_000_000
NOTICED = Sign(100_000 * MS, "lifeline 7")


def _at(before_ms: int, by: str = "follower fetch 2") -> Sign:
    return Sign(NOTICED.unix_nano - before_ms * MS, by)


@pytest.mark.parametrize(
    ("by", "broken", "heard", "first"),
    [
        # The first connection that broke, whichever process saw it.
        (Notice.BROKEN, [_at(3), _at(5, "follower fetch 3")], [], _at(5, "follower fetch 3")),
        # The controller's own broke, and no other: its last sign of life is of no interest.
        (Notice.BROKEN, [], [_at(80, "last sign of life 7")], NOTICED),
        # Never later than the controller noticed.
        (Notice.BROKEN, [_at(-20)], [], NOTICED),
        # Nonsense: longer ago than any session lasts.
        (Notice.BROKEN, [_at(70_000), Sign(0, "follower fetch 9")], [], NOTICED),
        # It was heard long after that connection broke.
        (Notice.BROKEN, [_at(5_000)], [_at(40, "last sign of life 7")], NOTICED),
        # Silence: the last sign of life, whatever broke.
        (Notice.SILENCE, [_at(3)], [_at(90, "last sign of life 7")], _at(90, "last sign of life 7")),
        (Notice.SILENCE, [], [], NOTICED),
        # The store says so: what broke before, or else what was heard last by any.
        (Notice.REGISTRATION, [_at(6_000)], [_at(6_050, "last sign of life 7")], _at(6_000)),
        (Notice.REGISTRATION, [], [_at(6_050, "last sign of life 1"), _at(6_010, "l 2")], _at(6_010, "l 2")),
        (Notice.REGISTRATION, [], [], NOTICED),
    ],
)
def test_a_failure_begins_with_its_first_sign(by: Notice, broken: list[Sign], heard: list[Sign], first: Sign) -> None:
    assert failed(Signs(broken=tuple(broken), heard=tuple(heard)), noticed=NOTICED, by=by) == first


def _stream(id: int, *, epoch: int | None = None, former: controller_pb2.LifelineEnd | None = None) -> Stream:
    hello = controller_pb2.LifelineHello(broker_id=id, broker_epoch=id if epoch is None else epoch, former=former)
    return stream_of(hello)


def _lost(*breaks: tuple[int, int, int]) -> controller_pb2.BrokerLifelineRequest:
    message = controller_pb2.BrokerLifelineRequest()
    message.broken_connections.SetInParent()
    for id, epoch, unix_nano in breaks:
        message.broken_connections.connections.add(broker_id=id, broker_epoch=epoch, unix_nano=unix_nano)
    return message


REGISTERED = {BrokerId(id): broker(id, epoch=id) for id in (2, 3)}


def test_registered_brokers_say_which_connections_broke_of_which_life() -> None:
    streams = [_stream(1), _stream(2), _stream(3), _stream(4)]
    streams[0].heard_unix_nano, streams[0].ended_unix_nano = 70, 80
    for stream, unix_nano in zip(streams[1:], (75, 76, 1), strict=True):
        stream.said.take(_lost((1, 1, unix_nano), (9, 9, 5)), 0.0)
    seen = signs_of_broker(streams, REGISTERED, BrokerId(1), BrokerEpoch(1), "7")
    assert seen.heard == (Sign(70, "last sign of life 7"),)
    # Broker 4 is not registered.
    assert seen.broken == (Sign(80, "lifeline 7"), Sign(75, "follower fetch 2"), Sign(76, "follower fetch 3"))
    # Another life of it.
    assert signs_of_broker(streams, REGISTERED, BrokerId(1), BrokerEpoch(5), "7") == Signs()
    # Each message says all of it; one without says nothing.
    streams[1].said.take(controller_pb2.BrokerLifelineRequest(), 0.0)
    assert streams[1].said.broken
    streams[1].said.take(_lost(), 0.0)
    assert not streams[1].said.broken


def test_brokers_say_how_a_controller_before_ended() -> None:
    end = controller_pb2.LifelineEnd(election_id=1, controller_epoch=4, heard_unix_nano=70, broken_unix_nano=80)
    silent = controller_pb2.LifelineEnd(election_id=1, controller_epoch=4, heard_unix_nano=71)
    other = controller_pb2.LifelineEnd(election_id=2, controller_epoch=3, heard_unix_nano=1, broken_unix_nano=1)
    streams = [_stream(2, former=end), _stream(3, former=silent), _stream(4, former=end), _stream(5, former=other)]
    seen = signs_of_controller(streams, REGISTERED, ElectionId(1))
    assert seen.broken == (Sign(80, "lifeline 2"),)
    assert seen.heard == (Sign(70, "last sign of life 2"), Sign(71, "last sign of life 3"))


def test_a_broker_that_says_too_much_is_not_listened_to() -> None:
    stream = _stream(2)
    stream.said.take(_lost(*((id, 1, 1) for id in range(10 * BROKEN_MAX))), 0.0)
    assert len(stream.said.broken) == BROKEN_MAX
    message = controller_pb2.BrokerLifelineRequest()
    for number in range(ACKNOWLEDGEMENTS_MAX - 1):
        message.first_acknowledgements.add(topic_id="t", partition=number, leader_epoch=3, unix_nano=5)
    told = [stream.said.take(message, now_s) for now_s in (10.0, 10.1, 10.2, 11.0)]
    lengths = [0 if one is None else len(one.acknowledged) for one in told]
    assert lengths == [ACKNOWLEDGEMENTS_MAX - 1, 1, 0, ACKNOWLEDGEMENTS_MAX - 1]
