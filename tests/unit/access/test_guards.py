"""What each call of clients needs, and what is answered in its place: items, lists, streams. Names do not leak."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.broker.v1 import group_pb2, log_pb2, producer_pb2
from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.principals import Principal
from regnum_service.access.identity import Caller, calling
from regnum_service.errors import RegnumError
from regnum_testing.recorded_rights import RecordedRights, guarded, only

ALICE = Caller(principal=Principal("alice"), host="10.0.0.1")
TOPIC_FAILED = errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED
GROUP_FAILED = errors_pb2.ERROR_CODE_GROUP_AUTHORIZATION_FAILED
CLUSTER_FAILED = errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED
ADMIN, LOG, GROUP, METADATA = (
    "regnum.admin.v1.AdminService",
    "regnum.broker.v1.LogService",
    "regnum.broker.v1.GroupService",
    "regnum.metadata.v1.MetadataService",
)


class Handler:
    """Answers with one result for each item, and remembers what it got."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer
        self.got: list[Any] = []

    async def __call__(self, request: Any, _context: Any) -> Any:
        self.got.append(request)
        return self.answer(request)


ITEMS: list[tuple[str, str, str, str, Any, Any, Callable[[Any], Any]]] = [
    # service, method, right, field of items, request, answer of the handler, what a result is about
    (
        LOG,
        "Fetch",
        "READ TOPIC",
        "partitions",
        log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition(topic=name, partition=3) for name in "abc"]),
        lambda request: log_pb2.FetchResponse(
            results=[log_pb2.FetchResult(topic=one.topic, partition=3, high_watermark=9) for one in request.partitions]
        ),
        lambda result: (result.topic, result.partition),
    ),
    (
        LOG,
        "ListOffsets",
        "DESCRIBE TOPIC",
        "queries",
        log_pb2.ListOffsetsRequest(queries=[log_pb2.OffsetQuery(topic=name, partition=3) for name in "abc"]),
        lambda request: log_pb2.ListOffsetsResponse(
            results=[log_pb2.OffsetResult(topic=one.topic, partition=3, offset=9) for one in request.queries]
        ),
        lambda result: (result.topic, result.partition),
    ),
    (
        LOG,
        "OffsetForLeaderEpoch",
        "DESCRIBE TOPIC",
        "queries",
        log_pb2.OffsetForLeaderEpochRequest(queries=[log_pb2.EpochQuery(topic=name, partition=3) for name in "abc"]),
        lambda request: log_pb2.OffsetForLeaderEpochResponse(
            results=[log_pb2.EpochEndResult(topic=one.topic, partition=3) for one in request.queries]
        ),
        lambda result: (result.topic, result.partition),
    ),
    (
        LOG,
        "DescribeReplicas",
        "DESCRIBE TOPIC",
        "queries",
        log_pb2.DescribeReplicasRequest(queries=[log_pb2.ReplicaQuery(topic=name, partition=3) for name in "abc"]),
        lambda request: log_pb2.DescribeReplicasResponse(
            results=[log_pb2.ReplicaDescription(topic=one.topic, partition=3) for one in request.queries]
        ),
        lambda result: (result.topic, result.partition),
    ),
    (
        LOG,
        "DeleteRecords",
        "DELETE TOPIC",
        "partitions",
        log_pb2.DeleteRecordsRequest(
            partitions=[log_pb2.DeleteRecordsPartition(topic=name, partition=3) for name in "abc"]
        ),
        lambda request: log_pb2.DeleteRecordsResponse(
            results=[log_pb2.DeleteRecordsResult(topic=one.topic, partition=3) for one in request.partitions]
        ),
        lambda result: (result.topic, result.partition),
    ),
    (
        ADMIN,
        "CreateTopics",
        "CREATE TOPIC",
        "topics",
        admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=name) for name in "abc"]),
        lambda request: admin_pb2.CreateTopicsResponse(
            results=[admin_pb2.CreateTopicResult(name=one.name) for one in request.topics]
        ),
        lambda result: (result.name, 3),
    ),
    (
        ADMIN,
        "CreatePartitions",
        "ALTER TOPIC",
        "topics",
        admin_pb2.CreatePartitionsRequest(topics=[admin_pb2.NewPartitions(name=name) for name in "abc"]),
        lambda request: admin_pb2.CreatePartitionsResponse(
            results=[admin_pb2.PartitionsResult(name=one.name) for one in request.topics]
        ),
        lambda result: (result.name, 3),
    ),
    (
        ADMIN,
        "DeletePartitions",
        "DELETE TOPIC",
        "topics",
        admin_pb2.DeletePartitionsRequest(topics=[admin_pb2.DeletablePartitions(name=name) for name in "abc"]),
        lambda request: admin_pb2.DeletePartitionsResponse(
            results=[admin_pb2.PartitionsResult(name=one.name) for one in request.topics]
        ),
        lambda result: (result.name, 3),
    ),
    (
        ADMIN,
        "IncrementalAlterConfigs",
        "ALTER_CONFIGS TOPIC",
        "alterations",
        admin_pb2.IncrementalAlterConfigsRequest(
            alterations=[
                admin_pb2.ConfigAlteration(
                    resource=admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, name=name)
                )
                for name in "abc"
            ]
        ),
        lambda request: admin_pb2.IncrementalAlterConfigsResponse(
            results=[admin_pb2.AlterConfigsResult(resource=one.resource) for one in request.alterations]
        ),
        lambda result: (result.resource.name, 3),
    ),
    (
        ADMIN,
        "AlterConfigs",
        "ALTER_CONFIGS TOPIC",
        "replacements",
        admin_pb2.AlterConfigsRequest(
            replacements=[
                admin_pb2.ConfigReplacement(
                    resource=admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, name=name)
                )
                for name in "abc"
            ]
        ),
        lambda request: admin_pb2.AlterConfigsResponse(
            results=[admin_pb2.AlterConfigsResult(resource=one.resource) for one in request.replacements]
        ),
        lambda result: (result.resource.name, 3),
    ),
    (
        ADMIN,
        "DescribeConfigs",
        "DESCRIBE_CONFIGS TOPIC",
        "resources",
        admin_pb2.DescribeConfigsRequest(
            resources=[admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, name=name) for name in "abc"]
        ),
        # As the servicer does: encoded.
        lambda request: admin_pb2.DescribeConfigsResponse(
            results=[admin_pb2.DescribeConfigsResult(resource=one) for one in request.resources]
        ).SerializeToString(),
        lambda result: (result.resource.name, 3),
    ),
    (
        GROUP,
        "OffsetCommit",
        "READ TOPIC",
        "offsets",
        group_pb2.OffsetCommitRequest(
            group_id="g", offsets=[group_pb2.OffsetToCommit(topic=name, partition=3) for name in "abc"]
        ),
        lambda request: group_pb2.OffsetCommitResponse(
            results=[group_pb2.OffsetCommitResult(topic=one.topic, partition=3) for one in request.offsets]
        ),
        lambda result: (result.topic, result.partition),
    ),
    (
        GROUP,
        "FindCoordinator",
        "DESCRIBE GROUP",
        "group_ids",
        group_pb2.FindCoordinatorRequest(group_ids="abc"),
        lambda request: group_pb2.FindCoordinatorResponse(
            coordinators=[group_pb2.Coordinator(group_id=one) for one in request.group_ids]
        ),
        lambda result: (result.group_id, 3),
    ),
    (
        GROUP,
        "DescribeGroups",
        "DESCRIBE GROUP",
        "group_ids",
        group_pb2.DescribeGroupsRequest(group_ids="abc"),
        lambda request: group_pb2.DescribeGroupsResponse(
            groups=[group_pb2.GroupDescription(group_id=one) for one in request.group_ids]
        ),
        lambda result: (result.group_id, 3),
    ),
    (
        GROUP,
        "DeleteGroups",
        "DELETE GROUP",
        "group_ids",
        group_pb2.DeleteGroupsRequest(group_ids="abc"),
        lambda request: group_pb2.DeleteGroupsResponse(
            results=[group_pb2.DeleteGroupResult(group_id=one) for one in request.group_ids]
        ),
        lambda result: (result.group_id, 3),
    ),
    (
        GROUP,
        "OffsetDelete",
        "READ TOPIC",
        "partitions",
        group_pb2.OffsetDeleteRequest(
            group_id="g", partitions=[group_pb2.OffsetToDelete(topic=one, partition=3) for one in "abc"]
        ),
        lambda request: group_pb2.OffsetDeleteResponse(
            results=[
                group_pb2.OffsetDeleteResult(topic=one.topic, partition=one.partition) for one in request.partitions
            ]
        ),
        lambda result: (result.topic, result.partition),
    ),
]


