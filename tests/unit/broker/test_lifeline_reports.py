"""What a broker reports over its lifeline, in which batches, and how often."""

from regnum.election.v1 import controller_pb2
from regnum_broker.cluster.reports import (
    ACKNOWLEDGEMENTS_MAX,
    BROKEN_MAX,
    REPORTS_MAX,
    UNCOMMITTED_MAX,
    FirstAcknowledgement,
    Reports,
)
from regnum_broker.disk_room import DiskRoom
from regnum_broker.replication.isr_writer import WrittenIsr
from regnum_broker.replication.sessions.breaks import Break, Breaks
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, LogId, PartitionKey, TopicId
from regnum_model.nodes import LeaderAndIsr, Membership


def key(partition: int) -> PartitionKey:
    return PartitionKey(TopicId("t" * 22), partition)


def written(partition: int, version: int) -> WrittenIsr:
    return WrittenIsr(key=key(partition), version=version, isr=(BrokerId(1),), node=b"node %d" % version)


def next_message(reports: Reports) -> controller_pb2.BrokerLifelineRequest:
    message = controller_pb2.BrokerLifelineRequest()
    reports.put_into(message)
    return message


def offline_in(message: controller_pb2.BrokerLifelineRequest) -> list[int]:
    return [item.partition for item in message.offline_replicas]


def test_a_batch_goes_out_once_on_a_stream_and_again_on_the_next_until_it_is_acknowledged() -> None:
    reports = Reports(lambda: ())
    reports.begin_stream()
    reports.add_isr(written(0, 3))
    first = next_message(reports)
    assert [(item.partition, item.version, item.node) for item in first.isr_reports] == [(0, 3, b"node 3")]
    assert next_message(reports).report_number == 0
    reports.begin_stream()
    assert next_message(reports) == first
    reports.acknowledge(first.report_number)
    reports.begin_stream()
    assert next_message(reports).report_number == 0


def test_what_comes_while_a_batch_is_under_way_is_the_next_batch() -> None:
    reports = Reports(lambda: ())
    reports.begin_stream()
    reports.add_isr(written(0, 3))
    first = next_message(reports)
    reports.add_isr(written(0, 4))
    reports.add_isr(written(0, 5))
    reports.add_offline([key(7)])
    assert next_message(reports).report_number == 0
    assert not reports.has_due
    reports.acknowledge(first.report_number)
    assert reports.has_due
    second = next_message(reports)
    assert second.report_number > first.report_number
    assert [item.version for item in second.isr_reports] == [5]
    assert offline_in(second) == [7]


def test_every_stream_hears_of_all_replicas_that_cannot_be_used() -> None:
    """Another controller, or another registration, knows of none of them."""
    offline = [key(1), key(2)]
    reports = Reports(lambda: offline)
    for _ in range(2):
        reports.begin_stream()
        message = next_message(reports)
        assert offline_in(message) == [1, 2]
        reports.acknowledge(message.report_number)
    offline.remove(key(1))
    reports.begin_stream()
    assert offline_in(next_message(reports)) == [2]


def test_ten_thousand_replicas_of_a_dead_disk_are_reported_in_batches() -> None:
    reports = Reports(lambda: [key(number) for number in range(10_000)])
    reports.begin_stream()
    reported: list[int] = []
    batches = 0
    while reports.has_due:
        message = next_message(reports)
        assert len(message.offline_replicas) <= REPORTS_MAX
        reported += offline_in(message)
        batches += 1
        reports.acknowledge(message.report_number)
    assert reported == list(range(10_000))
    assert batches == 10_000 // REPORTS_MAX


def test_the_disk_and_what_is_not_committed_are_told_when_they_change_and_again_on_every_stream() -> None:
    reports = Reports(lambda: ())
    reports.begin_stream()
    assert not next_message(reports).HasField("log_directory")
    reports.set_disk(DiskRoom(free_bytes=0, size_bytes=9, refuses_because="full"))
    reports.set_uncommitted(frozenset({key(3), key(1)}))
    for _ in range(2):
        said = next_message(reports)
        assert (said.log_directory.free_bytes, said.log_directory.refuses_because) == (0, "full")
        assert [list(topic.partitions) for topic in said.uncommitted.topics] == [[1, 3]]
        assert not next_message(reports).HasField("log_directory")
        reports.begin_stream()
    next_message(reports)
    reports.set_uncommitted(frozenset())
    assert next_message(reports).HasField("uncommitted"), "that none is left is news"
    reports.set_uncommitted(frozenset(map(key, range(UNCOMMITTED_MAX + 5))))
    assert len(next_message(reports).uncommitted.topics[0].partitions) == UNCOMMITTED_MAX


