"""What a refusal says of the leader (KIP-951), so that nobody has to ask for metadata first. Pure."""

from collections.abc import Iterable

from regnum.broker.v1.log_pb2 import FetchResult, OffsetResult, ProduceResult
from regnum_model.ids import BrokerId, LeaderEpoch
from regnum_model.nodes import Address

from regnum_client.cluster.view import Hint, LeaderTerm
from regnum_client.records import TopicPartition


def hints_of(
    answers: Iterable[tuple[TopicPartition, LeaderTerm, ProduceResult | FetchResult | OffsetResult]],
) -> list[Hint]:
    """The leaders that results name; with each result its partition, and the leadership that was asked."""
    hints: list[Hint] = []
    for partition, asked, result in answers:
        if not result.HasField("current_leader"):
            continue
        said = result.current_leader
        term = LeaderTerm(asked.topic_id, BrokerId(said.leader), LeaderEpoch(said.leader_epoch))
        address = Address(host=said.client.host, port=said.client.port) if said.HasField("client") else None
        hints.append(Hint(partition, term, address))
    return hints
