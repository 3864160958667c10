"""Ids and epochs as types of their own, so that one cannot be passed for another."""

import re
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple, NewType

BrokerId = NewType("BrokerId", int)
"""Id of a broker, not negative; chosen by the operator."""

BrokerEpoch = NewType("BrokerEpoch", int)
"""Creation zxid (ZooKeeper) or create revision (etcd) of a broker's registration: grows over the whole cluster."""

Registration = NewType("Registration", int)
"""Version of ``/brokers/epochs/<id>`` that a registration set (safety rule S2)."""

ElectionId = NewType("ElectionId", int)
"""Id of an election process: a space of its own, not a broker id."""

MetadataId = NewType("MetadataId", int)
"""Id of a metadata process: a space of its own."""

ControllerEpoch = NewType("ControllerEpoch", int)
"""Number of the reign of a controller, from 1 (seed 002)."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Number of the leadership of a partition, from 0."""

TopicId = NewType("TopicId", str)
"""128 random bits in unpadded URL-safe base64: 22 characters, safe in a path."""

DirectoryId = NewType("DirectoryId", str)
"""Permanent name of a log directory."""

LogId = NewType("LogId", str)
"""Name of the content of a log directory; minted anew when the log cannot be proved complete (safety rule S10)."""

NO_LEADER: Final = BrokerId(-1)
"""Leader of a partition that has none."""

NO_EPOCH: Final = LeaderEpoch(-1)
"""Leader epoch of an empty log."""

TOPIC_DELETED_EPOCH: Final = LeaderEpoch(-2)
"""Leader epoch in a StopReplica for a deleted topic: no epoch of the receiver stops it."""


class PartitionKey(NamedTuple):
    """A partition of one life of a topic. Dispatch, logs and fetch sessions are keyed by it (safety rule S13)."""

    topic_id: TopicId
    partition: int


_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)


def is_topic_id(text: str) -> bool:
    """Whether a text can be a topic id: whatever else somebody sends names no folder and no node (``.``, ``a/b``)."""
    return _TOPIC_ID.fullmatch(text) is not None


def encode_id(value: uuid.UUID) -> str:
    """The 22 characters that stand for a UUID in paths and messages."""
    return id_of_bytes(value.bytes)


def id_of_bytes(value: bytes) -> str:
    """The same of the 16 bytes of a UUID."""
    return urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def bytes_of_id(text: str) -> bytes:
    """The 16 bytes that such a text stands for."""
    return urlsafe_b64decode(text + "==")
