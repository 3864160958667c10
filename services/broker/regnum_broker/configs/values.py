"""Which value of a setting counts at a broker, and why. Pure.

the broker's own      /config/brokers/<id>
the cluster's         /config/cluster
its flag              where it was given one
the default
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from regnum.replication.v1 import control_pb2
from regnum_model.configs import (
    BROKER_KEYS,
    DEFINITIONS,
    INTER_BROKER_PROTOCOL,
    MAX_BROKER_EPOCH,
    decode_config,
    parse_value,
)
from regnum_model.nodes import MalformedNodeError

EXAMPLE: Final = '{"version":1,"config":{"group.max.size":"100"}}'
"""What a node looks like."""

BROKER: Final = control_pb2.BROKER_SETTING_SOURCE_BROKER
CLUSTER: Final = control_pb2.BROKER_SETTING_SOURCE_CLUSTER
FLAG: Final = control_pb2.BROKER_SETTING_SOURCE_FLAG
DEFAULT: Final = control_pb2.BROKER_SETTING_SOURCE_DEFAULT

Source: TypeAlias = control_pb2.BrokerSettingSource.ValueType


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the store says of a broker."""

    own: Mapping[str, int] = field(default_factory=dict)
    """The broker's own values."""
    cluster: Mapping[str, int] = field(default_factory=dict)
    """Those of all brokers."""
    protocol: int = MAX_BROKER_EPOCH
    """``inter.broker.protocol.version`` of the cluster."""
    unknown: frozenset[str] = frozenset()
    """Settings of which nobody could read yet what they are: the flag or the default counts, which may be wrong."""

    def value(self, key: str) -> tuple[int, Source] | None:
        """What somebody set; None: nobody did."""
        if key in self.own:
            return self.own[key], BROKER
        return (self.cluster[key], CLUSTER) if key in self.cluster else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReading:
    """What a node says of settings of brokers."""

    values: Mapping[str, int]
    """By name; what cannot be read as it was before."""
    problem: str = ""
    """What a person has to correct; empty: nothing."""
    unreadable: frozenset[str] = frozenset()
    """Settings that it may name, and that cannot be read."""


def read_node(data: bytes | None, before: Mapping[str, int]) -> NodeReading:
    """What a node says; what nobody can read stays what it was (safety rule S14).

    Args:
        data: its content; None: there is none.
        before: what it said when it was read last.
    """
    try:
        config = decode_config(data or b"", example=EXAMPLE)
    except MalformedNodeError as error:
        return NodeReading(values=before, problem=str(error), unreadable=frozenset(BROKER_KEYS))
    values: dict[str, int] = {}
    problems: list[str] = []
    unreadable: set[str] = set()
    for key in sorted(BROKER_KEYS & config.keys()):
        try:
            values[key] = parse_value(key, config[key])
        except MalformedNodeError as error:
            problems.append(str(error))
            unreadable.add(key)
            if key in before:
                values[key] = before[key]
    return NodeReading(values=values, problem="; ".join(problems), unreadable=frozenset(unreadable))


def read_protocol(data: bytes | None, before: int) -> int:
    """What the cluster's node says of the protocol; what nobody can read stays what it was."""
    try:
        text = decode_config(data or b"", example=EXAMPLE).get(INTER_BROKER_PROTOCOL)
        return MAX_BROKER_EPOCH if text is None else parse_value(INTER_BROKER_PROTOCOL, text)
    except MalformedNodeError:
        return before


def in_force(key: str, stored: Stored, flags: Mapping[str, int]) -> tuple[int, Source]:
    """The value that counts, and where it comes from.

    Args:
        key: which setting.
        stored: what the store says.
        flags: what the broker was told at its start, by the setting's name; only what somebody gave.
    """
    found = stored.value(key)
    if found is not None:
        return found
    return (flags[key], FLAG) if key in flags else (DEFINITIONS[key].default, DEFAULT)
