"""What changed between the registrations known and the registrations found. Pure.

A bounce (a broker that is back before anybody saw it gone) looks like no change in a list of names, so broker epochs
are compared. A registration that is not above the epoch at which the broker was fenced is the fenced one, read late:
it is ignored (safety rule S9).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from regnum_model.ids import BrokerEpoch, BrokerId

from regnum_election.decisions.cluster import Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What to do about it."""

    gone: frozenset[BrokerId]
    """Brokers that were live and are not."""
    arrived: tuple[Broker, ...]
    """Brokers with a new broker epoch: new ones, and ones that bounced."""
    rewritten: tuple[Broker, ...]
    """Brokers whose registration says something else at the same epoch."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        return not (self.gone or self.arrived or self.rewritten)


def broker_named(name: str) -> BrokerId | None:
    """The broker that a registration of that name is about; None if no broker registers under it."""
    if not name.isascii() or not name.isdigit() or str(int(name)) != name:
        return None
    return BrokerId(int(name))


def compare(
    known: Mapping[BrokerId, Broker], found: Mapping[BrokerId, Broker], fenced: Mapping[BrokerId, BrokerEpoch]
) -> Difference:
    """What changed from ``known`` to ``found``.

    Args:
        known: live brokers in the picture; only those that were looked at, if not all were.
        found: registrations as read.
        fenced: broker epoch at which a broker was last fenced.
    """
    valid = {id: broker for id, broker in found.items() if id not in fenced or broker.epoch > fenced[id]}
    # A read that is older than the picture never takes a broker back to an earlier epoch.
    arrived = tuple(broker for id, broker in sorted(valid.items()) if id not in known or broker.epoch > known[id].epoch)
    rewritten = tuple(
        broker
        for id, broker in sorted(valid.items())
        if id in known and broker.epoch == known[id].epoch and broker != known[id]
    )
    return Difference(gone=frozenset(known.keys() - valid.keys()), arrived=arrived, rewritten=rewritten)


def is_over(
    epoch: BrokerEpoch, *, registered: Broker | None, ended: BrokerEpoch | None, elected_at: BrokerEpoch
) -> bool:
    """Whether a broker that says this epoch is registered under it no more, beyond doubt.

    A registration that the picture does not show yet is not over.

    Args:
        epoch: what the broker says; 0 when it says that it has no registration.
        registered: its live registration in the picture.
        ended: highest epoch of it that is known to be over.
        elected_at: creation id of the controller's own node. Broker epochs are creation ids too, and the picture was
            read after it: whoever registered before it is in the picture, or gone.
    """
    if registered is not None:
        return 0 < epoch < registered.epoch
    return 0 < epoch <= max(elected_at, ended or elected_at)


def ended_epochs(before: Mapping[BrokerId, Broker], now: Mapping[BrokerId, Broker]) -> Mapping[BrokerId, BrokerEpoch]:
    """Epochs of registrations that were live and are not."""
    return {id: broker.epoch for id, broker in before.items() if id not in now or now[id].epoch > broker.epoch}