def results_of(answer: Any) -> list[Any]:
    for field in ("results", "coordinators", "groups"):
        if field in answer.DESCRIPTOR.fields_by_name:
            return list(getattr(answer, field))
    raise AssertionError(answer)


def copy_of(request: Any) -> Any:
    copied = type(request)()
    copied.CopyFrom(request)
    return copied


@pytest.mark.parametrize(
    ("service", "method", "right", "field", "request_", "answer", "about"), ITEMS, ids=[one[1] for one in ITEMS]
)
async def test_each_item_needs_its_right_and_refusals_stand_in_their_places(
    service: str, method: str, right: str, field: str, request_: Any, answer: Any, about: Any
) -> None:
    failed = GROUP_FAILED if right.endswith("GROUP") else TOPIC_FAILED
    group_right = ("READ GROUP g", "DELETE GROUP g")
    for held in ("abc", "b", "ac", ""):
        handler = Handler(answer)
        rights = RecordedRights(only(*group_right, *(f"{right} {name}" for name in held)))
        request = copy_of(request_)
        with calling(ALICE):
            got = await getattr(guarded(rights, service, **{method: handler}), method)(request, None)
        if isinstance(got, bytes):
            got = admin_pb2.DescribeConfigsResponse.FromString(got)
        results = results_of(got)
        assert [about(one) for one in results] == [(name, 3) for name in "abc"]
        codes = [getattr(one, "error_code", 0) for one in results]
        assert codes == [0 if name in held else failed for name in "abc"]
        refused = [one for one in results if one.error_code]
        assert all("User:alice may not" in one.error_message and one.status.code for one in refused)
        # The handler hears of nothing that was refused, and is not called for nothing.
        assert [len(getattr(one, field)) for one in handler.got] == ([len(held)] if held else [])
        assert {str(one) for one in rights.asked if str(one).startswith(right)} == {f"{right} {n}" for n in "abc"}
        assert {one.principal for one in rights.callers} == {ALICE.principal}


