"""Outages as the producer sees them, as spans."""

import pytest
from regnum_client.cluster.view import LeaderTerm
from regnum_client.producer.outage_watch import PAUSES_MAX, Acknowledgement, OutageWatch, places_in
from regnum_client.records import TopicPartition
from regnum_model.ids import BrokerId, LeaderEpoch, TopicId
from regnum_telemetry import conventions
from regnum_telemetry.tracing import Kind, NoTracer
from regnum_testing.span_recorder import SpanRecorder

PARTITION = TopicPartition("orders", 3)
OWN = f"00-{'12' * 16}-{'34' * 8}-01"
OTHERS = f"00-{'56' * 16}-{'78' * 8}-01"
CAUSE = f"00-{'ab' * 16}-{'cd' * 8}-01"


def term(leader: int, epoch: int) -> LeaderTerm:
    return LeaderTerm(topic_id=TopicId("T" * 22), leader=BrokerId(leader), epoch=LeaderEpoch(epoch))


def acknowledged(at_ms: int, held: LeaderTerm, *, tries: int = 1, cause: str = "") -> Acknowledgement:
    return Acknowledgement(
        at_unix_nano=at_ms * 1_000_000,
        term=held,
        offset=at_ms,
        records=2,
        tries=tries,
        waited_s=0.004,
        sent_unix_nano=(at_ms - 3) * 1_000_000,
        cause=cause,
    )


@pytest.fixture
def recorder() -> SpanRecorder:
    return SpanRecorder()


@pytest.fixture
def watch(recorder: SpanRecorder) -> OutageWatch:
    return OutageWatch(recorder)


def test_an_outage_reaches_from_acknowledgement_to_acknowledgement(watch: OutageWatch, recorder: SpanRecorder) -> None:
    watch.acknowledged(PARTITION, acknowledged(100, term(1, 0)))
    assert not watch.is_recovering(PARTITION, term(1, 0))
    watch.failed(PARTITION, "BROKER_NOT_AVAILABLE", 110_000_000)
    watch.failed(PARTITION, "NOT_LEADER_OR_FOLLOWER", 120_000_000)
    assert watch.is_recovering(PARTITION, term(2, 1))
    watch.learned(PARTITION, term(1, 0), 90_000_000)
    for at_ms in (200, 210):
        watch.learned(PARTITION, term(2, 1), at_ms * 1_000_000)
    trouble = watch.recovered(PARTITION)
    assert watch.has_moved(PARTITION, term(2, 1))
    send_id = watch.send_id()
    now = acknowledged(350, term(2, 1), tries=3, cause=CAUSE)._replace(send_id=send_id)
    watch.acknowledged(PARTITION, now, trouble, (OWN, OTHERS))
    assert not watch.is_recovering(PARTITION, term(2, 1))
    outage = recorder.one(conventions.OUTAGE)
    assert (outage.begin_unix_nano, outage.end_unix_nano) == (100_000_000, 350_000_000)
    # It lies in the failover's trace, below its root.
    assert outage.context.split("-")[1] == "ab" * 16
    assert outage.parent == "ab" * 8
    assert outage.links == (CAUSE,)
    told = outage.attributes
    assert told[conventions.FAILOVER_TRACE_ID] == "ab" * 16
    assert told[conventions.LAST_ACK_UNIX_NANO] == 100_000_000
    assert (told[conventions.LEARNED_UNIX_NANO], told[conventions.SENT_UNIX_NANO]) == (200_000_000, 347_000_000)
    assert told[conventions.FIRST_ACK_UNIX_NANO] == 350_000_000
    assert told[conventions.WAITING_SINCE_UNIX_NANO] == 346_000_000
    assert (told[conventions.TOPIC], told[conventions.PARTITION]) == ("orders", "3")
    assert (told[conventions.LAST_ACK_LEADER_EPOCH], told[conventions.LEADER_EPOCH]) == (0, 1)
    assert told[conventions.ERROR_TYPE] == "NOT_LEADER_OR_FOLLOWER"
    assert told[conventions.RETRIED] is True
    learn = recorder.one(conventions.LEARN)
    assert (learn.begin_unix_nano, learn.end_unix_nano) == (110_000_000, 200_000_000)
    send = recorder.one("send orders")
    assert (send.begin_unix_nano, send.end_unix_nano, send.kind) == (347_000_000, 350_000_000, Kind.CLIENT)
    assert send.links == (OWN, OTHERS), "the records' own spans lie in other traces"
    assert conventions.ERROR_TYPE not in send.attributes, "this call did not fail"
    assert {learn.parent, send.parent} == {outage.span_id}
    assert send.span_id == send_id, "the leader was told it"
    assert recorder.named(conventions.BACKOFF) == []
    retried = recorder.one(conventions.RETRIED_SEND)
    assert retried.attributes[conventions.ATTEMPTS] == 3
    assert (retried.begin_unix_nano, retried.end_unix_nano) == (346_000_000, 350_000_000)


def test_a_change_of_leader_that_hurt_nobody_says_so(watch: OutageWatch, recorder: SpanRecorder) -> None:
    watch.acknowledged(PARTITION, acknowledged(100, term(1, 0)))
    assert watch.is_recovering(PARTITION, term(2, 1))
    watch.acknowledged(PARTITION, acknowledged(900, term(2, 1), cause=CAUSE))
    assert recorder.one(conventions.OUTAGE).attributes[conventions.RETRIED] is False
    assert recorder.named(conventions.RETRIED_SEND) == []


