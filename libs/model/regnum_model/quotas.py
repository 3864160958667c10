"""Quotas as the store holds them: their subjects, nodes and values.

    /config/cluster                     all entities together
    /config/users/<user>                user, or <default>
    /config/clients/<client id>         client id, or <default>
    /config/users/<u>/clients/<c>       both, each may be <default>
    /config/changes/change_0000000007   says that something changed: everybody reads again

Names are percent-encoded, so that ``<default>`` is never somebody's name and no name reaches into another path.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Self, TypeAlias
from urllib.parse import quote, unquote_to_bytes

from regnum_model.bucket import Limit, Windows
from regnum_model.configs import (
    CLUSTER,
    DEFINITIONS,
    QUOTA_WINDOW_NUM,
    QUOTA_WINDOW_SIZE_SECONDS,
    decode_config,
    encode_config,
)
from regnum_model.nodes import Address, MalformedNodeError
from regnum_model.nodes.reading import build_of, versioned
from regnum_model.protocols import UNSAID, ReleaseInfo

USERS: Final = "/config/users"
CLIENTS: Final = "/config/clients"
CHANGES: Final = "/config/changes"
CLIENTS_BELOW: Final = "clients"
"""Name of the folder of client ids below a user."""

QUOTA_IDS: Final = "/quota/ids"
QUOTA_ACTIVE: Final = "/quota/active"
"""Ephemeral node of the quota process that decides."""
QUOTA_TERMS: Final = "/quota/terms"
"""Persistent guard of ``/quota/active``: set with every term that begins, so that its version names one term (safety
rule S2)."""

FOLDERS: Final = (USERS, CLIENTS, CHANGES, QUOTA_IDS)
"""Persistent folders of quotas."""

RATE_KEY: Final = "controller_mutation_rate"
BURST_KEY: Final = "controller_mutation_burst"
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CLIENT_RATES: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
"""What each broker measures by itself: bytes a second in and out, and per cent of the time of its loop."""
KEYS: Final = frozenset({RATE_KEY, BURST_KEY, *CLIENT_RATES})
"""Limits that there are."""

LIMIT_MAX: Final = 1e12
"""Largest limit."""
NAME_LENGTH_MAX: Final = 249
"""Characters of a user or a client id that may have a quota."""

ANONYMOUS: Final = "ANONYMOUS"
"""User of a connection that was not asked who it is."""


DEFAULT_WINDOWS: Final = Windows()
"""Where nobody says other ones."""


class Default(Enum):
    """Everyone who has no quota of his own."""

    DEFAULT = "<default>"


DEFAULT: Final = Default.DEFAULT

Subject: TypeAlias = str | Default | None
"""A name, everyone without a quota of his own, or nothing said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntity:
    """Subject of a quota. With neither part it is for the whole cluster.

    >>> QuotaEntity(client_id="importer").client_id
    'importer'
    """

    user: Subject = None
    client_id: Subject = None

    @property
    def path(self) -> str:
        """Its node; raises ValueError for a name that cannot have one."""
        match self.user, self.client_id:
            case None, None:
                return CLUSTER
            case None, client_id:
                return f"{CLIENTS}/{encode_part(client_id)}"
            case user, None:
                return f"{USERS}/{encode_part(user)}"
            case user, client_id:
                return f"{USERS}/{encode_part(user)}/{CLIENTS_BELOW}/{encode_part(client_id)}"

    @property
    def keys(self) -> frozenset[str]:
        """Limits that it can have: what each broker measures is not added up for the cluster."""
        return KEYS - set(CLIENT_RATES) if self.user is None and self.client_id is None else KEYS

    @property
    def folders(self) -> tuple[str, ...]:
        """Persistent nodes that must be there before its own."""
        if self.user is None or self.client_id is None:
            return ()
        user = f"{USERS}/{encode_part(self.user)}"
        return (user, f"{user}/{CLIENTS_BELOW}")

    def __str__(self) -> str:
        parts = [
            f"{kind} {'<default>' if subject is DEFAULT else subject}"
            for kind, subject in (("user", self.user), ("client id", self.client_id))
            if subject is not None
        ]
        return ", ".join(parts) or "the cluster"


def encode_part(subject: Subject) -> str:
    """A name as a part of a path; raises ValueError."""
    if isinstance(subject, Default):
        return subject.value
    if not subject or len(subject) > NAME_LENGTH_MAX:
        raise ValueError(f"a user or client id with a quota has 1 to {NAME_LENGTH_MAX} characters")
    encoded = quote(subject, safe="", errors="strict")
    # Two names that are folders of their own kind.
    return encoded.replace(".", "%2E") if encoded in {".", ".."} else encoded


