"""Brokers and the end of a reign, as callers get them. Pure."""

from dataclasses import dataclass

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDescription:
    """A broker as the controller knows it.

    >>> [broker.id for broker in admin.describe_brokers() if broker.draining]
    []
    """

    id: int
    known: bool
    """Whether it is registered, or partitions are assigned to it."""
    live: bool
    """Whether it is registered; what follows, up to leaving, is of its registration."""
    epoch: int | None
    """Broker epoch."""
    registration: int | None
    """How many registrations and fences its id had before."""
    rack: str
    """Failure domain; empty: none."""
    client: Address | None
    """Listener for clients."""
    internal: Address | None
    """Listener for brokers and the controller."""
    log_ids: tuple[str, ...]
    """What its log directories hold."""
    leaving: bool
    """Whether it is stopping."""
    draining: bool
    """Whether it is given no new replicas."""
    leaders: int
    """Partitions that it leads."""
    replicas: int
    """Partitions that are assigned to it."""
    preferred: int
    """Partitions whose first replica it is."""
    in_sync: int
    """Partitions of which it is in the ISR."""
    offline_replicas: int
    """Replicas that it cannot use: damaged files, or a failed disk."""
    disk_free_bytes: int | None = None
    """Free on the disk of its log directory; None: it does not say."""
    disk_size_bytes: int | None = None
    """Of that disk; None: it does not say."""
    refuses_writes_because: str = ""
    """Why it appends no records; empty: it does, or does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resignation:
    """A controller's term that ended by request.

    >>> def told(answer: Resignation) -> str:
    ...     return f"{answer.controller_id} gave up, {answer.successor_id} took over"
    """

    controller_id: int
    """Election id of the process that reigned."""
    controller_epoch: int
    """Controller epoch that is over."""
    successor_id: int
    """Election id of the process that reigns since; may be the same one, where there is no other."""
    successor_epoch: int
    """Its controller epoch."""
    without_controller_s: float
    """Seconds from the answer until a broker named the successor: there was no controller for about so long."""


def broker_from_wire(message: admin_pb2.DescribedBroker) -> BrokerDescription:
    """A broker."""
    live = message.live
    return BrokerDescription(
        id=message.broker_id,
        known=message.error_code == errors_pb2.ERROR_CODE_NONE,
        live=live,
        epoch=message.epoch if live else None,
        registration=message.registration if live else None,
        rack=message.rack,
        client=Address(host=message.client.host, port=message.client.port) if live else None,
        internal=Address(host=message.internal.host, port=message.internal.port) if live else None,
        log_ids=tuple(message.log_ids),
        leaving=message.leaving,
        draining=message.draining,
        leaders=message.leaders,
        replicas=message.replicas,
        preferred=message.preferred,
        in_sync=message.in_sync,
        offline_replicas=message.offline_replicas,
        disk_free_bytes=message.disk_free_bytes if message.HasField("disk_free_bytes") else None,
        disk_size_bytes=message.disk_size_bytes if message.HasField("disk_size_bytes") else None,
        refuses_writes_because=message.refuses_writes_because,
    )
