"""What passes calls on to the controller."""

from collections.abc import Callable

from regnum_service.channel import Channels

from regnum_broker.cluster.controller import ControllerLocation
from regnum_broker.composition.parts import BrokerParts
from regnum_broker.forwarding.forwarder import Forwarder


def make_forwarder(parts: BrokerParts, locate: Callable[[], ControllerLocation | None]) -> Forwarder:
    """The forwarder, with connections of its own; ``locate``: where the controller was last seen."""
    channels = Channels(parts.tls.open_channel)
    parts.supervisor.defer("channels to controllers", channels.close)
    return Forwarder(locate=locate, channels=channels, clock=parts.clock, metrics=parts.metrics)
