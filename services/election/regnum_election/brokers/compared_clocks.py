"""What a broker says of its wall clock, and when that is news. Pure."""

from typing import Final

from regnum.election.v1 import controller_pb2
from regnum_model.ids import BrokerEpoch, BrokerId

from regnum_election.reign.events import ClockCompared

MOVED_MS: Final = 1_000
"""Each beat says it; it is news when it has moved by so much since it was news last."""


def clock_news(
    before: ClockCompared | None, request: controller_pb2.BrokerLifelineRequest, *, broker: BrokerId, epoch: BrokerEpoch
) -> ClockCompared | None:
    """What a message says that was not known before; None: nothing."""
    if not request.HasField("clock_difference"):
        return None
    said = request.clock_difference
    if (
        before is not None
        and before.expiry_held_back == said.expiry_held_back
        and abs(before.ahead_ms - said.ahead_ms) < MOVED_MS
    ):
        return None
    return ClockCompared(broker=broker, epoch=epoch, ahead_ms=said.ahead_ms, expiry_held_back=said.expiry_held_back)
