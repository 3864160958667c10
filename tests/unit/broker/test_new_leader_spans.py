"""What a new leader does and waits for, as spans of the change that made it; a consumer that asks is told which."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_telemetry import conventions, propagation, tracing
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.span_recorder import SpanRecorder, recorded_spans
from regnum_testing.waiting import DEADLINE_S

INSIDE = (
    conventions.LEADER_FETCHERS,
    conventions.LEADER_EPOCHS,
    conventions.LEADER_JOURNAL,
    conventions.LEADER_ROLES,
)


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


async def test_the_inside_of_becoming_leader_lies_below_it_and_fills_it(
    world: BrokerWorld, recorder: SpanRecorder
) -> None:
    cause = recorder.start("cause")
    with tracing.within(cause.context):
        await world.elect(1, [1])
    whole = recorder.one(conventions.BECOME_LEADER)
    steps = [recorder.one(name) for name in INSIDE]
    assert {step.parent for step in steps} == {whole.span_id}
    edges = [whole.begin_unix_nano, *(step.end_unix_nano or 0 for step in steps)]
    assert [step.begin_unix_nano for step in steps] == edges[:-1], "one begins where the other ends"
    assert whole.end_unix_nano is not None
    assert edges[-1] <= whole.end_unix_nano
    await world.elect(1, [1])
    assert len(recorder.named(INSIDE[0])) == 1, "without a cause nothing is written"


async def test_replicas_that_a_new_leader_waits_for_are_spans_of_the_change(
    world: BrokerWorld, recorder: SpanRecorder
) -> None:
    await world.start(2)
    cause = recorder.start("cause")
    with tracing.within(cause.context):
        await world.elect(1, [1, 2])
    for value in (b"a", b"b"):
        await world.produce(1, batch_of(value))
    appended, replicated = recorder.one(conventions.FIRST_APPEND), recorder.one(conventions.HIGH_WATERMARK_WAIT)
    assert (replicated.trace_id, replicated.parent) == (cause.trace_id, appended.parent)
    assert appended.end_unix_nano is not None
    assert replicated.end_unix_nano is not None
    assert appended.end_unix_nano - replicated.begin_unix_nano < 10_000_000
    assert replicated.end_unix_nano > replicated.begin_unix_nano


async def test_the_wait_for_enough_in_sync_replicas_is_recorded_once_and_only_where_a_producer_waited(
    world: BrokerWorld, recorder: SpanRecorder
) -> None:
    await world.start(2)
    cause = recorder.start("cause")
    with tracing.within(cause.context):
        for partition in (0, 1):
            await world.elect(1, [1], replicas=[1, 2], partition=partition, min_insync=2, tell=[1])
    for _ in range(2):
        refused = await world.produce(1, batch_of(b"a"))
        assert refused.error_code == errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS
    assert recorder.named(conventions.MIN_ISR_WAIT) == []
    for partition in (0, 1):
        state = await world.elect(1, [1, 2], epoch=0, partition=partition, min_insync=2)
        assert state.isr == (1, 2)
    waited = recorder.one(conventions.MIN_ISR_WAIT)
    assert (waited.trace_id, waited.attributes[conventions.PARTITION]) == (cause.trace_id, "0")
    assert waited.end_unix_nano is not None
    assert waited.end_unix_nano > waited.begin_unix_nano
    assert (await world.produce(1, batch_of(b"a"))).error_code == errors_pb2.ERROR_CODE_NONE


async def test_a_consumer_that_asks_is_told_the_cause(world: BrokerWorld, recorder: SpanRecorder) -> None:
    cause = recorder.start("cause")
    with tracing.within(cause.context):
        await world.elect(1, [1])
    known, unknown = (log_pb2.FetchPartition(topic=topic, partition=0) for topic in ("t", "none"))
    request = log_pb2.FetchRequest(partitions=[unknown, known])
    call = world.log(1).Fetch(request, timeout=DEADLINE_S, metadata=((propagation.RECOVERING, "1"),))
    await call
    ((partition, told),) = propagation.parse_fetch_causes(await call.trailing_metadata()).items()
    assert partition == (TOPIC_ID, 0)
    assert told.split("-")[1] == cause.trace_id
    assert recorder.named(conventions.FIRST_ANSWER) == []
    known.topic_id = TOPIC_ID
    asked = propagation.render_recovering({(TOPIC_ID, 0): "ab" * 8})
    request = log_pb2.FetchRequest(partitions=[unknown, known])
    await world.log(1).Fetch(request, timeout=DEADLINE_S, metadata=((propagation.RECOVERING, asked),))
    part = recorder.one(conventions.FIRST_ANSWER)
    assert (part.trace_id, part.parent, part.kind) == (cause.trace_id, "ab" * 8, tracing.Kind.SERVER)
    quiet = world.log(1).Fetch(request, timeout=DEADLINE_S)
    await quiet
    assert propagation.parse_fetch_causes(await quiet.trailing_metadata()) == {}
