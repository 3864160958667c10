"""Replicas: their sizes, and how far they are behind, as their brokers say."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from regnum.broker.v1.log_pb2 import DescribeReplicasRequest, ReplicaDescription, ReplicaQuery
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.ids import BrokerId
from regnum_service.errors import RegnumError

from regnum_client.admin.session import AdminSession
from regnum_client.cluster.connections import call
from regnum_client.cluster.view import ClusterView
from regnum_client.records import TopicPartition
from regnum_client.tasks import together

QUERIES_MAX: Final = 10_000
"""Replicas that one call asks for; a broker refuses more."""

Told = dict[tuple[BrokerId, TopicPartition], ReplicaDescription | RegnumError]
"""What brokers said, or why they did not."""


class ReplicaSize(NamedTuple):
    """One replica of a partition.

    >>> replicas = admin.describe_replicas([TopicPartition("orders", 0)])
    >>> [(one.leading, one.log_end, one.lag) for one in replicas[TopicPartition("orders", 0)] if one.leading]
    [(True, 2, 0)]
    """

    broker: BrokerId
    """Where it is."""
    leading: bool
    """Whether it leads the partition."""
    size_bytes: int | None
    """Bytes of its segments. None: its broker does not say; so with the others."""
    log_start: int | None
    """Its first offset."""
    log_end: int | None
    """Offset after its last record; of one whose broker does not answer, as the leader has heard last."""
    lag: int | None
    """Offsets that the leader has beyond it; None also where no leader answers."""
    error: str
    """Why its broker does not say; empty: it does."""


class ReplicaAdmin(AdminSession):
    """Replicas as their brokers see them."""

    async def describe_replicas(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[ReplicaSize, ...]]:
        """Every assigned replica of each partition, in the order of the assignment; none of a partition that is not.

        Each broker is asked once for all that it has (of 10,000 replicas), and none is waited for: what a broker does
        not answer has an ``error``. Raises RegnumError when no broker answers for metadata.
        """
        metadata = self._open()
        wanted = tuple(dict.fromkeys(partitions))
        await metadata.use({partition.topic for partition in wanted}, timeout_s=self._timeout_s)
        view = metadata.view
        assigned: dict[TopicPartition, tuple[BrokerId, ...]] = {}
        hosted: dict[BrokerId, list[TopicPartition]] = {}
        for partition in wanted:
            topic = view.topics.get(partition.topic)
            state = None if topic is None else topic.partitions.get(partition.partition)
            assigned[partition] = () if state is None else state.replicas
            for broker in assigned[partition]:
                hosted.setdefault(broker, []).append(partition)
        asking = [
            self._of_broker(broker, some[first : first + QUERIES_MAX], view)
            for broker, some in hosted.items()
            for first in range(0, len(some), QUERIES_MAX)
        ]
        told: Told = {}
        for answered in await together("describe-replicas", *asking):
            told |= answered
        return {one: _replicas(one, brokers, told) for one, brokers in assigned.items()}

    async def _of_broker(self, broker: BrokerId, partitions: Sequence[TopicPartition], view: ClusterView) -> Told:
        address = view.address_of(broker)
        keys = [(broker, one) for one in partitions]
        if address is None:
            return dict.fromkeys(
                keys, RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, f"broker {broker} is not live")
            )
        request = DescribeReplicasRequest(
            header=RequestHeader(client_id=self._client_id),
            queries=[
                ReplicaQuery(topic=one.topic, topic_id=view.topics[one.topic].topic_id, partition=one.partition)
                for one in partitions
            ],
        )
        try:
            answer = await call(self._connections.log(address).DescribeReplicas, request, timeout_s=self._timeout_s)
        except RegnumError as error:
            return dict.fromkeys(keys, error)
        return dict(zip(keys, answer.results, strict=True))


def _replicas(partition: TopicPartition, brokers: Sequence[BrokerId], told: Told) -> tuple[ReplicaSize, ...]:
    said = {broker: told[broker, partition] for broker in brokers}
    leaders = [one for one in said.values() if isinstance(one, ReplicaDescription) and one.leading]
    # Of two, for a moment, the newer one is right.
    leader = max(leaders, key=lambda one: one.leader_epoch, default=None)
    heard: Mapping[int, int] = (
        {}
        if leader is None
        else {one.broker_id: one.log_end_offset for one in leader.followers if one.HasField("log_end_offset")}
    )

    def lag(log_end: int | None) -> int | None:
        return None if leader is None or log_end is None else max(0, leader.log_end_offset - log_end)

    replicas: list[ReplicaSize] = []
    for broker, one in said.items():
        if isinstance(one, ReplicaDescription) and not one.error_code:
            end: int | None = one.log_end_offset
            replicas.append(ReplicaSize(broker, one is leader, one.size_bytes, one.log_start_offset, end, lag(end), ""))
        else:
            end = heard.get(broker)
            reason = one.error_message if isinstance(one, ReplicaDescription) else one.message
            replicas.append(ReplicaSize(broker, False, None, None, end, lag(end), reason))  # noqa: FBT003 - a NamedTuple
    return tuple(replicas)
