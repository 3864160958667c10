"""The controller's part of a failover's trace."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from regnum_election.reign.events import BrokerDead
from regnum_election.reign.witnesses import Earlier, Sign, Signs
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_election.traces.change_trace import FIRST_ACKNOWLEDGEMENT_S, Beginning, ChangeTrace
from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey, TopicId
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
    await until(lambda: any(span.end_unix_nano for span in recorder.named(conventions.LEADERSHIP_CHANGE)))
    root = recorder.one(conventions.LEADERSHIP_CHANGE)
    told = root.attributes
    assert root.parent == ""
    assert root.begin_unix_nano == noticed
    assert told[conventions.LEGACY_NAME] == conventions.FAILOVER
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
    await until(lambda: any(span.end_unix_nano for span in recorder.named(conventions.LEADERSHIP_CHANGE)))
    root = recorder.one(conventions.LEADERSHIP_CHANGE)
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
    assert recorder.named(conventions.LEADERSHIP_CHANGE) == []


async def test_a_failure_is_linked_to_what_an_earlier_reign_began_for_the_same_broker(recorder: SpanRecorder) -> None:
    cluster = FakeCluster()
    cluster.earlier = (
        Earlier(broker=BrokerId(1), context="00-" + "a" * 32 + "-" + "b" * 16 + "-01"),
        Earlier(broker=BrokerId(2), context="00-" + "c" * 32 + "-" + "d" * 16 + "-01"),
    )
    await _reign_with_topic(cluster)
    cluster.kill(1)
    await until(lambda: any(span.end_unix_nano for span in recorder.named(conventions.LEADERSHIP_CHANGE)))
    assert recorder.one(conventions.LEADERSHIP_CHANGE).links == (cluster.earlier[0].context,)
    await cluster.close()


KEYS = [PartitionKey(TopicId("t"), number) for number in range(3)]
NOTICED = 50_000_000_000


def _trace(
    *, ended: list[float] | None = None, signs: Signs | None = None, kind: str = conventions.KIND_BROKER_FAILURE
) -> ChangeTrace:
    told = [] if ended is None else ended
    failure = kind == conventions.KIND_BROKER_FAILURE
    beginning = Beginning(
        kind=kind,
        noticed=Sign(NOTICED, "lifeline 7"),
        attributes={},
        legacy_name=conventions.FAILOVER if failure else "",
        signs=Signs if failure else None,
    )
    return ChangeTrace(beginning, ended=lambda _name, seconds: told.append(seconds))


def _led(*keys: PartitionKey) -> dict[PartitionKey, LeaderEpoch]:
    return dict.fromkeys(keys, LeaderEpoch(5))


async def test_a_trace_waits_for_those_it_expects_and_ends_once(recorder: SpanRecorder) -> None:
    trace = _trace()
    trace.open()
    trace.expect(["a", "b"], partitions=2)
    trace.acknowledged("c")
    trace.acknowledged("a")
    trace.acknowledged("b")
    # More may be expected until it is sealed.
    assert not trace.done
    trace.seal()
    trace.acknowledged("b")
    assert trace.done
    await trace.wait()
    root = recorder.one(conventions.LEADERSHIP_CHANGE)
    assert root.attributes[conventions.COMPLETE] is True
    assert root.context == trace.context


async def test_a_trace_that_is_not_completed_ends_with_the_wait(recorder: SpanRecorder) -> None:
    trace = _trace()
    trace.open()
    trace.expect(["a"])
    trace.seal()
    waiting = asyncio.create_task(trace.wait())
    # One turn: it waits.
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert recorder.one(conventions.LEADERSHIP_CHANGE).attributes[conventions.COMPLETE] is False


async def test_a_root_ends_with_the_last_first_acknowledgement_and_nothing_waits_for_it(recorder: SpanRecorder) -> None:
    ended: list[float] = []
    trace = _trace(ended=ended)
    trace.open()
    trace.expect_leaders(_led(*KEYS), partitions=3)
    trace.seal()
    now = tracing.now_unix_nano()
    # A report may come before the answer to the order, and one of an earlier leader or another partition is none.
    trace.first_acknowledged(KEYS[0], LeaderEpoch(5), now + 10)
    trace.first_acknowledged(KEYS[1], LeaderEpoch(4), now + 20)
    trace.first_acknowledged(PartitionKey(TopicId("other"), 0), LeaderEpoch(5), now + 30)
    trace.acknowledged(KEYS[0], reports=True)
    trace.acknowledged(KEYS[1], reports=True)
    trace.acknowledged(KEYS[2])
    # The change is over, and timed.
    assert trace.done
    assert len(ended) == 1
    waiting = asyncio.create_task(trace.wait())
    await asyncio.sleep(0)
    assert recorder.named(conventions.LEADERSHIP_CHANGE) == []
    last = tracing.now_unix_nano()
    trace.first_acknowledged(KEYS[1], LeaderEpoch(5), last)
    await waiting
    root = recorder.one(conventions.LEADERSHIP_CHANGE)
    assert root.attributes[conventions.ACKNOWLEDGED_UNIX_NANO] == last
    # Clients have it a little later, and their spans lie within the root.
    assert int(root.end_unix_nano or 0) > last
    assert int(root.attributes[conventions.DISPATCHED_UNIX_NANO]) <= last
    assert root.attributes[conventions.COMPLETE] is True


async def test_a_producer_that_never_comes_back_ends_the_root_with_the_wait(recorder: SpanRecorder) -> None:
    trace = _trace()
    trace.open()
    trace.expect_leaders(_led(KEYS[0]), partitions=1)
    trace.seal()
    trace.acknowledged(KEYS[0], reports=True)
    waiting = asyncio.create_task(trace.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    root = recorder.one(conventions.LEADERSHIP_CHANGE)
    dispatched = int(root.attributes[conventions.DISPATCHED_UNIX_NANO])
    assert root.end_unix_nano == dispatched + round(FIRST_ACKNOWLEDGEMENT_S * 1e9)
    assert conventions.ACKNOWLEDGED_UNIX_NANO not in root.attributes


async def test_what_failed_begins_with_the_first_sign_and_the_opening_record_goes_out_at_once(
    recorder: SpanRecorder,
) -> None:
    known = [Sign(NOTICED - 3_000_000, "follower fetch 2")]
    beginning = Beginning(
        kind=conventions.KIND_BROKER_FAILURE,
        noticed=Sign(NOTICED, "lifeline 7"),
        attributes={conventions.VICTIM: 1},
        signs=lambda: Signs(broken=tuple(known)),
        links=("00-" + "a" * 32 + "-" + "b" * 16 + "-01",),
    )
    trace = ChangeTrace(beginning)
    trace.open()
    opened = recorder.one(conventions.CHANGE_OPENED)
    assert (opened.begin_unix_nano, opened.end_unix_nano, opened.context[:36]) == (NOTICED, NOTICED, trace.context[:36])
    assert opened.attributes[conventions.VICTIM] == 1
    assert opened.attributes[conventions.FAILED_UNIX_NANO] == NOTICED - 3_000_000
    assert opened.links == beginning.links
    # Another process says later that it saw it before; then it is forgotten.
    known[:] = [Sign(NOTICED - 5_000_000, "follower fetch 3")]
    trace.seal()
    known.clear()
    await trace.wait()
    root, undetected = recorder.one(conventions.LEADERSHIP_CHANGE), recorder.one(conventions.UNDETECTED)
    assert root.begin_unix_nano == undetected.begin_unix_nano == NOTICED - 5_000_000
    assert undetected.end_unix_nano == NOTICED
    assert root.attributes[conventions.FAILED_SEEN_BY] == "follower fetch 3"
    assert root.attributes[conventions.NOTICED_UNIX_NANO] == NOTICED


async def test_a_plan_that_moves_nothing_leaves_nothing(recorder: SpanRecorder) -> None:
    trace = _trace(kind=conventions.KIND_BALANCE)
    trace.reached(conventions.DECIDED_UNIX_NANO)
    trace.seal()
    assert trace.done
    assert recorder.spans == []


async def test_a_token_of_a_broker_that_is_gone_is_not_waited_for(recorder: SpanRecorder) -> None:
    trace = _trace()
    trace.open()
    trace.expect([BrokerId(1), BrokerId(2)])
    trace.seal()
    trace.acknowledged(BrokerId(2))
    dispatched = tracing.now_unix_nano()
    assert not trace.done
    trace.gone(BrokerId(1))
    await trace.wait()
    root = recorder.one(conventions.LEADERSHIP_CHANGE)
    assert int(root.attributes[conventions.DISPATCHED_UNIX_NANO]) <= dispatched
    assert root.attributes[conventions.COMPLETE] is True
