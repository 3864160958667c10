"""Topics that are made because a client asks for them: which, for whom, and what is told of those that are not."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.kafka.auto_creation import AutoCreation, TopicDefaults
from regnum_broker.servicers.admin import AdminCall, ForwardingServicer, UnreadRequest
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_service.errors import Code, RegnumError
from regnum_service.limits.call import Call
from regnum_testing.waiting import until

CALL = Call(peer="ipv4:10.0.0.1:1", client_id="c")


class World:
    """A controller that says of each topic what a test wants, and the broker's picture."""

    def __init__(self, *, on: bool = True) -> None:
        self.topics: dict[str, object] = {"old": object()}
        self.asked: list[admin_pb2.CreateTopicsRequest] = []
        self.outcomes: dict[str, Code] = {}
        self.failure: Exception | None = None
        self.picture_follows = True
        self.denied: list[str] = []
        """Who may make nothing."""
        self.callers: list[Call] = []
        self.answering = asyncio.Event()
        self.answering.set()
        self.creation = AutoCreation(
            defaults=TopicDefaults(auto_create=on, partitions=3),
            cache=cast("MetadataCache", self),
            forwarding=cast("ForwardingServicer", SimpleNamespace(pass_on=self._pass_on, new_mutation_id=lambda: "m")),
        )

    async def until(self, condition: Any, within_s: float) -> bool:
        assert 0 < within_s <= 1
        return bool(condition())

    async def _pass_on(self, asked: AdminCall, request: UnreadRequest, call: Call) -> bytes:
        assert asked.path.endswith("/CreateTopics")
        self.callers.append(call)
        await self.answering.wait()
        if self.failure is not None:
            raise self.failure
        read = admin_pb2.CreateTopicsRequest.FromString(request.data)
        self.asked.append(read)
        answer = admin_pb2.CreateTopicsResponse()
        for topic in read.topics:
            code = self.outcomes.get(topic.name, errors_pb2.ERROR_CODE_NONE)
            if call.client_id in self.denied:
                code = errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED
            answer.results.add(name=topic.name, error_code=code)
            if not code and self.picture_follows:
                self.topics[topic.name] = object()
        return answer.SerializeToString()


async def test_what_is_not_there_is_made_once_with_the_defaults_and_refused_over_the_quota() -> None:
    world = World()
    await world.creation.make(["new", "old", "new", "other"], CALL)
    (asked,) = world.asked
    assert [(topic.name, topic.partitions, bool(topic.mutation_id)) for topic in asked.topics] == [
        ("new", 3, True),
        ("other", 3, True),
    ]
    assert not any(topic.HasField("replication_factor") for topic in asked.topics), "the cluster's default"
    assert world.callers == [CALL]
    assert (asked.header.client_id, asked.header.api_version >= 6) == ("c", True)
    assert world.topics.keys() == {"old", "new", "other"}


@pytest.mark.parametrize("names", [["old"], ["__consumer_offsets"], ["no name!"], [""], []])
async def test_what_may_not_be_made_is_not_asked_for(names: list[str]) -> None:
    world = World()
    assert await world.creation.make(names, CALL) == {}
    assert world.asked == []


async def test_nothing_is_made_unless_it_is_set() -> None:
    world = World(on=False)
    assert await world.creation.make(["new"], CALL) == {}
    assert world.asked == []


AGAIN, DENIED = errors_pb2.ERROR_CODE_LEADER_NOT_AVAILABLE, errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (errors_pb2.ERROR_CODE_NONE, AGAIN),
        (errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS, AGAIN),
        (errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, AGAIN),
        (errors_pb2.ERROR_CODE_NOT_CONTROLLER, AGAIN),
        (errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED, DENIED),
        (errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED, DENIED),
        (errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR, errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR),
    ],
)
async def test_a_client_asks_again_where_that_may_help(code: Code, told: Code) -> None:
    world = World()
    world.picture_follows, world.outcomes = False, {"new": code}
    assert await world.creation.make(["new"], CALL) == {"new": told}
    if code:
        world.failure = RegnumError(code, "the whole call")
        assert await world.creation.make(["new"], CALL) == {"new": told}


async def test_a_controller_that_does_not_answer_holds_nothing_up() -> None:
    world = World()
    world.failure = TimeoutError()
    assert await world.creation.make(["new"], CALL) == {"new": AGAIN}


def caller(number: int) -> Call:
    return Call(peer=f"ipv4:10.0.0.1:{number}", client_id=f"c{number}")


async def test_of_many_clients_that_ask_for_one_topic_one_makes_it() -> None:
    world = World()
    world.answering.clear()
    asking = [asyncio.ensure_future(world.creation.make(["new"], caller(number))) for number in range(20)]
    await until(lambda: bool(world.callers))
    late = asyncio.ensure_future(world.creation.make(["other", "new"], CALL))
    await until(lambda: CALL in world.callers)
    world.answering.set()
    assert await asyncio.gather(*asking) == [{"new": AGAIN}] * 20
    assert await late == {"new": AGAIN, "other": AGAIN}
    assert [[topic.name for topic in request.topics] for request in world.asked] == [["new"], ["other"]]
    del world.topics["new"]
    assert await world.creation.make(["new"], CALL) == {"new": AGAIN}, "nothing is left of it"
    assert len(world.asked) == 3


@pytest.mark.parametrize("hangs_up", [False, True], ids=["refused", "hangs up"])
async def test_what_one_client_is_refused_or_gives_up_the_next_makes_with_its_own_rights(hangs_up: bool) -> None:
    world = World()
    world.answering.clear()
    first = asyncio.ensure_future(world.creation.make(["new"], caller(0)))
    await until(lambda: bool(world.callers))
    others = [asyncio.ensure_future(world.creation.make(["new"], caller(number))) for number in (1, 2)]
    await asyncio.sleep(0)
    if hangs_up:
        first.cancel()
    else:
        world.denied = ["c0"]
    world.answering.set()
    for told in await asyncio.gather(*others):
        assert set(told.values()) <= {AGAIN}
    assert "new" in world.topics
    assert [call.client_id for call in world.callers] == ["c0", "c1"]
    assert first.cancelled() if hangs_up else await first == {"new": DENIED}
