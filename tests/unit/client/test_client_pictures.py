"""The picture of the cluster, the pace of repeats, places to start, the bootstrap addresses, the public surface."""

import random
from pathlib import Path
from typing import Any

import pytest
import regnum_client
from regnum.metadata.v1.metadata_pb2 import GetMetadataRequest, GetMetadataResponse
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_client.cluster import enquiry
from regnum_client.cluster.bootstrap import bootstrap_addresses
from regnum_client.cluster.pace import retry_delay_ms
from regnum_client.cluster.rotation import SUSPECT_S, Rotation
from regnum_client.cluster.view import ClusterView, Hint, LeaderTerm, merge, with_leaders
from regnum_client.consumer.fetching.read_ahead import ReadAhead
from regnum_client.errors import BootstrapMissingError
from regnum_client.producer.batches.content import BuiltContent
from regnum_client.producer.batches.lane import Identity
from regnum_client.records import TopicPartition
from regnum_client.tasks import Tasks
from regnum_model.ids import BrokerId, LeaderEpoch, TopicId
from regnum_model.nodes import Address
from regnum_records.build import BatchBuilder
from regnum_records.check import check_batch
from regnum_service.clock import SystemClock
from regnum_service.topic_pages import NAMES_MAX


def answer(
    *, epoch: int, leader: int, topic_id: str = "A", controller_epoch: int = 1, version: int = 0
) -> GetMetadataResponse:
    endpoint = types_pb2.Endpoint(host="h", port=1)
    response = GetMetadataResponse(
        version=version,
        controller=types_pb2.Controller(id=controller_epoch, epoch=controller_epoch, client=endpoint),
    )
    response.brokers.add(id=leader, epoch=1, client=endpoint, internal=endpoint)
    response.topics.add().topic.MergeFrom(
        types_pb2.TopicState(
            name="t",
            topic_id=topic_id,
            partitions=[types_pb2.PartitionState(partition=0, leader=leader, leader_epoch=epoch)],
        )
    )
    return response


def test_leader_epochs_do_not_go_back_in_one_life_of_a_topic() -> None:
    view = merge(ClusterView(), answer(epoch=3, leader=2), asked=["t"], as_of_s=1.0)
    view = merge(view, answer(epoch=2, leader=1), asked=["t"], as_of_s=2.0)
    assert view.leader_term("t", 0) == ("A", 2, 3)
    view = merge(view, answer(epoch=0, leader=1, topic_id="B"), asked=["t"], as_of_s=3.0)
    assert view.leader_term("t", 0) == ("B", 1, 0)


def test_of_an_older_answer_only_later_leaderships_and_unknown_topics_count() -> None:
    view = merge(ClusterView(), answer(epoch=3, leader=2, controller_epoch=5, version=9), asked=["t"], as_of_s=1.0)
    older = answer(epoch=4, leader=1, controller_epoch=6, version=8)
    older.topics.add().topic.MergeFrom(types_pb2.TopicState(name="other", topic_id="O"))
    seen = merge(view, older, asked=["t", "other"], as_of_s=2.0)
    assert seen.leader_term("t", 0) == ("A", 1, 4), "a leader epoch is never wrong, whoever tells it"
    assert "other" in seen.topics
    assert (seen.brokers, seen.controller, seen.version) == (view.brokers, view.controller, 9)
    assert seen.as_of_s == 2.0
    again = merge(seen, answer(epoch=4, leader=-1, version=8), asked=["t"], as_of_s=3.0)
    assert again.leader_term("t", 0) == ("A", 1, 4), "at the same epoch the newer answer stands"


def test_deletions_and_other_lives_are_not_taken_from_an_older_answer() -> None:
    view = merge(ClusterView(), answer(epoch=3, leader=2, topic_id="B", version=9), asked=["t"], as_of_s=1.0)
    assert merge(view, GetMetadataResponse(version=8), asked=None, as_of_s=2.0).topics == view.topics
    former = answer(epoch=7, leader=1, topic_id="A", version=8)
    assert merge(view, former, asked=["t"], as_of_s=2.0).leader_term("t", 0) == ("B", 2, 3)
    later = answer(epoch=0, leader=1, topic_id="C", version=10)
    assert merge(view, later, asked=["t"], as_of_s=2.0).leader_term("t", 0) == ("C", 1, 0)