async def test_a_right_that_is_revoked_during_a_long_poll_takes_the_records_out_of_its_answer() -> None:
    rights = RecordedRights(only("READ TOPIC a", "READ TOPIC b"))

    def answer(request: Any) -> log_pb2.FetchResponse:
        rights.held = only("READ TOPIC b")
        return log_pb2.FetchResponse(
            results=[log_pb2.FetchResult(topic=one.topic, record_batches=b"secret") for one in request.partitions]
        )

    request = log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition(topic=name) for name in "abx"])
    got = await guarded(rights, LOG, Fetch=Handler(answer)).Fetch(request, None)
    assert [(one.topic, one.error_code, one.record_batches) for one in got.results] == [
        ("a", TOPIC_FAILED, b""),
        ("b", 0, b"secret"),
        ("x", TOPIC_FAILED, b""),
    ]


async def test_a_consume_stream_ends_with_a_refusal_when_its_right_is_gone() -> None:
    rights = RecordedRights(only("READ TOPIC a"))
    closed = []

    async def consume(_request: Any, _context: Any) -> AsyncIterator[Any]:
        try:
            for number in range(10):
                if number == 2:
                    rights.held = lambda _: False
                yield log_pb2.ConsumeResponse(result=log_pb2.FetchResult(topic="a", record_batches=b"%d" % number))
        finally:
            closed.append(True)

    guard = guarded(rights, LOG, Consume=consume)
    steps = [one async for one in guard.Consume(log_pb2.ConsumeRequest(topic="a", partition=4), None)]
    assert [(one.result.error_code, one.result.record_batches) for one in steps] == [
        (0, b"0"),
        (0, b"1"),
        (TOPIC_FAILED, b""),
    ]
    assert (steps[-1].result.topic, steps[-1].result.partition, closed) == ("a", 4, [True])
    refused = [one async for one in guard.Consume(log_pb2.ConsumeRequest(topic="a"), None)]
    assert [one.result.error_code for one in refused] == [TOPIC_FAILED]
    assert closed == [True]


