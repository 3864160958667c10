"""Answers of a watch in parts of at most 2 MB, which etcd gives since 3.4 and for which etcd3's messages have no words.

Without them a watch that is behind gets the changes of up to 1,000 transactions in one answer: parsing it holds the
event loop (safety rule S22), and one that is larger than the channel takes never comes.

Fields that a message has no words for are kept when it is parsed and written, so both are set and read as such: field 8
of a WatchCreateRequest, and field 7 of a WatchResponse (etcd's ``rpc.proto``, 3.4 and later).
"""

from typing import Any, Final

from etcd3.etcdrpc import rpc_pb2
from google.protobuf.unknown_fields import UnknownFieldSet

_ASKED_FOR: Final = b"\x40\x01"
"""Field 8, a number: 1."""
_FRAGMENT: Final = 7


def in_fragments(create: Any) -> Any:
    """The same request for a watch, with long answers in fragments."""
    return rpc_pb2.WatchCreateRequest.FromString(create.SerializeToString() + _ASKED_FOR)


def is_fragment(answer: Any) -> bool:
    """Whether the next answer continues this one, perhaps in the middle of a transaction."""
    unknown = UnknownFieldSet(answer)
    return any(unknown[at].field_number == _FRAGMENT and unknown[at].data for at in range(len(unknown)))
