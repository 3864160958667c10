"""What changed between the registrations known and the registrations found. Pure.

A bounce (a broker that is back before anybody saw it gone) looks like no change in a list of names, so broker epochs
are compared. A registration that is not above the epoch at which the broker was fenced is the fenced one, read late:
it is ignored (safety rule S9).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from regnum_model.ids import BrokerEpoch, BrokerId

from regnum_election.cluster import Broker


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


def compare(
    known: Mapping[BrokerId, Broker], found: Mapping[BrokerId, Broker], fenced: Mapping[BrokerId, BrokerEpoch]
) -> Difference:
    """What changed from ``known`` to ``found``.

    Args:
        known: live brokers in the picture.
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
