"""Takes up what a refusal says of the leader (KIP-951), so that nobody has to ask for metadata first."""

from regnum.broker.v1.log_pb2 import FetchResult, OffsetResult, ProduceResult
from regnum_model.ids import BrokerId, LeaderEpoch
from regnum_model.nodes import Address

from regnum_client.cluster_view import LeaderTerm
from regnum_client.metadata import Metadata
from regnum_client.records import TopicPartition


def take_hint(
    metadata: Metadata,
    partition: TopicPartition,
    asked: LeaderTerm,
    result: ProduceResult | FetchResult | OffsetResult,
) -> None:
    """Tell the picture of the leader that a result names; ``asked`` is the leadership that refused."""
    if not result.HasField("current_leader"):
        return
    said = result.current_leader
    term = LeaderTerm(asked.topic_id, BrokerId(said.leader), LeaderEpoch(said.leader_epoch))
    address = Address(host=said.client.host, port=said.client.port) if said.HasField("client") else None
    metadata.take_leader(partition, term, address)
