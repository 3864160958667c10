"""The fetch streams that are open, by follower: which life of a follower is the newest that fetches.

Only open streams count. What anybody ever showed would lock a follower out for ever after one message out of nowhere;
what the store records of a member is checked by the leadership itself.
"""

from typing import Final

from regnum.replication.v1 import replication_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerEpoch, BrokerId, Registration
from regnum_service.errors import RegnumError

from regnum_broker.replication.leader import FollowerStream

REASON_MAX: Final = 500
"""Characters of what a follower gives as its reason."""


class FollowerStreams:
    """Shared by the fetch sessions of a broker. Belongs to the event loop."""

    def __init__(self) -> None:
        self._open: Final[dict[BrokerId, set[FollowerStream]]] = {}

    def identify(
        self, request: replication_pb2.FetchReplicaRequest, stream: FollowerStream | None, *, now_s: float
    ) -> FollowerStream:
        """The stream that a request belongs to, which says now what the request says.

        Args:
            request: just taken up.
            stream: what it came on; None: it is the first.
            now_s: monotonic seconds.

        Raises:
            RegnumError: it is of another follower than those before it, or of an earlier life of the follower.
        """
        broker, epoch = BrokerId(request.replica_id), BrokerEpoch(request.broker_epoch)
        if broker < 0 or epoch < 0 or request.max_wait_ms < 0:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST, "replica id, broker epoch and wait are not negative"
            )
        newest = self.newest_epoch_of(broker)
        if newest is not None and epoch < newest:
            raise RegnumError(
                errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH,
                f"broker {broker} fetches with broker epoch {newest}; {epoch} is an earlier life of it",
            )
        if stream is None:
            stream = FollowerStream(
                broker=broker, broker_epoch=epoch, registration=Registration(request.registration), polled_s=now_s
            )
            self.opened(stream)
        elif stream.broker != broker:
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "a fetch stream belongs to one follower")
        stream.broker_epoch, stream.registration = epoch, Registration(request.registration)
        stream.polled_s = now_s
        stream.stores_nothing = request.stores_nothing_because[:REASON_MAX]
        return stream

    def opened(self, stream: FollowerStream) -> None:
        """A stream said whose it is."""
        self._open.setdefault(stream.broker, set()).add(stream)

    def closed(self, stream: FollowerStream) -> None:
        """A stream ended."""
        stream.open = False
        streams = self._open.get(stream.broker, set())
        streams.discard(stream)
        if not streams:
            self._open.pop(stream.broker, None)

    def newest_epoch_of(self, broker: BrokerId) -> BrokerEpoch | None:
        """Highest broker epoch on an open stream of a follower; None: it has none."""
        return max((stream.broker_epoch for stream in self._open.get(broker, ())), default=None)
