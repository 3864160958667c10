"""A fetch call under way, and whether it is still worth waiting for."""

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from regnum.broker.v1.log_pb2 import (
    READ_FROM_ANY_REPLICA,
    READ_FROM_LEADER,
    READ_FROM_NEAREST,
    RECORD_FORM_BATCHES,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
    ReadFrom,
)
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.ids import BrokerId
from regnum_model.nodes import Address
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_telemetry import propagation

from regnum_client.cluster.connections import Connections, call, call_asking
from regnum_client.cluster.throttles import Throttles
from regnum_client.cluster.view import ClusterView, LeaderTerm
from regnum_client.consumer.cursor import Cursor
from regnum_client.tasks import Abandonable


@dataclass(frozen=True, slots=True)
class Asking:
    """What all polls of a consumer say."""

    header: RequestHeader
    """Who asks."""
    wait_ms: int
    """How long a broker may wait for records."""
    min_bytes: int
    """With so many it answers."""
    partition_max_bytes: int
    """About as many of one partition at most."""
    client_rack: str
    """Failure domain of this process; empty: none, and only leaders are read."""


class Poll:
    """A fetch call under way to a leader, or to a replica that leaders named."""

    __slots__ = (
        "_by_topic",
        "address",
        "answer",
        "asked",
        "begun_unix_nano",
        "causes",
        "leader",
        "look_s",
        "share_bytes",
        "span_ids",
        "task",
    )

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
        self.answer: Final = Abandonable()
        self.begun_unix_nano = 0
        """When it began, where the causes are asked for."""
        self.causes: dict[tuple[str, int], str] = {}
        """What made the leaderships, by topic id and partition, where that was asked for."""
        self.span_ids: dict[tuple[str, int], str] = {}
        """Ids for the spans of outages that its answer ends, by topic id and partition: of those that moved."""
        self.task: asyncio.Task[None] | None = None
        self._by_topic: dict[str, list[tuple[Cursor, LeaderTerm]]] = {}
        for cursor, _, term in asked:
            self._by_topic.setdefault(cursor.partition.topic, []).append((cursor, term))

    def request(self, asking: Asking, *, now_s: float) -> FetchRequest:
        """What is asked of the leader, or of a replica that it named."""
        return FetchRequest(
            header=asking.header,
            max_wait_ms=asking.wait_ms,
            min_bytes=asking.min_bytes,
            max_bytes=self.share_bytes,
            form=RECORD_FORM_BATCHES,
            client_rack=asking.client_rack,
            partitions=[
                FetchPartition(
                    topic=cursor.partition.topic,
                    topic_id=cursor.topic_id,
                    partition=cursor.partition.partition,
                    offset=cursor.fetch_offset,
                    current_leader_epoch=term.epoch,
                    max_bytes=min(asking.partition_max_bytes, self.share_bytes),
                    last_fetched_epoch=cursor.last_fetched_epoch,
                    read_from=self._read_from(cursor, term, now_s, asking.client_rack),
                )
                for cursor, _, term in self.asked
            ],
        )

    def is_elsewhere(self, term: LeaderTerm) -> bool:
        """Whether a partition is asked for that another broker leads."""
        return self.leader != term.leader

    def place(self, cursor: Cursor, term: LeaderTerm, result: FetchResult, now_s: float) -> bool:
        """Take up what an answer says of where to read on; False: nothing else is to be taken from it."""
        if self.is_elsewhere(term):
            if result.error_code or result.HasField("diverging_epoch"):
                # What is wrong is the leader's to say.
                cursor.place.failed(now_s)
                return False
            if result.record_batches:
                cursor.place.heard(now_s)
        elif result.HasField("preferred_read_replica"):
            if result.preferred_read_replica == term.leader:
                cursor.place.failed(now_s)
            else:
                cursor.place.sent_to(BrokerId(result.preferred_read_replica), term, now_s)
        return True

    def leave_replica(self, now_s: float) -> bool:
        """Go back to the leaders with the partitions that are asked for elsewhere; returns whether there are any."""
        elsewhere = [cursor for cursor, _, term in self.asked if self.is_elsewhere(term)]
        for cursor in elsewhere:
            cursor.place.failed(now_s)
        return bool(elsewhere)

    def _read_from(self, cursor: Cursor, term: LeaderTerm, now_s: float, client_rack: str) -> ReadFrom.ValueType:
        if client_rack and self.is_elsewhere(term):
            return READ_FROM_ANY_REPLICA
        return READ_FROM_NEAREST if client_rack and cursor.place.may_be_sent(now_s) else READ_FROM_LEADER

    def has_moved(self, view: ClusterView, topics: Iterable[str] | None) -> bool:
        """A partition of one of these topics (None: of any) has another leader by now."""
        asked = self._by_topic.keys() if topics is None else topics
        return any(_moved(cursor, term, view) for topic in asked for cursor, term in self._by_topic.get(topic, ()))


class FetchCalls:
    """Makes the calls of one consumer."""

    def __init__(
        self,
        connections: Connections,
        asking: Asking,
        *,
        timeout_s: float,
        clock: Clock,
        chance: random.Random,
    ) -> None:
        """Only assigns."""
        self._connections: Final = connections
        self._asking: Final = asking
        self._timeout_s: Final = timeout_s
        self._clock: Final = clock
        self._chance: Final = chance
        self.throttles: Final = Throttles()
        """Brokers that asked for time."""

    async def ask(self, poll: Poll, *, causes: bool = False) -> FetchResponse:
        """The answer; ``causes``: ask what made the leaderships, too. Raises RegnumError."""
        request, fetch = poll.request(self._asking, now_s=self._clock.monotonic()), self._connections.log(poll.address)
        try:
            answer: FetchResponse
            if causes:
                asked = propagation.render_recovering(poll.span_ids)
                answer, trailers = await call_asking(
                    fetch.Fetch, request, timeout_s=self._timeout_s, ask=(propagation.RECOVERING, asked)
                )
                poll.causes = propagation.parse_fetch_causes(trailers)
            else:
                answer = await call(fetch.Fetch, request, timeout_s=self._timeout_s)
        except RegnumError as error:
            self.throttles.refused(poll.leader, error, now_s=self._clock.monotonic(), chance=self._chance.random())
            raise
        self.throttles.answered(poll.leader, answer.throttle_time_ms, now_s=self._clock.monotonic())
        return answer


def _moved(cursor: Cursor, term: LeaderTerm, view: ClusterView) -> bool:
    now = view.leader_term(*cursor.partition)
    return now is not None and now.leader != term.leader and now.is_after(term)
