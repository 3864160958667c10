"""Calls whose handlers ask for themselves: producing, metadata, and deletions by id."""

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.serving.produce_requests import Acks, ProducePartition, ProduceRequest
from regnum_election.servicers.admin import AdminServicer
from regnum_election.topics.charging import Answered
from regnum_election.topics.deletion import Deleted
from regnum_metadata.servicers.metadata import MetadataServicer
from regnum_model.ids import TopicId
from regnum_model.principals import Principal
from regnum_service.access.identity import Caller, calling
from regnum_service.cluster_image.feed import ClusterFeed
from regnum_service.cluster_image.held import HeldImage
from regnum_service.name_order import NameOrder
from regnum_service.supervisor import Supervisor
from regnum_testing.batches import batch_of
from regnum_testing.leading_replicas import LEADER, LeadingReplicas
from regnum_testing.metadata_values import broker, change, image, topic
from regnum_testing.recorded_rights import RecordedRights, only

ALICE = Caller(principal=Principal("alice"), host="10.0.0.1")
DENIED = errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED


async def test_metadata_shows_what_may_be_described_and_a_named_topic_is_refused_there_or_not() -> None:
    known = image(change(0, 4, topic("b", 1, 2), topic("a", 3), brokers=[broker(1)], epoch=6))
    rights = RecordedRights(only("DESCRIBE TOPIC a", "DESCRIBE TOPIC ?"))
    servicer = MetadataServicer(lambda: known, NameOrder(), ClusterFeed(HeldImage), rights)

    async def asked(request: metadata_pb2.GetMetadataRequest) -> metadata_pb2.GetMetadataResponse:
        with calling(ALICE):
            return metadata_pb2.GetMetadataResponse.FromString(await servicer.GetMetadata(request, None))

    everything = await asked(metadata_pb2.GetMetadataRequest())
    assert [item.topic.name for item in everything.topics] == ["a"]
    assert [one.id for one in everything.brokers] == [1]
    assert rights.denied_loudly == []
    named = await asked(metadata_pb2.GetMetadataRequest(topics=["a", "b", "made-up"]))
    assert [(item.topic.name, item.error_code) for item in named.topics] == [
        ("a", 0),
        ("b", DENIED),
        ("made-up", DENIED),
    ]
    hidden, made_up = named.topics[1], named.topics[2]
    hidden.topic.name = made_up.topic.name
    assert hidden == made_up
    assert {one.principal for one in rights.callers} == {ALICE.principal}


class Role:
    """A controller with one topic, which deletes what it is told."""

    def __init__(self) -> None:
        self.deleted: list[Any] = []
        self.topics = self
        self.picture = SimpleNamespace(topics={TopicId("id-a"): SimpleNamespace(name="a")})
        self.quotas = SimpleNamespace(admissions=SimpleNamespace(may_throttle=lambda _account: False))

    async def controller(self) -> "Role":
        return self

    async def delete(self, requests: Any, **_how: Any) -> Any:
        self.deleted += [(one.name, one.topic_id) for one in requests]
        return Answered(outcomes=[Deleted(name=one.name or "a", topic_id="id-a") for one in requests], throttle_ms=0)


@pytest.mark.parametrize(
    ("asked", "held", "codes"),
    [
        ([("a", "")], "DELETE TOPIC a", [0]),
        ([("", "id-a")], "DELETE TOPIC a", [0]),
        ([("", "id-a")], "DELETE TOPIC b", [DENIED]),
        # The name that is given is not that of the id.
        ([("b", "id-a")], "DELETE TOPIC b", [DENIED]),
        ([("x", ""), ("a", ""), ("", "id-a"), ("y", "")], "DELETE TOPIC a", [DENIED, 0, 0, DENIED]),
    ],
)
async def test_deleting_needs_the_right_to_the_topic_however_it_is_named(
    asked: list[tuple[str, str]], held: str, codes: list[int]
) -> None:
    role = Role()
    servicer = AdminServicer(role, authorizer=RecordedRights(only(held)))  # type: ignore[arg-type]
    request = admin_pb2.DeleteTopicsRequest(
        topics=[admin_pb2.DeletableTopic(name=name, topic_id=id) for name, id in asked]
    )
    context = SimpleNamespace(time_remaining=lambda: 5.0, peer=lambda: "ipv4:10.0.0.1:5")
    with calling(ALICE):
        answer = await servicer.DeleteTopics(request, context)  # type: ignore[arg-type]
    assert [one.error_code for one in answer.results] == codes
    assert role.deleted == [one for one, code in zip(asked, codes, strict=True) if code == 0]
    for result, (name, id) in zip(answer.results, asked, strict=True):
        if result.error_code:
            # Not the name that the id stands for.
            assert (result.name, result.topic_id) == (name, id)
            assert f"topic {name or id};" in result.error_message


@pytest.mark.parametrize("id", ["", "id-gone"])
@pytest.mark.parametrize("is_held", [True, False])
async def test_a_repeated_deletion_names_a_topic_that_is_gone_only_to_who_may_delete_it(id: str, is_held: bool) -> None:
    rights = RecordedRights(only("DELETE TOPIC a" if is_held else "DELETE TOPIC b"))
    servicer = AdminServicer(Role(), authorizer=rights)  # type: ignore[arg-type]
    request = admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.DeletableTopic(topic_id=id, mutation_id="m")])
    context = SimpleNamespace(time_remaining=lambda: 5.0, peer=lambda: "ipv4:10.0.0.1:5")
    with calling(ALICE):
        (result,) = (await servicer.DeleteTopics(request, context)).results  # type: ignore[arg-type]
    told = (result.error_code, result.name, result.topic_id)
    assert told == ((0, "a", "id-a") if is_held else (DENIED, "", id))


@pytest.fixture
async def leading(tmp_path: Path) -> AsyncIterator[LeadingReplicas]:
    async with LeadingReplicas(tmp_path) as started:
        yield started


async def test_records_are_appended_only_where_the_caller_may_write(leading: LeadingReplicas) -> None:
    leading.lead(0, isr=(LEADER,))
    rights = RecordedRights(only("WRITE TOPIC t"))
    handler = ProduceHandler(
        replicas=leading.replicas,
        leaders=CurrentLeaders(leading.replicas, MetadataCache(Fence(), leading.replicas.learn_listeners)),
        storage=leading.storage,
        clock=leading.clock,
        batch_bytes_max=1 << 20,
        supervisor=Supervisor("test"),
        authorizer=rights,
    )
    request = ProduceRequest(
        [ProducePartition(name, 0, batch_of(b"x")) for name in ("t", "other", "made-up")], acks=Acks.LEADER
    )
    with calling(ALICE):
        results = (await handler.produce(request)).results
    assert [one.error_code for one in results] == [0, DENIED, DENIED]
    assert results[1].error_message == results[2].error_message.replace("made-up", "other")
    # What made it leader is said to who asks in the call's metadata, and that there is such a topic with it.
    leading.leadership(0).cause = "an election"  # type: ignore[misc]
    with calling(ALICE):
        assert handler.causes(request) == [(0, "an election")]
    rights.held = lambda _: False
    told: list[Any] = []
    with calling(ALICE):
        assert handler.causes(request) == []
        # As a stream of requests does.
        await handler.take([request], lambda _place, outcome: told.append(outcome))
    assert [one.error_code for one in told[0].results] == [DENIED] * 3
    assert {one.principal for one in rights.callers} == {ALICE.principal}
