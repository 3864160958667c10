"""What a broker adds to the trace of a failover, and how it names the cause of its leadership."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from regnum.broker.v1 import log_pb2
from regnum_broker.replication.traces.new_leader import FIRST_ANSWERS_MAX, FirstAnswers
from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey
from regnum_telemetry import conventions, propagation, tracing
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.span_recorder import SpanRecorder, recorded_spans
from regnum_testing.waiting import DEADLINE_S, until


@pytest.fixture
def recorder() -> Iterator[SpanRecorder]:
    with recorded_spans() as recorder:
        yield recorder


@pytest.fixture
async def world(tmp_path: Path, recorder: SpanRecorder) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path)
    await made.begin()
    await made.start(1)
    yield made
    await made.close()


def _request() -> log_pb2.ProduceRequest:
    partition = log_pb2.ProducePartition(topic="t", partition=0, record_batch=batch_of(b"a"))
    return log_pb2.ProduceRequest(acks=log_pb2.ACKS_ALL, timeout_ms=10_000, partitions=[partition])


async def test_a_new_leader_records_its_begin_and_its_first_append_only(
    world: BrokerWorld, recorder: SpanRecorder
) -> None:
    cause = recorder.start("cause")
    with tracing.within(cause.context):
        await world.elect(1, [1])
    assert recorder.clusters == ["cluster"], "it has read which cluster it is of"
    began = recorder.one(conventions.BECOME_LEADER)
    assert began.trace_id == cause.trace_id
    assert began.attributes[conventions.PARTITIONS] == 1
    assert began.attributes[conventions.FIRST] == "t/0", "a change in which no client waits is found by that"
    for _ in range(3):
        await world.produce(1, batch_of(b"a"))
    appended = recorder.one(conventions.FIRST_APPEND)
    assert appended.trace_id == cause.trace_id
    assert appended.attributes[conventions.OFFSET] == 0
    assert appended.attributes[conventions.TOPIC] == "t"


async def test_a_producer_that_asks_is_told_the_cause_every_time(world: BrokerWorld, recorder: SpanRecorder) -> None:
    """An answer may be lost, so the cause is not said once but whenever somebody asks."""
    cause = recorder.start("cause")
    with tracing.within(cause.context):
        await world.elect(1, [1])
    for _ in range(2):
        call = world.log(1).Produce(_request(), timeout=DEADLINE_S, metadata=((propagation.RECOVERING, "1"),))
        await call
        told = propagation.parse_causes(await call.trailing_metadata())
        context = propagation.parse(told[0])
        assert context is not None
        assert context.trace_id == cause.trace_id
    quiet = world.log(1).Produce(_request(), timeout=DEADLINE_S)
    await quiet
    assert propagation.parse_causes(await quiet.trailing_metadata()) == {}


async def test_a_producer_that_names_a_span_has_the_leaders_part_below_it(
    world: BrokerWorld, recorder: SpanRecorder
) -> None:
    cause = recorder.start("cause")
    with tracing.within(cause.context):
        await world.elect(1, [1])
    request = _request()
    request.partitions[0].topic_id = TOPIC_ID
    asked = {(TOPIC_ID, 0): "ab" * 8, (TOPIC_ID, 1): "cd" * 8}
    metadata = ((propagation.RECOVERING, propagation.render_recovering(asked)),)
    await world.log(1).Produce(request, timeout=DEADLINE_S, metadata=metadata)
    part = recorder.one(conventions.FIRST_ANSWER)
    assert (part.trace_id, part.parent, part.kind) == (cause.trace_id, "ab" * 8, tracing.Kind.SERVER)
    assert (part.attributes[conventions.TOPIC], part.attributes[conventions.PARTITION]) == ("t", "0")
    # What is refused is no part of the change.
    request.partitions[0].record_batch = b"none"
    await world.log(1).Produce(request, timeout=DEADLINE_S, metadata=metadata)
    assert recorder.named(conventions.FIRST_ANSWER) == [part]


def test_however_often_clients_say_that_they_come_back_the_spans_of_a_change_are_bounded(
    recorder: SpanRecorder,
) -> None:
    answers = FirstAnswers()
    item = log_pb2.ProducePartition(topic="t", topic_id=TOPIC_ID, partition=0)
    causes = [recorder.start(f"cause {number}").context for number in range(2)]
    for _ in range(FIRST_ANSWERS_MAX + 5):
        answers.record(1, [(item, causes[0]), (item, "")], {(TOPIC_ID, 0): "ab" * 8})
    answers.record(1, [(item, causes[1])], {(TOPIC_ID, 0): "ab" * 8})
    counts = Counter(span.trace_id for span in recorder.named(conventions.FIRST_ANSWER))
    assert sorted(counts.values()) == [1, FIRST_ANSWERS_MAX], "another change has room of its own"


async def test_a_leadership_that_nobody_traced_names_no_cause(world: BrokerWorld, recorder: SpanRecorder) -> None:
    await world.elect(1, [1])
    call = world.log(1).Produce(_request(), timeout=DEADLINE_S, metadata=((propagation.RECOVERING, "1"),))
    await call
    assert propagation.parse_causes(await call.trailing_metadata()) == {}
    assert recorder.spans == []


@pytest.mark.parametrize("traced", [True, False])
async def test_a_new_leader_of_what_was_busy_tells_of_its_first_acknowledgement_once(
    world: BrokerWorld, recorder: SpanRecorder, *, traced: bool
) -> None:
    state = await world.elect(1, [1])
    running = world.brokers[BrokerId(1)]
    first, key = running.broker.replicas.first_acknowledgements, running.partition().key
    told: list[tuple[PartitionKey, LeaderEpoch]] = []
    assert not (await world.send(1, [world.order(state, 0)])).results[0].acknowledgement_follows
    first.report(lambda _: True, lambda key, epoch: told.append((key, epoch)))
    with tracing.within(recorder.start("cause").context if traced else ""):
        state = await world.elect(1, [1], epoch=1)
    # A repeated order is answered alike.
    (again,) = (await world.send(1, [world.order(state, running.partition().version)])).results
    assert again.acknowledgement_follows
    assert told == []
    for number in range(2):
        await world.produce(1, batch_of(b"%d" % number))
    assert told == [(key, LeaderEpoch(1))]
    assert not first.awaited
    # One of a partition without producers.
    first.report(lambda _: False, lambda key, epoch: told.append((key, epoch)))
    with tracing.within(recorder.start("cause").context):
        await world.elect(1, [1], epoch=2)
    await world.produce(1, batch_of(b"c"))
    assert len(told) == 1


async def test_records_that_waited_for_a_replica_name_the_change_that_took_it_out(
    world: BrokerWorld, recorder: SpanRecorder
) -> None:
    await world.start(2)
    await world.elect(1, [1, 2], tell=[1])
    waiting = [asyncio.create_task(world.call(1, _request())) for _ in range(3)]
    partition = world.brokers[BrokerId(1)].partition()

    async def wait() -> bool:
        return len(partition.acks) == len(waiting)

    await until(wait)
    cause = recorder.start("cause")
    with tracing.within(cause.context):
        await world.elect(1, [1], replicas=[1, 2], tell=[1])
    results = [(await task).results[0] for task in waiting]
    for result in results:
        told = propagation.parse(result.isr_change)
        assert told is not None
        assert told.trace_id == cause.trace_id
    # Of what waited there is one span, however many waited; what comes later did not wait for anybody.
    waited = recorder.one(conventions.HIGH_WATERMARK_WAIT)
    assert waited.trace_id == cause.trace_id
    assert waited.begin_unix_nano <= waited.end_unix_nano
    # And one below the span of the first one's client, which finds its id in the answer.
    first, key = min(results, key=lambda one: one.base_offset), partition.key
    answer = recorder.one(conventions.FIRST_ANSWER)
    assert answer.parent == propagation.waiting_id(first.isr_change, key.topic_id, key.partition, first.base_offset)
    assert answer.trace_id == cause.trace_id
    assert answer.begin_unix_nano == waited.begin_unix_nano
    (result,) = (await world.call(1, _request())).results
    assert not result.error_code
    assert not result.isr_change
    assert recorder.named(conventions.BECOME_LEADER) == [], "its leader stayed"


async def test_an_isr_that_frees_nothing_is_named_by_nobody(world: BrokerWorld, recorder: SpanRecorder) -> None:
    await world.start(2)
    await world.elect(1, [1, 2])
    await world.produce(1, batch_of(b"a"))
    with tracing.within(recorder.start("cause").context):
        await world.elect(1, [1], replicas=[1, 2])
    (result,) = (await world.call(1, _request())).results
    assert not result.isr_change
    assert recorder.named(conventions.HIGH_WATERMARK_WAIT) == []