def test_that_callers_are_turned_away_is_told_when_it_changes_and_again_on_every_stream() -> None:
    reports = Reports(lambda: ())
    reports.begin_stream()
    assert not next_message(reports).HasField("listeners")
    reports.set_turns_away("expired")
    for _ in range(2):
        assert next_message(reports).listeners.turn_away_because == "expired"
        assert not next_message(reports).HasField("listeners")
        reports.begin_stream()
    next_message(reports)
    reports.set_turns_away("")
    said = next_message(reports)
    assert said.HasField("listeners"), "that it takes them again is news"
    assert not said.listeners.turn_away_because


def test_broken_connections_are_told_whole_when_they_change_and_again_on_every_stream() -> None:
    reports = Reports(lambda: ())
    reports.begin_stream()
    assert not next_message(reports).HasField("broken_connections")
    reports.set_broken(BrokerId(1), Break(BrokerEpoch(7), 50))
    reports.set_broken(BrokerId(2), Break(BrokerEpoch(9), 60))
    for _ in range(2):
        said = next_message(reports).broken_connections.connections
        assert [(one.broker_id, one.broker_epoch, one.unix_nano) for one in said] == [(1, 7, 50), (2, 9, 60)]
        assert not next_message(reports).HasField("broken_connections")
        # What a dead controller knew, its successor is told.
        reports.begin_stream()
    next_message(reports)
    reports.set_broken(BrokerId(1), None)
    reports.set_broken(BrokerId(2), None)
    message = next_message(reports)
    assert message.HasField("broken_connections"), "that none is left is news"
    assert not message.broken_connections.connections
    for id in range(BROKEN_MAX + 5):
        reports.set_broken(BrokerId(id), Break(BrokerEpoch(1), id))
    said = next_message(reports).broken_connections.connections
    assert [one.broker_id for one in said] == list(range(5, BROKEN_MAX + 5))


def test_first_acknowledgements_are_told_once_and_hold_no_batch_up() -> None:
    reports = Reports(lambda: ())
    reports.begin_stream()
    for number in range(ACKNOWLEDGEMENTS_MAX + 5):
        reports.add_acknowledgement(FirstAcknowledgement(key(number), LeaderEpoch(3), 50 + number))
    assert not reports.has_due
    reports.add_isr(written(0, 3))
    message = next_message(reports)
    assert len(message.isr_reports) == 1
    assert len(message.first_acknowledgements) == ACKNOWLEDGEMENTS_MAX
    first = message.first_acknowledgements[1]
    assert (first.partition, first.leader_epoch, first.unix_nano) == (1, 3, 51)
    reports.begin_stream()
    assert not next_message(reports).first_acknowledgements


def test_a_break_is_told_once_the_stream_had_a_leader_and_taken_back_when_it_answers_again() -> None:
    told: list[tuple[BrokerId, Break | None]] = []
    breaks = Breaks(BrokerId(2), lambda leader, broken: told.append((leader, broken)))
    breaks.answered()
    breaks.broke([], answers=5)
    assert told == [], "nothing is followed there: nothing fails"
    member = Membership(broker_epoch=BrokerEpoch(7), log_id=LogId("log"))
    state = LeaderAndIsr(
        topic_id=TopicId("t" * 22),
        leader=BrokerId(2),
        leader_epoch=LeaderEpoch(0),
        isr=(BrokerId(2),),
        elr=(),
        members={BrokerId(2): member},
        controller_epoch=ControllerEpoch(1),
    )
    breaks.broke([state], answers=0)
    assert told == [], "it was never connected"
    breaks.broke([None, state], answers=1)
    ((leader, broken),) = told
    assert broken is not None
    assert (leader, broken.epoch) == (2, 7)
    breaks.answered()
    breaks.answered()
    assert told[1:] == [(BrokerId(2), None)]
