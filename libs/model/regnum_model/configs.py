"""Settings as the store holds them, under Kafka's names. Pure.

    /config/cluster          of the whole cluster; the limits of its quota stand in the same node
    /config/topics/<topic>   of one topic, exactly as long as the topic

Both are ``{"version":1,"config":{"min.insync.replicas":"2"}}``. Keys that are not known here are kept as they are.
"""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from regnum_model.nodes import MalformedNodeError

CLUSTER: Final = "/config/cluster"
TOPICS: Final = "/config/topics"

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
DEFAULT_REPLICATION_FACTOR: Final = "default.replication.factor"

LEADER_THROTTLE_RATE: Final = "leader.replication.throttled.rate"
"""Bytes in a second that a broker sends at most to new replicas of partitions that are being reassigned; 0: any."""
FOLLOWER_THROTTLE_RATE: Final = "follower.replication.throttled.rate"
"""The same that it takes for such replicas of its own."""

DEFAULTS: Final[Mapping[str, int]] = MappingProxyType({MIN_INSYNC_REPLICAS: 2, DEFAULT_REPLICATION_FACTOR: 3})
"""Every setting that the cluster has at any time, and what it is unless somebody says otherwise."""

TOPIC_KEYS: Final = frozenset({MIN_INSYNC_REPLICAS})
"""Settings that a topic may have of its own."""

VALUE_MAX: Final = 2**15 - 1
"""Largest number of replicas; Kafka counts them with 16 bits."""

RATE_MAX: Final = 10**12
"""Largest rate, bytes in a second."""

RATES: Final = frozenset({LEADER_THROTTLE_RATE, FOLLOWER_THROTTLE_RATE})
"""Settings of the cluster that are bytes in a second, and that it need not have; the others are numbers of replicas."""

_VALUE: Final = re.compile(r"[0-9]{1,13}", re.ASCII)


def topic_config(name: str) -> str:
    """Node of a topic's own settings."""
    return f"{TOPICS}/{name}"


def parse_value(key: str, text: str) -> int:
    """A number of replicas, or a rate; raises MalformedNodeError."""
    low, high = (0, RATE_MAX) if key in RATES else (1, VALUE_MAX)
    value = int(text) if _VALUE.fullmatch(text) else -1
    if not low <= value <= high:
        raise MalformedNodeError(f"{key} is a whole number from {low} to {high}, not {text[:40]!r}")
    return value


def encode_config(config: Mapping[str, str]) -> bytes:
    """JSON."""
    return json.dumps({"version": 1, "config": dict(sorted(config.items()))}, separators=(",", ":")).encode("utf-8")


def decode_config(data: bytes, *, example: str) -> dict[str, str]:
    """Values by key, as text; an empty node says nothing. Raises MalformedNodeError, which shows the ``example``."""
    if not data:
        return {}
    try:
        content: Any = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        # ValueError: no UTF-8, no JSON, or a number with more digits than Python reads.
        raise MalformedNodeError(f"not JSON: {error}") from None
    config = content.get("config") if isinstance(content, dict) else None
    if not isinstance(config, dict) or not all(isinstance(value, str) for value in config.values()):
        raise MalformedNodeError(f"{example} is expected")
    return config
