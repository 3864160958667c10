"""Settings as they are shown: what they are, where they come from."""

from dataclasses import dataclass
from enum import Enum


class Source(Enum):
    """Where a value comes from."""

    TOPIC = "topic"
    """The topic's own."""
    BROKER = "broker"
    """The broker's own."""
    FLAG = "flag"
    """What the broker was started with."""
    CLUSTER = "cluster"
    """The cluster's."""
    DEFAULT = "default"
    """Nobody said one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One setting as it is in force."""

    name: str
    """Which."""
    value: str
    """Its value; empty for a secret."""
    source: Source
    """Where it comes from."""
    documentation: str
    """What it does."""
    valid_values: str
    """Which values it may have, in words."""
    read_only: bool = False
    """It changes with the next start of its broker only."""
    sensitive: bool = False
    """It is a secret."""
