"""The fetch streams that are open, by follower: which life of a follower is the newest that fetches.

Only open streams count. What anybody ever showed would lock a follower out for ever after one message out of nowhere;
what the store records of a member is checked by the leadership itself.
"""

from typing import Final

from regnum_model.ids import BrokerEpoch, BrokerId

from regnum_broker.replication.leader import FollowerStream


class FollowerStreams:
    """Shared by the fetch sessions of a broker. Belongs to the event loop."""

    def __init__(self) -> None:
        self._open: Final[dict[BrokerId, set[FollowerStream]]] = {}

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