def decode_part(part: str) -> str | Default:
    """The name that a part of a path stands for; raises MalformedNodeError when it is none that we write."""
    if part == DEFAULT.value:
        return DEFAULT
    try:
        name = unquote_to_bytes(part).decode("utf-8")
        if encode_part(name) != part:
            raise MalformedNodeError(f"{part!r} is not a percent-encoded name as we write it")
    except ValueError as error:
        raise MalformedNodeError(f"{part!r} is not a percent-encoded name: {error}") from None
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaNode:
    """Content of an entity's node."""

    config: Mapping[str, str] = field(default_factory=dict)
    """Limits by key, as text; keys of other quotas than ours are kept."""

    def encode(self, *, over: bytes | None = None) -> bytes:
        """JSON; what the node besides says that it replaces (``over``) stays."""
        return encode_config(self.config, over=over)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; an empty node says nothing. Raises MalformedNodeError."""
        return cls(config=decode_config(data, example='{"version":1,"config":{"controller_mutation_rate":"5"}}'))

    def limit(self, windows: Windows = DEFAULT_WINDOWS) -> Limit | None:
        """Rate and burst of mutations, which is that of the windows if none is set; None without a rate.

        Raises MalformedNodeError.
        """
        rate = self.config.get(RATE_KEY)
        if rate is None:
            return None
        per_second = parse_limit(RATE_KEY, rate)
        burst = self.config.get(BURST_KEY)
        return Limit(
            rate=per_second, burst=per_second * windows.span_s if burst is None else parse_limit(BURST_KEY, burst)
        )

    @property
    def windows(self) -> Windows:
        """What the cluster's node says of windows; Kafka's where it says nothing. Raises MalformedNodeError."""
        num, size = (
            DEFINITIONS[key].parse(text) if (text := self.config.get(key)) is not None else DEFINITIONS[key].default
            for key in (QUOTA_WINDOW_NUM, QUOTA_WINDOW_SIZE_SECONDS)
        )
        return Windows(num=num, size_s=size)

    @property
    def client_rates(self) -> dict[str, float]:
        """What is set of ``CLIENT_RATES``. Raises MalformedNodeError."""
        return {key: parse_limit(key, text) for key in CLIENT_RATES if (text := self.config.get(key)) is not None}

    def readable(self) -> tuple["QuotaNode", tuple[str, ...]]:
        """The same without those of our limits that nobody can read, and what is wrong with these."""
        config, wrong = dict(self.config), []
        for key in sorted(KEYS & config.keys()):
            try:
                parse_limit(key, config[key])
            except MalformedNodeError as error:
                del config[key]
                wrong.append(str(error))
        return QuotaNode(config=config), tuple(wrong)

    @property
    def values(self) -> dict[str, float]:
        """What is set of our limits; raises MalformedNodeError."""
        return {key: parse_limit(key, text) for key, text in sorted(self.config.items()) if key in KEYS}


_LIMITS: Final = f"a number from 0.000001 to {LIMIT_MAX:g}"


def parse_limit(key: str, text: str) -> float:
    """A limit; raises MalformedNodeError."""
    try:
        value = float(text)
    except ValueError:
        raise MalformedNodeError(f"{key} is {_LIMITS}, not {text[:40]!r}") from None
    check_limit(key, value)
    return value


def check_limit(key: str, value: float) -> None:
    """Raise MalformedNodeError unless the value may be a limit."""
    if not 1e-6 <= value <= LIMIT_MAX:
        raise MalformedNodeError(f"{key} is {_LIMITS}, not {value:g}")


_CHANGE: Final = re.compile(r"change_(\d{10}|[1-9]\d{10,17})", re.ASCII)
"""Ten digits as we write them, until somebody writes the last number of ten digits; no more than a message carries."""


def change_path(number: int) -> str:
    """Node that announces a change."""
    return f"{CHANGES}/change_{number:010d}"


def change_number(name: str) -> int | None:
    """Number of a change from the name of its node; None when it is no such node."""
    match = _CHANGE.fullmatch(name)
    return None if match is None else int(match[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaTable:
    """All quotas, as read at one time."""

    limits: Mapping[QuotaEntity, Limit] = field(default_factory=dict)
    """Rate and burst by entity."""
    client_rates: Mapping[str, Mapping[QuotaEntity, float]] = field(default_factory=dict)
    """Of each of ``CLIENT_RATES`` the bounds by entity; none for the cluster as a whole."""
    windows: Windows = DEFAULT_WINDOWS
    """Over what mutations are measured; in the bursts of the limits already."""
    change: int = 0
    """Newest change announced before they were read."""


_HOST: Final = re.compile(r"[\w.:%-]{1,255}", re.ASCII)
"""What may be handed to a resolver: names and IP addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaProcessNode:
    """``/quota/ids/<id>`` and ``/quota/active``: where a quota process can be reached."""

    id: int
    """Id of the process."""
    incarnation: str
    """Unique name of this run."""
    internal: Address
    """Listener of QuotaService."""
    build: ReleaseInfo = UNSAID
    """Its release, and the protocols that it speaks."""

    def encode(self) -> bytes:
        """JSON."""
        content = {
            "version": 1,
            "quota_id": self.id,
            "incarnation": self.incarnation,
            "listeners": {"internal": str(self.internal)},
            **self.build.fields(),
        }
        return json.dumps(content, separators=(",", ":")).encode("utf-8")

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        try:
            content: Any = json.loads(data.decode("utf-8"))
            id, incarnation = content["quota_id"], content["incarnation"]
            internal = content["listeners"]["internal"]
            build = build_of(versioned(content, "a node of a quota process"))
        except MalformedNodeError:
            raise
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            raise MalformedNodeError(f"not a quota process: {error!r}") from None
        if (
            isinstance(id, bool)
            or not isinstance(id, int)
            or not isinstance(incarnation, str)
            or not isinstance(internal, str)
        ):
            raise MalformedNodeError("not a quota process: quota_id, incarnation or listeners have other types")
        address = Address.parse(internal)
        if _HOST.fullmatch(address.host) is None:
            raise MalformedNodeError(f"not a quota process: {address.host!r} is no name of a host")
        return cls(id=id, incarnation=incarnation, internal=address, build=build)


def quota_id_path(id: int) -> str:
    """Ephemeral node of a quota process."""
    return f"{QUOTA_IDS}/{id}"
