"""Which partition has a group, and how the internal topic comes to be."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map
from regnum.election.v1 import controller_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.groups.offsets_topic import OffsetsTopic, java_hash, partition_of
from regnum_broker.serving.metadata_cache import TopicView
from regnum_model.ids import BrokerId
from regnum_model.principals import Principal
from regnum_model.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from regnum_service.access.identity import Caller, calling
from regnum_service.errors import RegnumError
from regnum_testing.clock import FakeClock, settle


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("abc", 96_354),
        ("polygenelubricants", -(2**31)),
        ("\u00e9", 233),
        ("\U0001f600", 1_772_899),
    ],
)
def test_the_hash_is_that_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_every_group_has_one_of_the_partitions() -> None:
    assert {partition_of(f"group-{number}", 8) for number in range(1_000)} == set(range(8))
    assert partition_of("polygenelubricants", 8) == 0, "the smallest number has no positive counterpart"


class Cluster:
    """A controller that creates the topic when it is told to, and what metadata then shows."""

    def __init__(self, *, shown: int = 4, code: int = errors_pb2.ERROR_CODE_NONE) -> None:
        self.topics: Map[str, TopicView] = Map()
        self.asked = 0
        self.requests: list[controller_pb2.CreateOffsetsTopicRequest] = []
        self._shown = shown
        self._code = code

    async def call(self, what: Any, *, timeout_s: float) -> controller_pb2.CreateOffsetsTopicResponse:
        await settle(3)
        self.asked += 1
        stub: Any = self
        await what(stub)
        if not self._code:
            self.show()
        return controller_pb2.CreateOffsetsTopicResponse(error_code=self._code, error_message="no")  # type: ignore[arg-type]

    async def CreateOffsetsTopic(  # noqa: N802 - the name in the proto
        self, request: controller_pb2.CreateOffsetsTopicRequest, timeout: float
    ) -> None:
        self.requests.append(request)

    def show(self) -> None:
        partitions = Map({number: types_pb2.PartitionState(partition=number) for number in range(self._shown)})
        names = {request.topic for request in self.requests} or {OFFSETS_TOPIC}
        self.topics = Map({name: TopicView(name=name, topic_id="O" * 22, partitions=partitions) for name in names})


def topic_of(cluster: Cluster, clock: FakeClock, name: str = OFFSETS_TOPIC) -> OffsetsTopic:
    stand_in: Any = cluster
    fence: Any = SimpleNamespace(identity=SimpleNamespace(broker_epoch=7))
    return OffsetsTopic(
        broker=BrokerId(1), partitions=4, cache=stand_in, fence=fence, calls=stand_in, clock=clock, name=name
    )


async def test_a_storm_of_first_calls_asks_once() -> None:
    cluster = Cluster()
    topic = topic_of(cluster, FakeClock())
    views = await asyncio.gather(*(topic.ensure(wait_s=5.0) for _ in range(100)))
    assert {len(view.partitions) for view in views} == {4}
    assert cluster.asked == 1


async def test_a_topic_of_another_shape_has_no_coordinators() -> None:
    cluster, clock = Cluster(shown=3), FakeClock()
    topic = topic_of(cluster, clock)
    asking = asyncio.create_task(topic.ensure(wait_s=1.0))
    await clock.advance(2.0)
    with pytest.raises(RegnumError) as caught:
        await asking
    assert caught.value.code == errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE
    assert "3 partitions" in caught.value.message
    assert topic.view is None


async def test_a_refusal_of_the_controller_is_passed_on_and_asked_again_by_the_next() -> None:
    cluster = Cluster(code=errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR)
    topic = topic_of(cluster, FakeClock())
    for _ in range(2):
        with pytest.raises(RegnumError) as caught:
            await topic.ensure(wait_s=1.0)
        assert caught.value.code == errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE
    assert cluster.asked == 2


async def test_the_client_who_needs_the_topic_is_named_to_the_controller() -> None:
    cluster = Cluster()
    topic = topic_of(cluster, FakeClock(), TRANSACTIONS_TOPIC)
    alice = Caller(principal=Principal("alice", token_authenticated=True), host="10.9.8.7", encrypted=True)
    with calling(alice):
        await topic.ensure(key="payments", wait_s=5.0)
    (request,) = cluster.requests
    assert (request.topic, request.key, request.partitions) == (TRANSACTIONS_TOPIC, "payments", 4)
    assert request.caller == controller_pb2.OriginalCaller(
        principal_type="User",
        principal_name="alice",
        token_authenticated=True,
        client_host="10.9.8.7",
        encrypted=True,
    )


async def test_who_may_not_look_for_a_coordinator_hears_so_and_keeps_nobody_else_from_it() -> None:
    """The refusal is about one client: the next that waits asks for itself."""
    cluster = Cluster(code=errors_pb2.ERROR_CODE_GROUP_AUTHORIZATION_FAILED)
    topic = topic_of(cluster, FakeClock())
    first = asyncio.create_task(topic.ensure(wait_s=5.0))
    second = asyncio.create_task(topic.ensure(wait_s=5.0))
    for waiting in (first, second):
        with pytest.raises(RegnumError) as caught:
            await waiting
        assert caught.value.code == errors_pb2.ERROR_CODE_GROUP_AUTHORIZATION_FAILED
    assert cluster.asked == 2


async def test_whoever_waits_for_the_creation_of_another_waits_no_longer_than_its_own_time() -> None:
    cluster, clock = Cluster(), FakeClock()
    never = asyncio.Event()

    async def silent(_what: Any, *, timeout_s: float) -> None:
        await never.wait()

    cluster.call = silent  # type: ignore[method-assign, assignment]
    topic = topic_of(cluster, clock)
    creating = asyncio.create_task(topic.ensure(wait_s=10.0))
    await settle(3)
    waiting = asyncio.create_task(topic.ensure(wait_s=1.0))
    await clock.advance(2.0)
    with pytest.raises(RegnumError) as caught:
        await waiting
    assert caught.value.code == errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE
    assert not creating.done()
    creating.cancel()
    await asyncio.wait({creating})
    assert creating.cancelled()
