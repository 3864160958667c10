"""Nodes of processes: who is controller, who is there, and where it can be reached."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from regnum_model.ids import (
    ControllerEpoch,
    DirectoryId,
    ElectionId,
    LogId,
    Registration,
)
from regnum_model.nodes.reading import (
    MAX_BROKER_ID,
    MAX_EPOCH,
    MalformedNodeError,
    build_of,
    dumped,
    int_of,
    loaded,
    object_of,
    str_of,
    versioned,
)
from regnum_model.protocols import UNSAID, ReleaseInfo


def joined(host: str, port: int) -> str:
    """``host:port``, or ``[address]:port`` for an IPv6 address (RFC 3986, section 3.2.2)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split(text: str, *, default_port: int | None = None) -> tuple[str, int]:
    """Host, without brackets, and port. What releases before wrote is read, too: an IPv6 address without brackets.

    Args:
        text: it.
        default_port: where the text says none; None: it has to.

    Raises:
        ValueError: it is none; the message says so of the text.
    """
    port = ""
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        well_formed = bool(closed) and is_ipv6(host) and (not rest or rest.startswith(":"))
        port = rest[1:]
    else:
        host, _, port = text.rpartition(":") if ":" in text else (text, "", "")
        well_formed = bool(host) and not set(host) & set("[]") and (":" not in host or is_ipv6(host))
    if not port and default_port is not None and not text.endswith(":"):
        port = str(default_port)
    if not well_formed or not port.isascii() or not port.isdigit():
        raise ValueError(f"{text!r} is not host:port, or [address]:port for an IPv6 address")
    if not 1 <= int(port) <= 65535:
        raise ValueError(f"{text!r} is not host:port: a port is between 1 and 65535")
    return host, int(port)


