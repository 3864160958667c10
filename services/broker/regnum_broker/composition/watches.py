"""What a broker does by the clock: looks at who is heard, keeps its log directory in order, deletes strays."""

from collections.abc import Sequence
from typing import Protocol

from regnum_model.broker_configs import PRODUCER_ID_EXPIRATION_MS
from regnum_model.nodes import Address
from regnum_service.tls.expiry import ExpiredCertificates

from regnum_broker.cluster.contacts import ContactWatch
from regnum_broker.cluster.isolation_watch import IsolationWatch
from regnum_broker.cluster.lifeline import Lifeline
from regnum_broker.cluster.orders.orders import Orders
from regnum_broker.cluster.strays.watch import StrayWatch
from regnum_broker.composition.parts import BrokerParts
from regnum_broker.disk_watch import DiskWatch
from regnum_broker.figures.listeners_watch import ListenersWatch
from regnum_broker.maintenance import Checkpointing, IsrWatch, ProducerExpiry
from regnum_broker.replication.fetchers import Fetchers
from regnum_broker.replication.isr_writer import IsrWriter
from regnum_broker.replication.offline import OfflineReplicas
from regnum_broker.serving.metadata_cache import MetadataCache


class ListenerOfClients(Protocol):
    """One that is served, of either protocol."""

    @property
    def address(self) -> Address:
        """Where it listens."""

    @property
    def crowded(self) -> str:
        """That connections of clients are closed since there are too many, in words; empty: they are not."""


def start_contact_watches(
    parts: BrokerParts,
    *,
    lifeline: Lifeline,
    fetchers: Fetchers,
    writer: IsrWriter,
    of_clients: Sequence[ListenerOfClients],
) -> None:
    """Look from now on at who is heard, and who is not, and who is turned away at the listeners of clients."""
    replicas, clock, supervisor = parts.replicas, parts.clock, parts.supervisor
    isolation = IsolationWatch(
        replicas=replicas,
        session_lost=lambda: parts.sessions.store is None,
        lifeline_open=lambda: lifeline.is_open,
        orders_astray=lambda: lifeline.orders_astray,
        clock=clock,
    )
    contacts = ContactWatch(replicas=replicas, fetchers=fetchers, tell=lifeline.report_contacts, clock=clock)
    isr_watch = IsrWatch(
        replicas=replicas,
        writer=writer,
        lag_s=parts.settings.replica_lag_s,
        clock=clock,
        tell_uncommitted=lifeline.report_uncommitted,
    )
    listeners = ListenersWatch(
        expired=ExpiredCertificates(parts.tls.shown) if parts.tls.shown else None,
        crowded=lambda: "; ".join(filter(None, (listener.crowded for listener in of_clients))),
        tell=lifeline.report_turning_away,
        clock=clock,
        metrics=parts.metrics,
    )
    parts.limits.start(supervisor, *(listener.address.port for listener in of_clients))
    supervisor.start("isr watch", isr_watch.run())
    supervisor.start("isolation watch", isolation.run())
    supervisor.start("contact watch", contacts.run())
    supervisor.start("listeners watch", listeners.run())


def start_upkeep(parts: BrokerParts, *, checkpointing: Checkpointing, offline: OfflineReplicas) -> None:
    """Keep the log directory in order from now on."""
    storage, clock, supervisor, settings = parts.storage, parts.clock, parts.supervisor, parts.settings
    supervisor.start("checkpoints", checkpointing.run())
    supervisor.start("store contact", parts.contact.run())
    supervisor.start("disk room", parts.disk.run())
    supervisor.start("offline replicas", offline.run())
    watch = DiskWatch(
        directory=storage.directory, timeout_s=settings.disk_timeout_s, clock=clock, waits=parts.disk.waits
    )
    supervisor.start("disk watch", watch.run())
    expiry = ProducerExpiry(
        storage=storage,
        expiration_ms=settings.producer_id_expiration_ms,
        clock=clock,
        expiry_now_ms=parts.expiry.now_ms,
        may_forget=lambda: parts.configs.is_known(PRODUCER_ID_EXPIRATION_MS),
    )
    supervisor.start("producer expiry", expiry.run())

    def expire(expiration_ms: int) -> None:
        expiry.expiration_ms = expiration_ms

    parts.configs.on(PRODUCER_ID_EXPIRATION_MS, expire)


def start_stray_watch(parts: BrokerParts, *, orders: Orders, fetchers: Fetchers, cache: MetadataCache) -> None:
    """Delete replicas that were reassigned without this broker hearing of it (S13), count those that nobody knows."""
    strays = StrayWatch(
        replicas=parts.replicas,
        orders=orders,
        is_idle=fetchers.is_idle,
        identity=lambda: parts.fence.identity,
        store=lambda: parts.sessions.store,
        names=cache.naming,
        logs=parts.strays,
        clock=parts.clock,
        grace_s=parts.settings.stray_grace_s,
    )
    parts.supervisor.start("strays", strays.run())
