"""A fetch call under way, and whether it is still worth waiting for."""

import asyncio
from collections.abc import Iterable
from typing import Final

from regnum.broker.v1.log_pb2 import RECORD_FORM_BATCHES, FetchPartition, FetchRequest
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.ids import BrokerId
from regnum_model.nodes import Address

from regnum_client.cluster.view import ClusterView, LeaderTerm
from regnum_client.consumer.cursor import Cursor


class Poll:
    """A fetch call under way."""

    __slots__ = ("_by_topic", "abandoned", "address", "asked", "leader", "look_s", "share_bytes", "task")

    def __init__(
        self,
        leader: BrokerId,
        address: Address,
        asked: list[tuple[Cursor, int, LeaderTerm]],
        *,
        look_s: float,
        share_bytes: int,
    ) -> None:
        self.leader: Final = leader
        self.address: Final = address
        self.asked: Final = asked
        self.look_s = look_s
        self.share_bytes: Final = share_bytes
        self.abandoned = False
        self.task: asyncio.Task[None] | None = None
        self._by_topic: dict[str, list[tuple[Cursor, LeaderTerm]]] = {}
        for cursor, _, term in asked:
            self._by_topic.setdefault(cursor.partition.topic, []).append((cursor, term))

    def request(self, header: RequestHeader, *, wait_ms: int, min_bytes: int, partition_max_bytes: int) -> FetchRequest:
        """What is asked of the leader."""
        return FetchRequest(
            header=header,
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=self.share_bytes,
            form=RECORD_FORM_BATCHES,
            partitions=[
                FetchPartition(
                    topic=cursor.partition.topic,
                    topic_id=cursor.topic_id,
                    partition=cursor.partition.partition,
                    offset=cursor.fetch_offset,
                    current_leader_epoch=term.epoch,
                    max_bytes=min(partition_max_bytes, self.share_bytes),
                )
                for cursor, _, term in self.asked
            ],
        )

    def has_moved(self, view: ClusterView, topics: Iterable[str] | None) -> bool:
        """A partition of one of these topics (None: of any) has another leader by now."""
        asked = self._by_topic.keys() if topics is None else topics
        return any(_moved(cursor, term, view) for topic in asked for cursor, term in self._by_topic.get(topic, ()))


def _moved(cursor: Cursor, term: LeaderTerm, view: ClusterView) -> bool:
    now = view.leader_term(*cursor.partition)
    return now is not None and now.leader != term.leader and now.is_after(term)