def test_an_answer_about_another_cluster_changes_nothing() -> None:
    said = answer(epoch=3, leader=2, version=9)
    said.cluster_id = "one"
    view = merge(ClusterView(), said, asked=["t"], as_of_s=1.0)
    said = answer(epoch=8, leader=1, version=20)
    said.cluster_id = "another"
    seen = merge(view, said, asked=["t"], as_of_s=2.0)
    assert (seen.cluster_id, seen.topics, seen.brokers, seen.version) == ("one", view.topics, view.brokers, 9)


def test_a_refusal_that_names_the_leader_counts_at_a_higher_epoch_of_the_same_life() -> None:
    view = merge(ClusterView(), answer(epoch=3, leader=2), asked=["t"], as_of_s=1.0)
    there = Address(host="there", port=9)

    def named(topic_id: str, leader: int, epoch: int) -> ClusterView:
        term = LeaderTerm(TopicId(topic_id), BrokerId(leader), LeaderEpoch(epoch))
        return with_leaders(view, [Hint(TopicPartition("t", 0), term, there)])

    assert named("A", 5, 4).leader_term("t", 0) == ("A", 5, 4)
    assert named("A", 5, 4).address_of(BrokerId(5)) == there
    assert named("A", 2, 4).address_of(BrokerId(2)) == Address(host="h", port=1), "metadata says where it is"
    assert named("A", -1, 4).leader_term("t", 0) is None
    assert named("A", 5, 3) is view
    assert named("B", 5, 4) is view
    term = LeaderTerm(TopicId("A"), BrokerId(5), LeaderEpoch(4))
    assert with_leaders(view, [Hint(TopicPartition("t", 1), term, there)]) is view


def test_every_question_goes_to_another_broker_and_those_of_no_use_come_last() -> None:
    a, b, c, stranger = (Address(host=name, port=1) for name in ("a", "b", "c", "stranger"))
    rotation = Rotation(random.Random(1))

    def next_(*, now_s: float = 0.0, doubted: tuple[Address, ...] = ()) -> Address:
        first = rotation.order([a, b, c], [stranger, a], now_s=now_s, doubted=doubted)[0]
        rotation.asked(first)
        return first

    assert {next_() for _ in range(3)} == {a, b, c}
    rotation.suspect(a, now_s=0.0)
    assert {next_() for _ in range(4)} == {b, c}
    assert {next_(doubted=(b,)) for _ in range(3)} == {c}
    assert {next_(now_s=SUSPECT_S) for _ in range(3)} == {a, b, c}
    for address in (a, b, c):
        rotation.suspect(address, now_s=SUSPECT_S)
    assert next_(now_s=SUSPECT_S) == stranger
    rotation.clear(b)
    assert next_(now_s=SUSPECT_S) == b


def test_what_was_not_asked_for_stays_and_what_is_gone_goes() -> None:
    view = merge(ClusterView(), answer(epoch=3, leader=2), asked=["t"], as_of_s=1.0)
    nothing = GetMetadataResponse()
    assert "t" in merge(view, nothing, asked=["other"], as_of_s=2.0).topics
    nothing.topics.add(error_code=errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION).topic.name = "t"
    assert "t" not in merge(view, nothing, asked=["t"], as_of_s=2.0).topics
    assert "t" not in merge(view, GetMetadataResponse(), asked=None, as_of_s=2.0).topics


def test_no_leader_and_no_older_controller() -> None:
    view = merge(ClusterView(), answer(epoch=3, leader=-1, controller_epoch=5), asked=["t"], as_of_s=1.0)
    assert view.leader_term("t", 0) is None
    assert view.leader_term("t", 1) is None
    older = merge(view, answer(epoch=4, leader=1, controller_epoch=4), asked=["t"], as_of_s=2.0)
    assert older.controller is not None
    assert older.controller.epoch == 5


def test_the_pace_is_a_twentieth_of_the_trouble_within_bounds() -> None:
    assert retry_delay_ms(0, 0.5) == 20
    assert retry_delay_ms(2_000, 0.5) == 100
    assert retry_delay_ms(1e9, 0.5) == 500
    assert retry_delay_ms(0, 0.0) == pytest.approx(16)
    assert retry_delay_ms(0, 1.0) == pytest.approx(24)


