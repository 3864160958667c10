"""What changed between the registrations known and the registrations found, and which of them take part. Pure.

A bounce (a broker that is back before anybody saw it gone) looks like no change in a list of names, so broker epochs
are compared. A registration that is not above the epoch at which the broker was fenced is the fenced one, read late:
it is ignored (safety rule S9).

An address belongs to one broker. Brokers see to that when they register (``regnum_service.advertised``); of those that
did not look (an earlier release, a registration by hand) the one that registered first has it, and the others take no
part until it is gone: each order for one of them would reach the other.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from regnum_model import paths
from regnum_model.ids import BrokerEpoch, BrokerId
from regnum_model.nodes import Address

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedAddress:
    """Why a broker takes no part."""

    broker: Broker
    """The one that registered later."""
    holder: BrokerId
    """The one that has the address."""
    listener: str
    """Name of the listener of both."""
    address: Address
    """What both advertise."""

    def __str__(self) -> str:
        return (
            f"it advertises {self.address} as its {self.listener} listener, and so does broker {self.holder}, which"
            f" registered before it: stop one of them, or start it with another --{self.listener}-advertised"
        )


def without_own_address(brokers: Iterable[Broker]) -> dict[BrokerId, SharedAddress]:
    """Brokers that advertise, as it is written and for the same listener, what one that registered earlier has.

    Example: 1 and 2 advertise a:1, and 3, the last, another address: {2: shared with 1}. Once 1 is gone: {}.
    """
    taken: dict[tuple[str, Address], BrokerId] = {}
    sharing: dict[BrokerId, SharedAddress] = {}
    for broker in sorted(brokers, key=lambda one: (one.epoch, one.id)):
        own = (("client", broker.client), ("internal", broker.internal))
        shared = next((one for one in own if one in taken), None)
        if shared is None:
            taken.update(dict.fromkeys(own, broker.id))
        else:
            name, address = shared
            sharing[broker.id] = SharedAddress(broker=broker, holder=taken[shared], listener=name, address=address)
    return sharing


def at_addresses_of(brokers: Iterable[Broker], others: Iterable[Broker]) -> Iterator[Broker]:
    """Those of the others that share an address with one of some brokers: all that matter while no two of them do."""
    clients, internals = set(), set()
    for one in brokers:
        clients.add(one.client)
        internals.add(one.internal)
    return (one for one in others if one.client in clients or one.internal in internals)


def broker_named(name: str) -> BrokerId | None:
    """The broker that a registration of that name is about; None if no broker registers under it."""
    id = paths.id_named(name)
    return None if id is None else BrokerId(id)


def newest(
    known: Mapping[BrokerId, Broker], found: Mapping[BrokerId, Broker], fenced: Mapping[BrokerId, BrokerEpoch]
) -> dict[BrokerId, Broker]:
    """Registrations that stand: those found, without fenced ones; of a read older than the picture, what is known."""
    return {
        id: max(broker, known.get(id, broker), key=lambda one: one.epoch)
        for id, broker in found.items()
        if id not in fenced or broker.epoch > fenced[id]
    }


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
