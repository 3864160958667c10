"""The controller's part of a failover's trace."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from regnum_election.dispatch.failover_trace import FailoverTrace
from regnum_election.reign.events import BrokerDead
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_telemetry import conventions, tracing
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.span_recorder import SpanRecorder, recorded_spans
from regnum_testing.waiting import DEADLINE_S, until

BOUNDARIES = (
    conventions.DETECTED_UNIX_NANO,
    conventions.FENCED_UNIX_NANO,
    conventions.DECIDED_UNIX_NANO,
    conventions.WRITTEN_UNIX_NANO,
    conventions.DISPATCHED_UNIX_NANO,
)


@pytest.fixture
def recorder() -> Iterator[SpanRecorder]:
    with recorded_spans() as recorder:
        yield recorder


@pytest.fixture
async def cluster(recorder: SpanRecorder) -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def _reign_with_topic(cluster: FakeCluster) -> TopicId:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    assignment = tuple((number, tuple(BrokerId(id) for id in (1, 2, 3))) for number in range(4))
    request = TopicRequest(name="t", partitions=0, replication_factor=None, assignment=assignment, mutation=None)
    (outcome,) = (
        await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    ).outcomes
    assert isinstance(outcome, Created)
    return outcome.topic_id


def _death(cluster: FakeCluster, *, noticed_unix_nano: int) -> BrokerDead:
    dead = cluster.brokers[BrokerId(1)]
    dead.down = True
    return BrokerDead(
        broker=dead.id,
        epoch=dead.epoch,
        registration=dead.registration,
        evidence="test",
        cause=conventions.CAUSE_LIFELINE,
        noticed_unix_nano=noticed_unix_nano,
        heard_unix_nano=noticed_unix_nano - 5,
    )


async def test_a_fenced_leader_leaves_a_whole_trace(cluster: FakeCluster, recorder: SpanRecorder) -> None:
    id = await _reign_with_topic(cluster)
    # A quiet cluster makes no spans: creating topics is not a failover.
    assert recorder.spans == []
    noticed = tracing.now_unix_nano() - 1_000_000
    assert cluster.controller is not None
    cluster.controller.queue.put(_death(cluster, noticed_unix_nano=noticed))
    await until(lambda: cluster.all_told((2, 3), PartitionKey(id, 0), 2))
    await until(lambda: any(span.end_unix_nano for span in recorder.named(conventions.FAILOVER)))
    root = recorder.one(conventions.FAILOVER)
    assert root.parent == ""
    assert root.begin_unix_nano == noticed
    told = root.attributes
    assert told[conventions.VICTIM_KIND] == "broker"
    assert (told[conventions.VICTIM], told[conventions.PARTITIONS], told[conventions.COMPLETE]) == (1, 4, True)
    assert told[conventions.CAUSE] == conventions.CAUSE_LIFELINE
    assert told[conventions.LAST_HEARD_UNIX_NANO] == noticed - 5
    moments = [noticed, *(int(told[name]) for name in BOUNDARIES)]
    assert moments == sorted(moments)
    assert root.end_unix_nano == moments[-1]
    for name in (conventions.DETECTION, conventions.FENCE, conventions.DISPATCH):
        assert recorder.one(name).parent == root.span_id
    fence_write, leaders_write = recorder.named(conventions.STORE_WRITE)
    assert fence_write.parent == recorder.one(conventions.FENCE).span_id
    assert leaders_write.parent == root.span_id
    assert leaders_write.attributes == {conventions.WRITES: 4, conventions.WRITES_REFUSED: 0}
    assert all(span.end_unix_nano is not None for span in recorder.spans)


async def test_a_registration_that_goes_by_itself_is_a_failover_without_a_fence(
    cluster: FakeCluster, recorder: SpanRecorder
) -> None:
    await _reign_with_topic(cluster)
    cluster.kill(1)
    await until(lambda: any(span.end_unix_nano for span in recorder.named(conventions.FAILOVER)))
    root = recorder.one(conventions.FAILOVER)
    assert root.attributes[conventions.CAUSE] == conventions.CAUSE_NODE
    assert conventions.FENCED_UNIX_NANO not in root.attributes
    assert recorder.named(conventions.FENCE) == []


async def test_a_broker_that_led_nothing_and_leaves_is_no_failover(
    cluster: FakeCluster, recorder: SpanRecorder
) -> None:
    await _reign_with_topic(cluster)
    assert cluster.controller is not None
    cluster.kill(3)
    await until(lambda: 3 not in cluster.controller.picture.brokers)
    assert recorder.named(conventions.FAILOVER) == []


async def test_a_trace_waits_for_those_it_expects_and_ends_once(recorder: SpanRecorder) -> None:
    trace = FailoverTrace(conventions.FAILOVER, noticed_unix_nano=1, attributes={})
    trace.expect(["a", "b"], partitions=2)
    trace.acknowledged("c")
    trace.acknowledged("a")
    trace.acknowledged("b")
    # More may be expected until it is sealed.
    assert not trace.done
    trace.seal()
    trace.acknowledged("b")
    assert trace.done
    assert recorder.one(conventions.FAILOVER).attributes[conventions.COMPLETE] is True
    await trace.wait()


async def test_a_trace_that_nobody_completes_ends_with_the_wait(recorder: SpanRecorder) -> None:
    trace = FailoverTrace(conventions.FAILOVER, noticed_unix_nano=tracing.now_unix_nano(), attributes={})
    trace.expect(["a"])
    trace.seal()
    waiting = asyncio.create_task(trace.wait())
    # One turn: it waits.
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert recorder.one(conventions.FAILOVER).attributes[conventions.COMPLETE] is False
    assert trace.done