def test_bootstrap_addresses(tmp_path: Path) -> None:
    here = {"REGNUM_PROFILE": str(tmp_path / "none")}
    two = (Address(host="a", port=1), Address(host="b", port=2))
    assert bootstrap_addresses("a:1, b:2", here) == two
    assert bootstrap_addresses(["a:1", "b:2"], here) == two
    assert bootstrap_addresses(None, {**here, "REGNUM_BOOTSTRAP": "a:1,b:2"}) == two
    with pytest.raises(BootstrapMissingError, match="regnum up"):
        bootstrap_addresses(None, here)
    with pytest.raises(BootstrapMissingError, match="is not host:port"):
        bootstrap_addresses("a", here)
    with pytest.raises(BootstrapMissingError, match="is not host:port"):
        bootstrap_addresses("http://a:1", here)


def test_a_batch_under_new_numbers_is_still_a_batch() -> None:
    builder = BatchBuilder(bytes_max=1000)
    builder.append(key=b"k", value=b"v", timestamp_ms=1)
    builder.append(key=None, value=b"w", timestamp_ms=2)
    content = BuiltContent(builder)
    first = content.encoded(Identity(producer_id=7, producer_epoch=1), 40)
    assert content.encoded(Identity(producer_id=7, producer_epoch=1), 40) is first
    again = check_batch(content.encoded(Identity(producer_id=8, producer_epoch=0), 0), bytes_max=1000)
    assert (again.producer_id, again.producer_epoch, again.base_sequence, again.record_count) == (8, 0, 0, 2)
    assert content.record_count == 2


def test_the_public_surface() -> None:
    assert sorted(regnum_client.__all__) == dir(regnum_client)
    for name in regnum_client.__all__:
        assert getattr(regnum_client, name) is not None
    with pytest.raises(AttributeError):
        _ = regnum_client.Nothing


def test_polls_share_the_buffer_and_one_always_goes() -> None:
    account = ReadAhead(buffer_bytes=1_000, poll_bytes_max=200, polls_max=4)
    assert [account.share_bytes(leaders) for leaders in (0, 1, 2, 1_000)] == [200, 200, 125, 1]
    assert account.reserve(200, unread_bytes=700)
    assert not account.reserve(200, unread_bytes=700)
    assert account.reserve(100, unread_bytes=700)
    account.release(200)
    account.release(100)
    assert not account.reserve(200, unread_bytes=801)
    assert account.reserve(5_000, unread_bytes=0), "whatever its size"


class AskedBroker:
    """One broker: a question that names too many topics is refused, and every answer is newer than the one before."""

    def __init__(self) -> None:
        self.named: list[int] = []

    def metadata(self, _address: Address) -> "AskedBroker":
        """The stub."""
        return self

    async def GetMetadata(self, request: GetMetadataRequest, **_how: object) -> GetMetadataResponse:  # noqa: N802
        """An item for each name."""
        assert len(request.topics) <= NAMES_MAX
        self.named.append(len(request.topics))
        response = GetMetadataResponse(cluster_id="c", version=10 + len(self.named), brokers=[types_pb2.Broker(id=1)])
        for name in request.topics:
            response.topics.add().topic.name = name
        return response


async def test_more_topics_than_one_question_may_name_are_asked_for_in_several() -> None:
    assert enquiry.NAMES_MAX == NAMES_MAX
    broker: Any = AskedBroker()
    asking = enquiry.Enquiry(
        [Address(host="b", port=1)],
        broker,
        clock=SystemClock(),
        chance=random.Random(1),
        client_id="test",
        tasks=Tasks("test"),
    )
    names = [f"t{number:05}" for number in range(2 * NAMES_MAX + 1)]
    answer = await asking.ask(names, ClusterView())
    assert broker.named == [NAMES_MAX, NAMES_MAX, 1]
    assert [item.topic.name for item in answer.topics] == names
    assert answer.version == 11, "as old as the oldest of them"
    await asking.ask(names[:NAMES_MAX], ClusterView())
    assert broker.named[3:] == [NAMES_MAX]
