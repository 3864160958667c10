"""The picture of the cluster, the pace of repeats, places to start, the bootstrap addresses, the public surface."""

from pathlib import Path

import pytest
import regnum_client
from regnum.metadata.v1.metadata_pb2 import GetMetadataResponse
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_client.bootstrap import bootstrap_addresses
from regnum_client.cluster_view import ClusterView, merge
from regnum_client.content import BuiltContent
from regnum_client.errors import BootstrapMissingError
from regnum_client.lane import Identity
from regnum_client.pace import retry_delay_ms
from regnum_client.positions import starting_offset
from regnum_model.nodes import Address
from regnum_records.build import BatchBuilder
from regnum_records.check import check_batch


def answer(*, epoch: int, leader: int, topic_id: str = "A", controller_epoch: int = 1) -> GetMetadataResponse:
    endpoint = types_pb2.Endpoint(host="h", port=1)
    response = GetMetadataResponse(
        controller=types_pb2.Controller(id=controller_epoch, epoch=controller_epoch, client=endpoint)
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


def test_places_to_start() -> None:
    assert [starting_offset(text) for text in ("earliest", "latest", "17")] == ["earliest", "latest", 17]
    for text in ("-1", "soon", "", "\u0661", str(2**63)):
        with pytest.raises(ValueError, match="give earliest, latest, or an offset"):
            starting_offset(text)


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
