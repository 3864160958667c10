"""What one leader may fill of new replicas: a follower's turns among all leaders that do.

A stream stands in line (``throttle``) for as long as its leader has something, as far as is known: from the leader's
first answer on, for all leaders of a broker that was cut off would send at once; and until an answer shows that it may
send something and has nothing.
"""

import math
from collections.abc import Iterable
from typing import Final

from regnum.replication.v1 import replication_pb2
from regnum_model.ids import PartitionKey

from regnum_broker.replication.throttle import UNLIMITED, Meter


class Filling:
    """Of one fetch stream. Belongs to the event loop."""

    def __init__(self, throttle: Meter) -> None:
        """``throttle`` is what this broker may take from all leaders."""
        self._share: Final = throttle.share()
        self._replicas: Final[dict[PartitionKey, None]] = {}
        """Those that a reassignment brings in."""
        self._granted_in: int | None = None
        """Oldest request that let the leader send some of them and that no answer has followed."""
        self._answered = False
        """Whether the leader has answered on the present stream."""

    def add(self, key: PartitionKey) -> None:
        """A new replica is filled by this leader."""
        self._replicas[key] = None
        self._want()

    def remove(self, key: PartitionKey) -> None:
        """It is not, or not any more."""
        self._replicas.pop(key, None)
        if not self._replicas:
            self._share.rest()

    def ended(self) -> None:
        """The stream is over: until the next one is answered, no turn of others is kept for it."""
        self._answered, self._granted_in = False, None
        self._share.rest()

    def answered(self) -> None:
        """An answer came, which is not looked at yet."""
        if not self._answered:
            self._answered = True
            self._want()

    def allowance(self, request: int) -> int:
        """Bytes that a request of that number lets the leader send; UNLIMITED: any number."""
        allowance = self._share.allowance()
        if allowance != UNLIMITED and not self._answered:
            return 0
        if self._replicas and allowance != 0:
            self._granted_in = self._granted_in or request
        return allowance

    def wait_ms(self, most_ms: int) -> int:
        """How long the leader may hold a request back that lets it send nothing: one that does is to follow."""
        return min(most_ms, math.ceil(self._share.pause_s() * 1000)) if self._replicas else most_ms

    def count(self, size_bytes: int) -> None:
        """Bytes came."""
        self._share.count(size_bytes)

    def taken(self, answers: Iterable[replication_pb2.FetchedPartition], *, requests_taken: int) -> None:
        """An answer with these partitions was carried out, sent after so many requests."""
        if self._granted_in is not None and requests_taken >= self._granted_in:
            self._granted_in = None
            if not any(answer.throttled for answer in answers):
                # The leader might have sent some, and has none.
                self._share.rest()

    def _want(self) -> None:
        if self._replicas and self._answered:
            self._share.want()
