"""Outages as the consumer sees them, as spans."""

import pytest
from regnum_client.cluster.view import LeaderTerm
from regnum_client.consumer.cursor import Cursor
from regnum_client.consumer.fetching.outages import ConsumerOutages
from regnum_client.consumer.fetching.polls import Poll
from regnum_client.records import TopicPartition
from regnum_model.ids import BrokerId, LeaderEpoch, TopicId
from regnum_model.nodes import Address
from regnum_telemetry import conventions
from regnum_telemetry.tracing import Kind, NoTracer
from regnum_testing.span_recorder import SpanRecorder

PARTITION = TopicPartition("orders", 3)
CAUSE = f"00-{'ab' * 16}-{'cd' * 8}-01"


def term(leader: int, epoch: int) -> LeaderTerm:
    return LeaderTerm(topic_id=TopicId("T" * 22), leader=BrokerId(leader), epoch=LeaderEpoch(epoch))


def poll(asked: LeaderTerm) -> Poll:
    cursor = Cursor(PARTITION, TopicId("T" * 22), 0)
    return Poll(asked.leader, Address(host="h", port=1), [(cursor, 0, asked)], look_s=0.0, share_bytes=1)


@pytest.fixture
def recorder() -> SpanRecorder:
    return SpanRecorder()


@pytest.fixture
def outages(recorder: SpanRecorder) -> ConsumerOutages:
    return ConsumerOutages(recorder)


def test_it_reaches_from_the_last_answer_of_one_leader_to_the_first_of_the_next(
    outages: ConsumerOutages, recorder: SpanRecorder
) -> None:
    for at in (100, 200):
        outages.answered(PARTITION, term(1, 0), at, "")
    outages.failed(PARTITION, "BROKER_NOT_AVAILABLE")
    outages.failed(PARTITION, "NOT_LEADER_OR_FOLLOWER")
    for at in (300, 400):
        asked = poll(term(2, 1))
        assert outages.any_recovering(asked, at)
    (span_id,) = asked.span_ids.values()
    for at in (900, 950):
        outages.answered(PARTITION, term(2, 1), at, CAUSE, 400, span_id)
    assert not outages.any_recovering(poll(term(2, 1)), 960)
    outage = recorder.one(conventions.CONSUMER_OUTAGE)
    assert (outage.begin_unix_nano, outage.end_unix_nano) == (200, 900)
    # In the trace of what made the leader, below its root, with the id that the leader was told.
    assert (outage.trace_id, outage.parent, outage.links) == ("ab" * 16, "ab" * 8, (CAUSE,))
    assert outage.span_id == span_id
    told = outage.attributes
    assert (told[conventions.LEARNED_UNIX_NANO], told[conventions.SENT_UNIX_NANO]) == (300, 400)
    assert outage.kind is Kind.CONSUMER
    assert (told[conventions.TOPIC], told[conventions.PARTITION]) == ("orders", "3")
    assert (told[conventions.BROKER], told[conventions.LEADER_EPOCH]) == (2, 1)
    assert (told[conventions.RETRIED], told[conventions.ERROR_TYPE]) == (True, "NOT_LEADER_OR_FOLLOWER")
    assert told[conventions.FAILOVER_TRACE_ID] == "ab" * 16


def test_trouble_under_the_same_leader_is_an_outage_of_its_own(
    outages: ConsumerOutages, recorder: SpanRecorder
) -> None:
    outages.answered(PARTITION, term(1, 0), 100, "")
    outages.failed(PARTITION, "REQUEST_TIMED_OUT")
    stays = poll(term(1, 0))
    assert outages.any_recovering(stays, 200)
    assert stays.span_ids == {}, "its leader recorded nothing of a change"
    outages.answered(PARTITION, term(1, 0), 300, CAUSE)
    outage = recorder.one(conventions.CONSUMER_OUTAGE)
    assert (outage.parent, outage.links) == ("", ())
    outages.answered(PARTITION, term(2, 1), 400, "")
    moved = recorder.named(conventions.CONSUMER_OUTAGE)[1]
    assert (moved.begin_unix_nano, moved.attributes[conventions.RETRIED]) == (300, False)


def test_what_is_not_read_has_no_outage(outages: ConsumerOutages, recorder: SpanRecorder) -> None:
    outages.failed(PARTITION, "LEADER_NOT_AVAILABLE")
    outages.answered(PARTITION, term(1, 0), 100, "")
    outages.forget(PARTITION)
    outages.answered(PARTITION, term(2, 1), 500, CAUSE)
    assert recorder.spans == []


def test_without_a_tracer_it_is_off() -> None:
    assert not ConsumerOutages(NoTracer()).enabled
