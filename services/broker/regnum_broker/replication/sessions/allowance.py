"""How much of new replicas may be sent to a follower now: what this broker's throttle and the follower allow."""

from typing import Final

from regnum.replication.v1 import replication_pb2

from regnum_broker.replication.throttle import UNLIMITED, Meter


class Allowance:
    """Of one fetch session. Belongs to the event loop."""

    def __init__(self, throttle: Meter) -> None:
        """``throttle`` is what this broker may send to all followers."""
        self._share: Final = throttle.share()
        self._follower_bytes = UNLIMITED

    def take(self, request: replication_pb2.FetchReplicaRequest) -> None:
        """What the follower says holds for all that it is sent until it says more."""
        said = request.HasField("throttled_bytes_max")
        self._follower_bytes = max(request.throttled_bytes_max, 0) if said else UNLIMITED

    def want(self) -> None:
        """There is something to send."""
        self._share.want()

    def rest(self) -> None:
        """There is nothing more."""
        self._share.rest()

    def room(self, bytes_max: int) -> int:
        """Bytes that may be sent now, of ``bytes_max`` at most."""
        if not self._follower_bytes or bytes_max <= 0:
            # It stays in line: the follower has room again when it is its turn there.
            return 0
        return min(one for one in (self._share.allowance(), self._follower_bytes, bytes_max) if one != UNLIMITED)

    def count(self, size_bytes: int) -> None:
        """So many bytes were sent."""
        self._share.count(size_bytes)
        if self._follower_bytes != UNLIMITED:
            self._follower_bytes = max(0, self._follower_bytes - size_bytes)

    def pause_s(self) -> float:
        """Seconds until this broker may send some; 0: it may, and where the follower has no room it will say."""
        return self._share.pause_s() if self._follower_bytes else 0.0