def is_address(host: str) -> bool:
    """Whether a host is given by its address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_ipv6(host: str) -> bool:
    """Whether a host is given by an IPv6 address."""
    return ":" in host and is_address(host)


def is_anywhere(host: str) -> bool:
    """Whether a listener there takes connections at all addresses, so that nobody can connect to just that."""
    return is_address(host) and ipaddress.ip_address(host).is_unspecified


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, reached from nowhere else."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a listener can be reached."""

    host: str
    """Host name or IP address, without brackets."""
    port: int
    """TCP port, 1 to 65535."""

    def __str__(self) -> str:
        return joined(self.host, self.port)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``host:port`` or ``[address]:port``; raises MalformedNodeError."""
        try:
            host, port = split(text)
        except ValueError as error:
            raise MalformedNodeError(str(error)) from None
        return cls(host=host, port=port)


def _listeners(value: object) -> dict[str, Address]:
    return {
        name: Address.parse(str_of(text, f"listener {name}")) for name, text in object_of(value, "listeners").items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerNode:
    """``/controller`` as in seed 002."""

    election_id: ElectionId
    """Election id of the controller; -1 is written by people who want a new election."""
    timestamp: str
    """When it won, milliseconds since 1970, as text."""

    def encode(self) -> bytes:
        """JSON; the field is named ``brokerid`` because seed 002 names it so."""
        return dumped({"version": 1, "brokerid": self.election_id, "timestamp": self.timestamp})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        # Of any version: who cannot read it takes it for foreign and deletes it (safety rule S7), so that a later
        # release may only add to it.
        content = object_of(loaded(data), "/controller")
        id = int_of(content.get("brokerid"), "brokerid", low=-1, high=MAX_BROKER_ID)
        return cls(election_id=ElectionId(id), timestamp=str_of(content.get("timestamp", ""), "timestamp"))


def encode_controller_epoch(epoch: ControllerEpoch) -> bytes:
    """``/controller_epoch``: plain decimal text."""
    return str(epoch).encode("ascii")


def decode_controller_epoch(data: bytes) -> ControllerEpoch:
    """Read; raises MalformedNodeError."""
    text = data.decode("ascii", errors="replace").strip()
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise MalformedNodeError(f"/controller_epoch is not a plain number up to {MAX_EPOCH}")
    return ControllerEpoch(int(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionNode:
    """``/election/ids/<id>``: where an election process can be reached."""

    incarnation: str
    """Unique name of this run of the process."""
    listeners: Mapping[str, Address]
    """``client`` (admin), ``internal`` (brokers), ``lifeline`` (beats and probes)."""
    build: ReleaseInfo = UNSAID
    """Its release, and the protocols that it speaks."""

    def encode(self) -> bytes:
        """JSON."""
        listeners = {name: str(address) for name, address in sorted(self.listeners.items())}
        return dumped({"version": 1, "incarnation": self.incarnation, "listeners": listeners, **self.build.fields()})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError. All three listeners must be there."""
        content = versioned(loaded(data), "an election node")
        listeners = _listeners(content.get("listeners"))
        if missing := {"client", "internal", "lifeline"} - listeners.keys():
            raise MalformedNodeError(f"listeners lacks {', '.join(sorted(missing))}")
        return cls(
            incarnation=str_of(content.get("incarnation"), "incarnation"),
            listeners=listeners,
            build=build_of(content),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataNode:
    """``/metadata/ids/<id>``: where a metadata process can be reached."""

    incarnation: str
    """Unique name of this run of the process."""
    listeners: Mapping[str, Address]
    """``client`` (GetMetadata) and ``internal`` (the controller)."""
    build: ReleaseInfo = UNSAID
    """Its release, and the protocols that it speaks."""

    def encode(self) -> bytes:
        """JSON."""
        listeners = {name: str(address) for name, address in sorted(self.listeners.items())}
        return dumped({"version": 1, "incarnation": self.incarnation, "listeners": listeners, **self.build.fields()})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError. Both listeners must be there."""
        content = versioned(loaded(data), "a metadata node")
        listeners = _listeners(content.get("listeners"))
        if missing := {"client", "internal"} - listeners.keys():
            raise MalformedNodeError(f"listeners lacks {', '.join(sorted(missing))}")
        return cls(
            incarnation=str_of(content.get("incarnation"), "incarnation"),
            listeners=listeners,
            build=build_of(content),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressNode:
    """A node below ``/brokers/addresses`` and the like: which process advertises the address in its name."""

    holder: str
    """Role and id: ``broker-3``."""

    def encode(self) -> bytes:
        """JSON."""
        return dumped({"version": 1, "holder": self.holder})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        content = versioned(loaded(data), "a node of an advertised address")
        return cls(holder=str_of(content.get("holder"), "holder"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNode:
    """``/brokers/ids/<id>``: the registration of a live broker."""

    incarnation: str
    """Unique name of this run of the process."""
    registration: Registration
    """Version of ``/brokers/epochs/<id>`` that this registration set."""
    rack: str | None
    """Failure domain."""
    directories: Mapping[DirectoryId, LogId]
    """Log directories and the log id of what each holds now."""
    listeners: Mapping[str, Address]
    """``client`` and ``internal``, and ``kafka`` where it speaks Kafka's protocol."""
    build: ReleaseInfo = UNSAID
    """Its release, and the protocols that it speaks."""

    def encode(self) -> bytes:
        """JSON."""
        return dumped(
            {
                "version": 1,
                "incarnation": self.incarnation,
                "registration": self.registration,
                "rack": self.rack,
                "directories": dict(sorted(self.directories.items())),
                "listeners": {name: str(address) for name, address in sorted(self.listeners.items())},
                **self.build.fields(),
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        content = versioned(loaded(data), "a broker node")
        listeners = _listeners(content.get("listeners"))
        if missing := {"client", "internal"} - listeners.keys():
            raise MalformedNodeError(f"listeners lacks {', '.join(sorted(missing))}")
        rack = content.get("rack")
        directories = object_of(content.get("directories"), "directories")
        if not directories:
            raise MalformedNodeError("directories is empty")
        return cls(
            incarnation=str_of(content.get("incarnation"), "incarnation"),
            registration=Registration(int_of(content.get("registration"), "registration", low=0)),
            rack=None if rack is None else str_of(rack, "rack"),
            directories={DirectoryId(key): LogId(str_of(value, "log id")) for key, value in directories.items()},
            listeners=listeners,
            build=build_of(content),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdBlockNode:
    """``/latest_producer_id_block``: the newest block of producer ids handed out."""

    first: int
    """First id of the block."""
    count: int
    """Ids in the block."""

    def encode(self) -> bytes:
        """JSON."""
        return dumped({"version": 1, "first": self.first, "count": self.count})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        content = versioned(loaded(data), "/latest_producer_id_block")
        first, count = int_of(content.get("first"), "first", low=0), int_of(content.get("count"), "count", low=1)
        return cls(first=first, count=count)
