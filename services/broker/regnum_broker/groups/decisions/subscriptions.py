"""Which topics the members of a group read, as far as their subscriptions say (KIP-496). Pure.

A subscription is bytes that the coordinator passes on unread; consumers write a version, two bytes, and names of
topics, an array of strings, before all else (Kafka's ConsumerProtocolSubscription, every version).
"""

import struct
from typing import Final

from regnum_broker.groups.decisions.state import Group, GroupError, GroupState, Refusal

CONSUMER: Final = "consumer"
"""Kind of members whose subscriptions are written so."""

_HEAD: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")


def topics_of(subscription: bytes) -> frozenset[str] | None:
    """Topics of one subscription; None: it is none of a consumer."""
    topics = []
    try:
        _, count = _HEAD.unpack_from(subscription)
        at = _HEAD.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(subscription, at)
            at += _LENGTH.size + length
            if length < 0 or at > len(subscription):
                return None
            topics.append(subscription[at - length : at].decode())
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)


def read_by(group: Group) -> frozenset[str] | Refusal | None:
    """Topics that members read, whose offsets stay; None: it is not known, and may be any.

    A refusal: no offset of the group is forgotten at all.
    """
    if group.state is GroupState.EMPTY:
        return frozenset()
    if group.protocol_type != CONSUMER:
        return Refusal(
            error=GroupError.NON_EMPTY_GROUP, message="the group has members, which are no consumers: stop them first"
        )
    found: frozenset[str] = frozenset()
    for member in group.members.values():
        for name, subscription in member.protocols:
            if group.protocol in {"", name}:
                topics = topics_of(subscription)
                if topics is None:
                    return None
                found |= topics
    return found
