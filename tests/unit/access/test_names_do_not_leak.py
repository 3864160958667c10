"""Topics that a caller may not describe: in no list, in no page, in no cursor, and like none where they are named."""

from collections.abc import Mapping
from dataclasses import dataclass

from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_service.name_order import NameOrder
from regnum_service.topic_pages import TopicPages
from regnum_testing.recorded_rights import RecordedRights, only

FORBIDDEN = errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: str
    partitions: Mapping[int, types_pb2.PartitionState]


TOPICS = {
    name: Topic(name, f"id-{name}", {0: types_pb2.PartitionState(partition=0, leader=1)})
    for name in ("a", "hidden-1", "hidden-2", "m", "hidden-3", "z")
}


async def page(
    rights: RecordedRights, request: metadata_pb2.DescribeTopicsRequest
) -> metadata_pb2.DescribeTopicsResponse:
    pages = TopicPages(lambda: TOPICS, NameOrder(), authorizer=rights)
    head = metadata_pb2.DescribeTopicsResponse
    return metadata_pb2.DescribeTopicsResponse.FromString(await pages.page(request, head))


async def test_pages_show_and_end_with_nothing_that_is_hidden() -> None:
    rights = RecordedRights(only("DESCRIBE TOPIC a", "DESCRIBE TOPIC m", "DESCRIBE TOPIC z", "DESCRIBE TOPIC ?"))
    request = metadata_pb2.DescribeTopicsRequest(limit=1)
    shown, cursors = [], []
    while True:
        answer = await page(rights, request)
        assert b"hidden" not in answer.SerializeToString()
        shown += [one.topic.name for one in answer.topics]
        if not answer.HasField("next_cursor"):
            break
        cursors.append(answer.next_cursor.topic)
        request.cursor.CopyFrom(answer.next_cursor)
    assert (shown, cursors) == (["a", "m", "z"], ["m", "z"])
    assert rights.denied_loudly == []


async def test_a_named_topic_is_answered_the_same_whether_it_is_there_or_not() -> None:
    rights = RecordedRights(only("DESCRIBE TOPIC a"))
    request = metadata_pb2.DescribeTopicsRequest(topics=["a", "hidden-1", "made-up"])
    answer = await page(rights, request)
    said = {one.topic.name: one for one in answer.topics}
    assert said["a"].error_code == errors_pb2.ERROR_CODE_NONE
    for name in ("hidden-1", "made-up"):
        assert said[name] == metadata_pb2.TopicMetadata(error_code=FORBIDDEN, topic=types_pb2.TopicState(name=name))
    assert set(rights.denied_loudly) == {f"DESCRIBE TOPIC {name}" for name in ("a", "hidden-1", "made-up")}


async def test_who_may_describe_no_topic_costs_no_walk_through_all_of_them() -> None:
    rights = RecordedRights(only())
    answer = await page(rights, metadata_pb2.DescribeTopicsRequest())
    assert (len(answer.topics), answer.HasField("next_cursor")) == (0, False)
    assert [str(one) for one in rights.asked] == ["DESCRIBE TOPIC *", "DESCRIBE TOPIC ?"]


async def test_who_may_describe_all_is_asked_about_once() -> None:
    rights = RecordedRights(only("DESCRIBE TOPIC *"))
    answer = await page(rights, metadata_pb2.DescribeTopicsRequest())
    assert len(answer.topics) == len(TOPICS)
    assert {str(one) for one in rights.asked} == {"DESCRIBE TOPIC *"}
