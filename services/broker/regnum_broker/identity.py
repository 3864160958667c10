"""Who this broker is to the cluster at the moment."""

from dataclasses import dataclass

from regnum_model.ids import BrokerEpoch, Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A registration of this broker that it believes in."""

    broker_epoch: BrokerEpoch
    """Creation id of its node."""
    registration: Registration
    """Version of its guard (safety rule S2)."""
