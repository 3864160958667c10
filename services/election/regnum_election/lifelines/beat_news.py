"""What a broker says of itself in its beats, and when that is news. Pure."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from regnum.election.v1 import controller_pb2
from regnum_model.ids import BrokerEpoch, BrokerId, PartitionKey, TopicId

from regnum_election.reign.events import ClockCompared, HealthSaid
from regnum_election.reign.writability import CommitsWait, DiskSaid, ListenersSaid

MOVED_MS: Final = 1_000
"""Each beat says how far the clocks are apart; it is news when that has moved by so much since it was news last."""

REASON_MAX: Final = 500
"""Characters of a reason."""

WAITING_MAX: Final = 1_000
"""Partitions in which records wait that are taken from one broker."""


class BeatNews:
    """Of one stream."""

    def __init__(self, broker: BrokerId, epoch: BrokerEpoch) -> None:
        """Only assigns.

        Args:
            broker: who holds the stream.
            epoch: broker epoch it said.
        """
        self._broker: Final = broker
        self._epoch: Final = epoch
        self._clock: ClockCompared | None = None

    def take(self, request: controller_pb2.BrokerLifelineRequest) -> Iterator[HealthSaid]:
        """What a message says that was not known before."""
        if request.HasField("clock_difference"):
            said = request.clock_difference
            before, now = (
                self._clock,
                ClockCompared(
                    broker=self._broker,
                    epoch=self._epoch,
                    ahead_ms=said.ahead_ms,
                    expiry_held_back=said.expiry_held_back,
                ),
            )
            if (
                before is None
                or before.expiry_held_back != now.expiry_held_back
                or abs(before.ahead_ms - now.ahead_ms) >= MOVED_MS
            ):
                self._clock = now
                yield now
        if request.HasField("log_directory"):
            disk = request.log_directory
            yield DiskSaid(
                broker=self._broker,
                epoch=self._epoch,
                free_bytes=max(disk.free_bytes, 0) if disk.HasField("free_bytes") else None,
                size_bytes=max(disk.size_bytes, 0) if disk.HasField("size_bytes") else None,
                refuses_because=disk.refuses_because[:REASON_MAX],
            )
        if request.HasField("uncommitted"):
            waiting = (
                PartitionKey(TopicId(topic.topic_id), number)
                for topic in request.uncommitted.topics
                for number in topic.partitions
            )
            yield CommitsWait(broker=self._broker, epoch=self._epoch, keys=frozenset(islice(waiting, WAITING_MAX)))
        if request.HasField("listeners"):
            because = request.listeners.turn_away_because[:REASON_MAX]
            yield ListenersSaid(broker=self._broker, epoch=self._epoch, turn_away_because=because)