async def test_creating_on_the_cluster_stands_for_every_topic_and_its_absence_is_no_denial() -> None:
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="a")])
    handler = Handler(lambda _: admin_pb2.CreateTopicsResponse(results=[admin_pb2.CreateTopicResult(name="a")]))
    rights = RecordedRights(only("CREATE CLUSTER kafka-cluster"))
    await guarded(rights, ADMIN, CreateTopics=handler).CreateTopics(copy_of(request), None)
    assert [str(one) for one in rights.asked] == ["CREATE CLUSTER kafka-cluster"]
    rights = RecordedRights(only("CREATE TOPIC a"))
    await guarded(rights, ADMIN, CreateTopics=handler).CreateTopics(copy_of(request), None)
    assert rights.denied_loudly == ["CREATE TOPIC a"]
    assert len(handler.got) == 2


async def test_settings_of_the_cluster_need_the_right_on_the_cluster() -> None:
    request = admin_pb2.DescribeConfigsRequest(
        resources=[admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_BROKER)]
    )
    rights = RecordedRights(only("DESCRIBE_CONFIGS TOPIC "))
    answer = await guarded(rights, ADMIN, DescribeConfigs=None).DescribeConfigs(request, None)
    assert [one.error_code for one in answer.results] == [CLUSTER_FAILED]


async def test_a_list_of_settings_shows_only_what_may_be_described() -> None:
    whole = admin_pb2.DescribeConfigsResponse(next_page_token="more")  # noqa: S106 - a place in a list
    whole.results.add(resource=admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_BROKER))
    for name in ("a", "secret"):
        whole.results.add(resource=admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, name=name))
    rights = RecordedRights(only("DESCRIBE_CONFIGS TOPIC a"))
    handler = Handler(lambda _: whole.SerializeToString())
    got = await guarded(rights, ADMIN, DescribeConfigs=handler).DescribeConfigs(
        admin_pb2.DescribeConfigsRequest(), None
    )
    assert [one.resource.name for one in got.results] == ["a"]
    assert got.next_page_token == "more"  # noqa: S105 - a place in a list
    assert rights.denied_loudly == []


@pytest.mark.parametrize("method", ["JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit"])
async def test_being_a_member_needs_to_read_the_group(method: str) -> None:
    request = getattr(group_pb2, f"{method}Request")(group_id="g")
    answer = getattr(group_pb2, f"{method}Response")()
    guard = guarded(RecordedRights(only("DESCRIBE GROUP g")), GROUP, **{method: Handler(lambda _: answer)})
    with pytest.raises(RegnumError) as refused:
        await getattr(guard, method)(request, None)
    assert refused.value.code == GROUP_FAILED
    guard = guarded(RecordedRights(only("READ GROUP g")), GROUP, **{method: Handler(lambda _: answer)})
    assert await getattr(guard, method)(request, None) == answer


