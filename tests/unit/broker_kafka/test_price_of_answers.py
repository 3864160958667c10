"""What a few bytes may have a broker answer: what is named again is not told again, and answers are paid for.

| attack | shown by |
|---|---|
| a group named again and again | test_a_group_that_is_named_twice_is_refused_at_both_doors |
| groups of a thousand members without subscriptions | test_names_of_members_count...; ..._hold_no_loop |
| a committed offset asked for again and again | test_an_offset_is_told_once...; ..._is_refused_by_a_coordinator |
| a filter of quotas that names one kind again and again | test_a_kind_of_quotas_that_is_named_twice_is_refused |
| lists of all that the cluster has, on many connections | test_lists_of_all_that_there_is_are_paid_for... |
| all topics, of which the caller may be told few or none | test_all_topics_cost_what_the_caller_may_be_told_of |
| a page of very many topics | test_a_page_of_very_many_topics_holds_no_loop |
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map
from regnum.broker.v1 import group_pb2
from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.groups.calls import GroupCalls
from regnum_broker.groups.decisions.offsets import OffsetLimits
from regnum_broker.kafka.addresses import Addresses
from regnum_broker.kafka.admin import Admin
from regnum_broker.kafka.administration.acls import AclAdministration
from regnum_broker.kafka.administration.configs import ConfigAdministration
from regnum_broker.kafka.administration.groups import DESCRIBED_BYTES, MEMBER_BYTES, GroupAdministration
from regnum_broker.kafka.administration.partitions import PartitionAdministration
from regnum_broker.kafka.administration.topic_partitions import TopicPartitions
from regnum_broker.kafka.administration.users import UserAdministration
from regnum_broker.kafka.context import Context
from regnum_broker.kafka.fetch_sessions import ConnectionSession, Sessions
from regnum_broker.kafka.groups import Groups
from regnum_broker.servicers.group import GroupServicer
from regnum_broker.servicers.metadata import MetadataServicer
from regnum_broker.serving.metadata_cache import MetadataCache, TopicView
from regnum_kafka_wire.frames import Head
from regnum_kafka_wire.gen.describe_acls_request import DescribeAclsRequest
from regnum_kafka_wire.gen.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from regnum_kafka_wire.gen.describe_groups_request import DescribeGroupsRequest
from regnum_kafka_wire.gen.describe_topic_partitions_request import Cursor, DescribeTopicPartitionsRequest
from regnum_kafka_wire.gen.list_config_resources_request import ListConfigResourcesRequest
from regnum_kafka_wire.gen.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from regnum_kafka_wire.gen.metadata_request import MetadataRequest
from regnum_kafka_wire.gen.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from regnum_model.access import Operation, ResourceType
from regnum_model.acls.bindings import ANY_HOST, Entry, PatternType, Permission, ResourcePattern
from regnum_model.acls.index import AclIndex
from regnum_model.principals import Principal
from regnum_model.shares import Shares
from regnum_service.access.acls.authorizer import AclAuthorizer
from regnum_service.access.authorization import EVERYBODY, Authorizer
from regnum_service.access.identity import Caller, calling
from regnum_service.errors import RegnumError
from regnum_service.limits.answers import Answers
from regnum_service.limits.budget import Budget
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import HeldBytes, Purpose
from regnum_testing.clock import FakeClock
from regnum_testing.group_partition import LIMITS, GroupPartition, OneShard
from regnum_testing.held_loop import HeldLoop, run_measured

MIB = 1024 * 1024
INVALID_REQUEST = errors_pb2.ERROR_CODE_INVALID_REQUEST


def context(key: int, version: int) -> Context:
    head = Head(key=key, version=version, correlation_id=1, client_id="c", end=0)
    call = Call(peer="ipv4:10.0.0.1:1", client_id="c")
    return Context(call, head, ConnectionSession(Sessions(), None), FakeClock())  # type: ignore[arg-type]


@contextmanager
def paid(total_max: int = 1024 * MIB) -> Iterator[HeldBytes]:
    """What answers that are made in there take of the memory of clients."""
    held = HeldBytes(Shares(total_max=total_max, connection_max=total_max))
    call = Call(peer="ipv4:10.0.0.1:1")
    Answers(Budget(held, FakeClock())).begin("kafka", call)
    yield held
    call.leave()


async def refused(answer: Awaitable[Any]) -> Any:
    with pytest.raises(RegnumError) as caught:
        await answer
    return caught.value.code


# Groups.


class Described:
    """GroupService: every group has a thousand members of these names."""

    def __init__(self, name: str = "c" * 36) -> None:
        member = group_pb2.GroupMember(member_id=name, client_id=name, client_host="ipv4:10.0.0.1:1")
        self._members = [member] * 1_000
        self.asked = 0

    async def DescribeGroups(self, request: Any, _context: Any) -> group_pb2.DescribeGroupsResponse:  # noqa: N802
        self.asked += len(request.group_ids)
        groups = [group_pb2.GroupDescription(group_id=id, members=self._members) for id in request.group_ids]
        # (What it costs to make them is the other door's.)
        await asyncio.sleep(0)
        return group_pb2.DescribeGroupsResponse(groups=groups)


def names(count: int) -> list[str]:
    return [f"g{number}" for number in range(count)]


async def test_a_group_that_is_named_twice_is_refused_at_both_doors() -> None:
    groups = Described()
    door = GroupAdministration(groups=groups, authorizer=EVERYBODY)
    # (Behind as many as the other door is asked for in one call.)
    again = DescribeGroupsRequest(groups=[*names(100), "g0"])
    assert await refused(door.describe_groups(again, context(15, 5))) == INVALID_REQUEST
    assert groups.asked == 0
    servicer = GroupServicer(coordinator=None, calls=None, clock=FakeClock())  # type: ignore[arg-type]
    request = group_pb2.DescribeGroupsRequest(group_ids=["a", "b", "a"])
    assert await refused(servicer.DescribeGroups(request, None)) == INVALID_REQUEST


async def test_names_of_members_count_in_an_answer_about_groups_and_are_paid_for() -> None:
    name = "n" * 250
    door = GroupAdministration(groups=Described(name), authorizer=EVERYBODY)
    with paid() as held:
        answer = await door.describe_groups(DescribeGroupsRequest(groups=names(60)), context(15, 5))
        told = [one for one in answer.groups if not one.error_code]
        member_bytes = MEMBER_BYTES + 2 * len(name)
        assert 20 < len(told) <= DESCRIBED_BYTES // (1_000 * member_bytes)
        assert {one.error_code for one in answer.groups[len(told) :]} == {errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE}
        assert held.total >= len(told) * 1_000 * member_bytes


@pytest.mark.alone
def test_many_members_of_many_groups_hold_no_loop() -> None:
    async def scenario(held: HeldLoop) -> None:
        door = GroupAdministration(groups=Described(), authorizer=EVERYBODY)
        with held.measuring("DescribeGroups"):
            answer = await door.describe_groups(DescribeGroupsRequest(groups=names(40)), context(15, 5))
        assert sum(len(one.members) for one in answer.groups) == 40_000

    run_measured(scenario).assert_free()


class Offsets:
    """GroupService: everything asked for was committed."""

    async def OffsetFetch(self, request: Any, _context: Any) -> group_pb2.OffsetFetchResponse:  # noqa: N802 - gRPC's name
        answers = [
            group_pb2.FetchedOffset(topic=one.topic, partition=one.partition, offset=7, metadata="n" * 4_096)
            for one in request.partitions
        ]
        return group_pb2.OffsetFetchResponse(offsets=answers)


@pytest.mark.parametrize("version", [7, 8])
async def test_an_offset_is_told_once_to_a_client_of_kafka(version: int) -> None:
    door = Groups(groups=Offsets(), addresses=SimpleNamespace(id_of=lambda _: bytes(16)))  # type: ignore[arg-type]
    often = [1, 0, 1, 1]
    if version == 7:
        asked = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", often)] * 2)
        topics: Any = (await door.committed(asked, context(9, version))).topics
    else:
        named = OffsetFetchRequestTopics(name="t", partition_indexes=often)
        group = OffsetFetchRequestGroup(group_id="g", topics=[named] * 2)
        (told,) = (await door.committed(OffsetFetchRequest(groups=[group]), context(9, version))).groups
        topics = told.topics
    assert [(topic.name, [one.partition_index for one in topic.partitions]) for topic in topics] == [("t", [1, 0])]


async def test_a_partition_that_is_named_twice_is_refused_by_a_coordinator() -> None:
    partition = GroupPartition()
    await partition.shard.begin()
    coordinator: Any = OneShard(partition.shard)
    calls = GroupCalls(coordinator, clock=partition.clock, limits=LIMITS, offset_limits=OffsetLimits())
    servicer = GroupServicer(coordinator=coordinator, calls=calls, clock=partition.clock)
    places = [group_pb2.OffsetToFetch(topic="t", partition=number) for number in (0, 1, 0)]
    request = group_pb2.OffsetFetchRequest(group_id="g", partitions=places)
    assert await refused(servicer.OffsetFetch(request, None)) == INVALID_REQUEST
    del request.partitions[2]
    assert len((await servicer.OffsetFetch(request, None)).offsets) == 2


# What the controller has.


async def test_a_kind_of_quotas_that_is_named_twice_is_refused() -> None:
    # (No controller is asked.)
    door = UserAdministration(controller=None, authorizer=EVERYBODY)  # type: ignore[arg-type]
    kinds = [ComponentData(entity_type=kind, match_type=2) for kind in ("user", "client-id", "user")]
    assert await refused(door.quotas(DescribeClientQuotasRequest(components=kinds), context(48, 1))) == INVALID_REQUEST


PAGES = 3


class Controller:
    """AdminService: tells so many of everything, in pages of a thousand."""

    def check_gate(self) -> None:
        """It is here."""

    async def pass_on(self, name: str, request: Any, answer: Any, _context: Any) -> Any:
        page = int(request.page_token or 0) + 1
        told = answer(next_page_token=str(page) if page < PAGES else "")
        for number in range(1_000):
            if name == "DescribeAcls":
                told.acls.add(principal="User:alice", resource_name=f"t{number}")
            elif name == "DescribeClientQuotas":
                told.quotas.add(entity={"user": {"name": f"u{number}"}}, values={"producer_byte_rate": 1.0})
            else:
                told.reassignments.add(topic=f"t{page}-{number}", target=[1, 2, 3])
        return told


def lists(cache: MetadataCache) -> dict[str, tuple[int, Callable[[], Awaitable[Any]]]]:
    """Calls that tell 3,000 of something, or a page of 2,000, and about what that takes."""
    controller: Any = Controller()
    configs = ConfigAdministration(controller=controller, cache=cache, addresses=Addresses(cache), authorizer=EVERYBODY)
    acls = AclAdministration(controller=controller)
    users = UserAdministration(controller=controller, authorizer=EVERYBODY)
    partitions = PartitionAdministration(controller=controller, cache=cache, authorizer=EVERYBODY)
    anything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    return {
        "topics": (2_000 * 400, lambda: pages_of(cache).describe(DescribeTopicPartitionsRequest(), context(75, 0))),
        "configs": (3_000 * 64, lambda: configs.list_resources(ListConfigResourcesRequest(), context(74, 1))),
        "acls": (3_000 * 200, lambda: acls.describe(DescribeAclsRequest(**anything), context(29, 3))),
        "quotas": (3_000 * 500, lambda: users.quotas(DescribeClientQuotasRequest(), context(48, 1))),
        "moves": (
            3_000 * 400,
            lambda: partitions.reassignments(ListPartitionReassignmentsRequest(topics=None), context(46, 0)),
        ),
    }


@pytest.mark.parametrize("what", ["topics", "configs", "acls", "quotas", "moves"])
async def test_lists_of_all_that_there_is_are_paid_for_before_they_are_whole(what: str) -> None:
    size, ask = lists(cache_of({f"t{number}": 1 for number in range(3_000)}))[what]
    with paid() as held:
        await ask()
        assert held.total >= size
    with paid(MIB) as held:
        held.hold("others", held.part_of(Purpose.CONTROL), Purpose.CONTROL)
        assert await refused(ask()) == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED


# Topics.


class CountedIndex(AclIndex):
    """An index that says how often it decided."""

    decided = 0

    def decide(self, *what: object) -> object:  # type: ignore[override]
        self.decided += 1
        return super().decide(*what)  # type: ignore[arg-type]


def alice_may_read(*patterns: ResourcePattern) -> tuple[CountedIndex, AclAuthorizer]:
    index = CountedIndex()
    entry = Entry(principal="User:alice", host=ANY_HOST, operation=Operation.READ, permission=Permission.ALLOW)
    for pattern in patterns:
        index.put(pattern, [entry])
    authorizer = AclAuthorizer(index)
    authorizer.read()
    return index, authorizer


def pattern(name: str, kind: PatternType = PatternType.LITERAL) -> ResourcePattern:
    return ResourcePattern(type=ResourceType.TOPIC, name=name, pattern=kind)


def cache_of(partitions: dict[str, int]) -> MetadataCache:
    cache = MetadataCache(Fence(), lambda *_: None)
    states = [types_pb2.PartitionState(partition=number, leader=1) for number in range(3)]
    cache.topics = Map(
        {
            name: TopicView(name=name, topic_id="A" * 22, partitions=Map(enumerate(states[:count])))
            for name, count in partitions.items()
        }
    )
    return cache


class CountedAddresses(Addresses):
    made = 0

    @property
    def brokers(self) -> Any:
        self.made += 1
        return super().brokers


LEADERS: Any = SimpleNamespace(state_of=lambda view, number: view.partitions[number])


def pages_of(cache: MetadataCache, authorizer: Authorizer = EVERYBODY) -> TopicPartitions:
    return TopicPartitions(cache=cache, leaders=LEADERS, addresses=CountedAddresses(cache), authorizer=authorizer)


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ([], []),
        ([pattern("t7"), pattern("missing")], ["t7"]),
        ([pattern("t4-", PatternType.PREFIXED), pattern("t7")], ["t4-a", "t4-b", "t7"]),
    ],
)
async def test_all_topics_cost_what_the_caller_may_be_told_of(rules: list[ResourcePattern], told: list[str]) -> None:
    index, authorizer = alice_may_read(*rules)
    cache = cache_of({**{f"t{number}": 1 for number in range(3_000)}, "t4-b": 1, "t4-a": 1})
    admin = Admin(
        cache=cache,
        leaders=LEADERS,
        addresses=Addresses(cache),
        authorizer=authorizer,
        controller=None,  # type: ignore[arg-type]
        creation=None,  # type: ignore[arg-type]
    )
    with calling(Caller(principal=Principal("alice"), host="10.0.0.1")):
        pages = await pages_of(cache, authorizer).describe(DescribeTopicPartitionsRequest(), context(75, 0))
        metadata = await admin.metadata(MetadataRequest(topics=None), context(3, 9))
        encoded = await MetadataServicer(cache, LEADERS, authorizer).GetMetadata(
            metadata_pb2.GetMetadataRequest(), None
        )
    assert [one.name for one in pages.topics] == told
    assert [one.name for one in metadata.topics] == told
    assert [one.topic.name for one in metadata_pb2.GetMetadataResponse.FromString(encoded).topics] == told
    assert index.decided < 100


async def test_pages_of_all_topics_end_anywhere_and_go_on_there() -> None:
    door = pages_of(cache_of({"c": 1, "a": 2, "b": 3}))
    found, cursor = [], None
    for _ in range(3):
        page = await door.describe(
            DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor), context(75, 0)
        )
        found.append([(topic.name, [one.partition_index for one in topic.partitions]) for topic in page.topics])
        following = page.next_cursor
        cursor = None if following is None else Cursor(following.topic_name, following.partition_index)
    assert found == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2]), ("c", [0])]]
    assert cursor is None
    gone = await door.describe(DescribeTopicPartitionsRequest(cursor=Cursor("ab", 2)), context(75, 0))
    assert [(topic.name, len(topic.partitions)) for topic in gone.topics] == [("b", 3), ("c", 1)]


@pytest.mark.alone
def test_a_page_of_very_many_topics_holds_no_loop() -> None:
    # (As they come out of a map, in no order.)
    cache = cache_of({f"t{number * 7_919 % 200_000:06d}": 1 for number in range(200_000)})

    async def scenario(held: HeldLoop) -> None:
        door = pages_of(cache)
        with held.measuring("DescribeTopicPartitions"):
            page = await door.describe(DescribeTopicPartitionsRequest(), context(75, 0))
        assert [one.name for one in page.topics] == [f"t{number:06d}" for number in range(2_000)]
        assert door._addresses.made == 1  # type: ignore[attr-defined]

    run_measured(scenario).assert_free()
