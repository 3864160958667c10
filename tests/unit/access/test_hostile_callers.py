"""Callers without rights: what they send costs little, and pages of lists name nothing that they may not see."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.broker.v1 import group_pb2, log_pb2
from regnum.groups.v1 import records_pb2
from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.groups.calls import GroupCalls
from regnum_broker.groups.decisions.offsets import OffsetLimits
from regnum_broker.groups.recorded.records import GroupChange
from regnum_broker.servicers.group import GroupServicer
from regnum_broker.servicers.metadata import SMALL, MetadataServicer
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_election.candidacy.role import ControllerRole
from regnum_election.servicers.admin import AdminServicer
from regnum_metadata.servicers.metadata import MetadataServicer as MetadataProcessServicer
from regnum_model.access import ResourceType
from regnum_model.configs import MIN_INSYNC_REPLICAS
from regnum_service.access.guards.items import ITEMS_MAX
from regnum_service.access.guards.topics import NAMED_MAX
from regnum_service.errors import RegnumError
from regnum_service.page_tokens import place_of
from regnum_service.topic_pages import NAMES_MAX
from regnum_testing.group_partition import LIMITS, GroupPartition, OneShard
from regnum_testing.moving import created
from regnum_testing.recorded_rights import Asked, RecordedRights, guarded, only
from regnum_testing.reigning import FakeCluster
from regnum_testing.served import Caller

CONTEXT: Any = Caller()
ADMIN, LOG, GROUP, METADATA = (
    "regnum.admin.v1.AdminService",
    "regnum.broker.v1.LogService",
    "regnum.broker.v1.GroupService",
    "regnum.metadata.v1.MetadataService",
)
NAMES = ("a", "hidden-1", "hidden-2", "m", "z-hidden")


@pytest.mark.parametrize(
    ("service", "method", "request_"),
    [
        (GROUP, "FindCoordinator", group_pb2.FindCoordinatorRequest(group_ids=["g"] * (ITEMS_MAX + 1))),
        (GROUP, "OffsetFetch", group_pb2.OffsetFetchRequest(partitions=[group_pb2.OffsetToFetch()] * (ITEMS_MAX + 1))),
        (LOG, "ListOffsets", log_pb2.ListOffsetsRequest(queries=[log_pb2.OffsetQuery()] * (ITEMS_MAX + 1))),
    ],
    ids=["groups", "offsets", "queries"],
)
async def test_more_items_than_anybody_takes_are_refused_as_one_and_not_each_on_its_own(
    service: str, method: str, request_: Any
) -> None:
    # READ of the group that the request does not name: the right of the whole request.
    rights = RecordedRights(lambda asked: asked.type is ResourceType.GROUP and not asked.name)
    with pytest.raises(RegnumError, match="split the request"):
        await getattr(guarded(rights, service, **{method: None}), method)(request_, CONTEXT)
    assert len(rights.asked) <= 1


async def watched(rights: RecordedRights, *requests: metadata_pb2.WatchMetadataRequest) -> list[Any]:
    """What a stream is told whose handler has read all of that, and then shows topic b as a whole."""

    async def handler(said: AsyncIterator[Any], _context: Any) -> AsyncIterator[bytes]:
        async for _ in said:
            pass
        state = metadata_pb2.WatchMetadataResponse().whole_topics.add(name="b", topic_id="secret")
        yield metadata_pb2.WatchMetadataResponse(whole_topics=[state]).SerializeToString()

    async def said() -> AsyncIterator[Any]:
        for request in requests:
            yield request

    guard = guarded(rights, METADATA, WatchMetadata=handler)
    return [metadata_pb2.WatchMetadataResponse.FromString(one) async for one in guard.WatchMetadata(said(), CONTEXT)]


@pytest.mark.parametrize("all_topics", [True, False])
async def test_of_names_that_a_watch_takes_no_notice_of_nothing_is_kept(all_topics: bool) -> None:
    first = metadata_pb2.WatchMetadataRequest(topics=["a"], all_topics=all_topics)
    later = metadata_pb2.WatchMetadataRequest(known_topics=["b"])
    rights = RecordedRights()
    (told,) = await watched(rights, first, later)
    assert not told.whole_topics
    # About b it was only asked when it was to be shown.
    assert [str(one) for one in rights.asked if one.audit] == ([] if all_topics else ["DESCRIBE TOPIC a"])


@pytest.mark.parametrize("field", ["topics", "known_topics"])
async def test_a_watch_that_names_too_many_topics_is_refused_before_any_is_decided_on(field: str) -> None:
    rights = RecordedRights()
    with pytest.raises(RegnumError, match="in further ones"):
        await watched(rights, metadata_pb2.WatchMetadataRequest(**{field: ["x"] * (NAMED_MAX + 1)}))
    assert rights.denied_loudly == []


def hidden(*, all_of: str) -> RecordedRights:
    """Rights to all whose names do not say that they are hidden; ``all_of``: what would show everything."""

    def held(asked: Asked) -> bool:
        return "hidden" not in asked.name and asked.name not in {"*", "?"} and all_of not in str(asked)

    return RecordedRights(held)


async def test_pages_of_groups_end_with_none_that_is_hidden_and_leave_no_other_out() -> None:
    partition = GroupPartition()
    record = records_pb2.GroupRecord()
    await partition.shard.load([GroupChange(group_id=name, record=record) for name in NAMES])
    await partition.shard.begin()
    coordinator: Any = OneShard(partition.shard)
    calls = GroupCalls(coordinator, clock=partition.clock, limits=LIMITS, offset_limits=OffsetLimits())

    async def pages(rights: RecordedRights) -> tuple[list[str], list[Any]]:
        servicer = GroupServicer(coordinator=coordinator, calls=calls, clock=partition.clock, authorizer=rights)
        guard = guarded(rights, GROUP, ListGroups=servicer.ListGroups)
        shown, tokens, request = [], [], group_pb2.ListGroupsRequest(page_size=1)
        while True:
            answer = await guard.ListGroups(request, CONTEXT)
            shown += [one.group_id for one in answer.groups]
            if not answer.next_page_token:
                return shown, tokens
            tokens.append(place_of(answer.next_page_token, str))
            request.page_token = answer.next_page_token

    rights = hidden(all_of="CLUSTER")
    assert await pages(rights) == (["a", "m"], [("a",)])
    assert rights.denied_loudly == []
    assert await pages(RecordedRights()) == ([], [])
    for everything in ("DESCRIBE CLUSTER kafka-cluster", "DESCRIBE GROUP *"):
        rights = RecordedRights(lambda asked, one=everything: str(asked) == one or asked.name in NAMES)
        assert (await pages(rights))[0] == list(NAMES)


async def test_pages_of_settings_end_with_no_topic_that_is_hidden_and_leave_no_other_out() -> None:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    try:
        await cluster.reign()
        assert cluster.controller is not None
        role = ControllerRole()
        role.hold(cluster.controller)
        for name in NAMES:
            await created(cluster.controller, name, (1, 2, 3))
        one = admin_pb2.AlterableConfig(name=MIN_INSYNC_REPLICAS, op=admin_pb2.ALTER_CONFIG_OP_SET, value="1")
        topic = admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC
        wanted = [
            admin_pb2.ConfigAlteration(resource=admin_pb2.ConfigResource(type=topic, name=name), configs=[one])
            for name in NAMES
        ]
        request = admin_pb2.IncrementalAlterConfigsRequest(alterations=wanted)
        assert not any(
            one.error_code for one in (await AdminServicer(role).IncrementalAlterConfigs(request, CONTEXT)).results
        )

        async def pages(rights: RecordedRights) -> tuple[list[str], list[Any]]:
            servicer = AdminServicer(role, authorizer=rights)
            guard = guarded(rights, ADMIN, DescribeConfigs=servicer.DescribeConfigs)
            shown, tokens, request = [], [], admin_pb2.DescribeConfigsRequest(page_size=1)
            while True:
                answer = await guard.DescribeConfigs(request, CONTEXT)
                if isinstance(answer, bytes):
                    answer = admin_pb2.DescribeConfigsResponse.FromString(answer)
                shown += [one.resource.name for one in answer.results]
                if not answer.next_page_token:
                    return shown, tokens
                tokens.append(place_of(answer.next_page_token, str))
                request.page_token = answer.next_page_token

        assert await pages(hidden(all_of="CLUSTER")) == (["a", "m"], [("",), ("a",)])
        assert await pages(RecordedRights()) == ([], [])
        every = RecordedRights(only("DESCRIBE_CONFIGS TOPIC *", *(f"DESCRIBE_CONFIGS TOPIC {name}" for name in NAMES)))
        assert (await pages(every))[0] == list(NAMES)
    finally:
        await cluster.close()


def test_a_call_names_so_many_topics_and_no_more_at_brokers_and_metadata_processes() -> None:
    leaders, feed, names, image = (cast("Any", SimpleNamespace(state_of=None)) for _ in range(4))
    refused = metadata_pb2.GetMetadataRequest(topics=[f"t{number}" for number in range(NAMES_MAX + 1)])
    servicers = (
        MetadataServicer(MetadataCache(Fence(), lambda *_: None), leaders, RecordedRights()),
        MetadataProcessServicer(image, names, feed, RecordedRights()),
    )
    for servicer in servicers:
        with pytest.raises(RegnumError, match="10000 topics at most, not 10001") as caught:
            asyncio.run(servicer.GetMetadata(refused, CONTEXT))
        assert caught.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
        with pytest.raises(RegnumError, match="1000000 characters"):
            asyncio.run(servicer.GetMetadata(metadata_pb2.GetMetadataRequest(topics=["x" * 1_000_000]), CONTEXT))


async def test_who_names_very_many_topics_holds_up_nobody_who_names_few() -> None:
    leaders: Any = SimpleNamespace(state_of=None)
    servicer = MetadataServicer(MetadataCache(Fence(), lambda *_: None), leaders, RecordedRights())

    async def asked(count: int) -> metadata_pb2.GetMetadataResponse:
        request = metadata_pb2.GetMetadataRequest(topics=[f"t{number}" for number in range(count)])
        return metadata_pb2.GetMetadataResponse.FromString(await servicer.GetMetadata(request, CONTEXT))

    hostile = asyncio.ensure_future(asked(NAMES_MAX))
    # It has begun, and gives the loop its first turn.
    await asyncio.sleep(0)
    assert len((await asked(SMALL)).topics) == SMALL
    assert not hostile.done()
    large = asyncio.ensure_future(asked(SMALL + 1))
    await asyncio.sleep(0)
    assert not hostile.done()
    assert not large.done(), "large answers are made one after another"
    assert len((await hostile).topics) == NAMES_MAX
    assert len((await large).topics) == SMALL + 1
