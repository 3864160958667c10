"""The list of live brokers as one number, so that whoever has the list need not be sent it again.

At a thousand brokers the list is some 60 KB, and a client that looks for one topic wants a few hundred bytes. The
number depends on nothing but what the list says: any process may be asked next.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, Protocol

NO_BROKERS: Final = 0
"""Digest of no list at all."""


class Encodable(Protocol):
    """A message of the wire."""

    def SerializeToString(self, *, deterministic: bool = ...) -> bytes:  # noqa: N802 - protobuf's name
        """Its bytes."""


def digest_of(brokers: Iterable[bytes]) -> int:
    """64 bits that tell one list from another; NO_BROKERS for none. With each broker its bytes, by id."""
    digest = blake2b(digest_size=8)
    empty = True
    for broker in brokers:
        empty = False
        digest.update(len(broker).to_bytes(4, "big"))
        digest.update(broker)
    return NO_BROKERS if empty else max(1, int.from_bytes(digest.digest(), "big"))


class BrokerLists:
    """Digests of lists of which the newest is asked for again and again; each is gone through once."""

    def __init__(self) -> None:
        self._brokers: tuple[Encodable, ...] = ()
        self._digest = NO_BROKERS

    def digest(self, brokers: tuple[Encodable, ...]) -> int:
        """Of a list that nobody changes in place."""
        if brokers is not self._brokers:
            self._digest = digest_of(broker.SerializeToString(deterministic=True) for broker in brokers)
            self._brokers = brokers
        return self._digest
