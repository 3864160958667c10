"""Which partitions a broker calls busy."""

from regnum.election.v1 import controller_pb2
from regnum_broker.cluster.reports import Reports
from regnum_broker.replication.decisions.activity import BUSY_MAX, LOOKS, observe
from regnum_model.ids import PartitionKey, TopicId


def key(number: int) -> PartitionKey:
    return PartitionKey(TopicId("t"), number)


def test_a_partition_with_a_record_now_and_then_stays_busy() -> None:
    busy: dict[PartitionKey, int] = {}
    for look in range(3 * LOOKS):
        busy = observe(busy, [key(1)] if look % LOOKS == 0 else [])
        assert list(busy) == [key(1)]


def test_one_without_records_is_busy_no_more() -> None:
    busy = observe({}, [key(1)])
    for _ in range(LOOKS - 1):
        busy = observe(busy, ())
        assert busy
    assert observe(busy, ()) == {}


def test_of_thousands_the_first_stay_told() -> None:
    """Others in each report would make each report news."""
    busy = observe({}, map(key, range(5_000)))
    assert list(busy) == [key(number) for number in range(BUSY_MAX)]
    again = observe(busy, map(key, range(5_000, -1, -1)))
    assert again.keys() == busy.keys()


def test_who_becomes_quiet_makes_room_for_others() -> None:
    busy = observe({}, map(key, range(BUSY_MAX)))
    for _ in range(LOOKS):
        busy = observe(busy, map(key, range(1, BUSY_MAX + 1)))
    assert key(0) not in busy
    assert key(BUSY_MAX) in busy


def message_of(reports: Reports) -> controller_pb2.BrokerLifelineRequest:
    message = controller_pb2.BrokerLifelineRequest()
    reports.put_into(message)
    return message


def test_busy_partitions_go_out_once_whole_and_again_on_every_new_stream() -> None:
    reports = Reports(lambda: ())
    reports.begin_stream()
    assert not message_of(reports).HasField("busy")
    reports.set_busy(frozenset({key(2), key(1)}))
    (topic,) = message_of(reports).busy.topics
    assert (topic.topic_id, list(topic.partitions)) == ("t", [1, 2])
    assert not message_of(reports).HasField("busy")
    reports.begin_stream()
    assert message_of(reports).HasField("busy")
    reports.set_busy(frozenset())
    message = message_of(reports)
    assert message.HasField("busy"), "that none is busy any more is news as well"
    assert not message.busy.topics