async def test_committed_offsets_are_told_of_topics_that_may_be_described_and_never_look_uncommitted() -> None:
    offsets = group_pb2.OffsetFetchResponse(
        offsets=[group_pb2.FetchedOffset(topic=name, offset=7) for name in ("a", "secret")]
    )
    rights = RecordedRights(only("DESCRIBE GROUP g", "DESCRIBE TOPIC a"))
    guard = guarded(rights, GROUP, OffsetFetch=Handler(lambda _: copy_of(offsets)))
    got = await guard.OffsetFetch(group_pb2.OffsetFetchRequest(group_id="g"), None)
    assert [one.topic for one in got.offsets] == ["a"]
    assert rights.denied_loudly == ["DESCRIBE GROUP g"]
    named = group_pb2.OffsetFetchRequest(
        group_id="g", partitions=[group_pb2.OffsetToFetch(topic=name) for name in ("a", "secret")]
    )
    with pytest.raises(RegnumError) as refused:
        await guard.OffsetFetch(named, None)
    assert refused.value.code == TOPIC_FAILED
    other = guarded(RecordedRights(only("DESCRIBE TOPIC a")), GROUP, OffsetFetch=Handler(lambda _: offsets))
    with pytest.raises(RegnumError) as refused:
        await other.OffsetFetch(group_pb2.OffsetFetchRequest(group_id="g"), None)
    assert refused.value.code == GROUP_FAILED


async def test_groups_that_may_not_be_described_are_in_no_list() -> None:
    def listed(_: Any) -> Any:
        return group_pb2.ListGroupsResponse(groups=[group_pb2.GroupListing(group_id=name) for name in "ab"])

    for held, shown in ((only("DESCRIBE GROUP b"), ["b"]), (only("DESCRIBE CLUSTER kafka-cluster"), ["a", "b"])):
        rights = RecordedRights(held)
        got = await guarded(rights, GROUP, ListGroups=Handler(listed)).ListGroups(group_pb2.ListGroupsRequest(), None)
        assert [one.group_id for one in got.groups] == shown
        assert rights.denied_loudly == []


@pytest.mark.parametrize(
    ("held", "allowed"),
    [("IDEMPOTENT_WRITE CLUSTER kafka-cluster", True), ("WRITE TOPIC ?", True), ("WRITE CLUSTER kafka-cluster", False)],
)
async def test_a_producer_id_needs_one_of_two_rights(held: str, allowed: bool) -> None:
    service = producer_pb2.DESCRIPTOR.services_by_name["ProducerService"].full_name
    guard = guarded(RecordedRights(only(held)), service, InitProducerId=Handler(lambda _: "id"))
    if allowed:
        assert await guard.InitProducerId(None, None) == "id"
        return
    with pytest.raises(RegnumError) as refused:
        await guard.InitProducerId(None, None)
    assert refused.value.code == CLUSTER_FAILED


async def test_how_many_topics_there_are_is_told_only_to_who_may_see_them() -> None:
    for held, count in ((only(), 0), (only("DESCRIBE TOPIC *"), 5), (only("DESCRIBE CLUSTER kafka-cluster"), 5)):
        handler = Handler(lambda _: metadata_pb2.DescribeClusterResponse(cluster_id="c", topics=5))
        got = await guarded(RecordedRights(held), METADATA, DescribeCluster=handler).DescribeCluster(None, None)
        assert (got.cluster_id, got.topics) == ("c", count)


async def test_without_refusals_the_handler_gets_the_request_and_the_caller_the_answer_as_they_are() -> None:
    request = log_pb2.ListOffsetsRequest(queries=[log_pb2.OffsetQuery(topic="a")])
    answer = log_pb2.ListOffsetsResponse(results=[log_pb2.OffsetResult(topic="a")])
    handler = Handler(lambda _: answer)
    got = await guarded(RecordedRights(lambda _: True), LOG, ListOffsets=handler).ListOffsets(request, None)
    assert got is answer
    assert handler.got[0] is request