def test_trouble_under_the_same_leader_is_not_blamed_on_what_once_made_it(
    watch: OutageWatch, recorder: SpanRecorder
) -> None:
    watch.acknowledged(PARTITION, acknowledged(100, term(2, 1)))
    watch.failed(PARTITION, "REQUEST_TIMED_OUT", 200_000_000)
    trouble = watch.recovered(PARTITION)
    watch.acknowledged(PARTITION, acknowledged(700, term(2, 1), tries=2, cause=CAUSE), trouble)
    outage = recorder.one(conventions.OUTAGE)
    assert outage.parent == ""
    assert outage.links == ()
    assert conventions.FAILOVER_TRACE_ID not in outage.attributes


def test_a_producer_that_begins_within_an_outage_knows_no_beginning(watch: OutageWatch, recorder: SpanRecorder) -> None:
    watch.failed(PARTITION, "LEADER_NOT_AVAILABLE", 50_000_000)
    watch.acknowledged(PARTITION, acknowledged(100, term(1, 0), tries=2), watch.recovered(PARTITION))
    assert recorder.named(conventions.OUTAGE) == []


def test_calm_makes_no_spans_and_partitions_are_apart(watch: OutageWatch, recorder: SpanRecorder) -> None:
    other = replace_partition(4)
    for at_ms in (100, 200, 300):
        watch.acknowledged(PARTITION, acknowledged(at_ms, term(1, 0)))
        watch.acknowledged(other, acknowledged(at_ms, term(2, 7)))
    assert recorder.spans == []
    watch.failed(other, "NOT_LEADER_OR_FOLLOWER", 400_000_000)
    assert not watch.is_recovering(PARTITION, term(1, 0))


def replace_partition(number: int) -> TopicPartition:
    return TopicPartition(PARTITION.topic, number)


def test_without_a_tracer_it_is_off() -> None:
    assert not OutageWatch(NoTracer()).enabled


def test_when_another_leadership_was_learned_is_not_told(watch: OutageWatch, recorder: SpanRecorder) -> None:
    watch.acknowledged(PARTITION, acknowledged(100, term(1, 0)))
    watch.learned(PARTITION, term(3, 2), 200_000_000)
    watch.acknowledged(PARTITION, acknowledged(350, term(2, 1)))
    told = recorder.one(conventions.OUTAGE).attributes
    assert conventions.LEARNED_UNIX_NANO not in told


def test_pauses_before_a_batch_is_sent_again_lie_inside(watch: OutageWatch, recorder: SpanRecorder) -> None:
    watch.acknowledged(PARTITION, acknowledged(100, term(1, 0)))
    watch.learned(PARTITION, term(1, 0), 105_000_000, pauses=True)
    for began_ms in (110, 150):
        watch.failed(PARTITION, "NOT_LEADER_OR_FOLLOWER", began_ms * 1_000_000)
        for at_ms in (1, 5):
            watch.learned(PARTITION, term(1, 0), (began_ms + at_ms) * 1_000_000, pauses=True)
        for at_ms in (30, 31):
            watch.learned(PARTITION, term(1, 0), (began_ms + at_ms) * 1_000_000)
    watch.acknowledged(PARTITION, acknowledged(200, term(1, 0), tries=3), watch.recovered(PARTITION))
    outage = recorder.one(conventions.OUTAGE)
    pauses = recorder.named(conventions.BACKOFF)
    told = [(pause.begin_unix_nano // 1_000_000, (pause.end_unix_nano or 0) // 1_000_000) for pause in pauses]
    assert told == [(111, 140), (151, 180)]
    assert {pause.parent for pause in pauses} == {outage.span_id}
    assert recorder.named(conventions.LEARN) == [], "it knew the leader all the time"


def test_a_long_outage_has_so_many_pauses_and_no_more(watch: OutageWatch, recorder: SpanRecorder) -> None:
    watch.acknowledged(PARTITION, acknowledged(100, term(1, 0)))
    watch.failed(PARTITION, "NOT_ENOUGH_REPLICAS", 101)
    for number in range(PAUSES_MAX + 3):
        watch.learned(PARTITION, term(1, 0), 1_000 + 10 * number, pauses=True)
        watch.learned(PARTITION, term(1, 0), 1_005 + 10 * number)
    watch.acknowledged(PARTITION, acknowledged(200, term(1, 0), tries=40), watch.recovered(PARTITION))
    pauses = recorder.named(conventions.BACKOFF)
    assert len(pauses) == PAUSES_MAX
    assert pauses[-1].end_unix_nano == 1_005 + 10 * (PAUSES_MAX + 2)


def test_records_say_in_their_headers_where_they_were_made() -> None:
    headers = [("k", b"v"), ("traceparent", OWN.encode()), ("traceparent", b"none"), ("traceparent", None)]
    assert places_in(headers) == (OWN,)


def test_a_wait_for_a_replica_under_a_leader_that_stayed_is_an_outage(
    watch: OutageWatch, recorder: SpanRecorder
) -> None:
    held = term(1, 0)
    watch.acknowledged(PARTITION, acknowledged(100, held, cause=CAUSE))
    watch.acknowledged(PARTITION, acknowledged(400, held)._replace(isr_change=CAUSE))
    outage = recorder.one(conventions.OUTAGE)
    assert (outage.begin_unix_nano, outage.end_unix_nano, outage.parent) == (100_000_000, 400_000_000, "ab" * 8)
    told = outage.attributes
    assert told[conventions.LAST_ACK_LEADER_EPOCH] == told[conventions.LEADER_EPOCH] == 0
    assert told[conventions.RETRIED] is False
    # Others that the same change freed came at once after it.
    watch.acknowledged(PARTITION, acknowledged(401, held)._replace(isr_change=CAUSE))
    watch.acknowledged(PARTITION, acknowledged(402, held))
    assert len(recorder.named(conventions.OUTAGE)) == 1
