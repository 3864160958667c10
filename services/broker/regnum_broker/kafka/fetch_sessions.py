"""Incremental fetch sessions (KIP-227): a consumer names its partitions once, and is told what has changed.

A connection has one session at most, and the session ends with it: Kafka's consumers fetch by one connection from each
broker, and one that comes again begins anew. So nothing of a session outlives its owner.

Algorithm: epoch 0 begins a session, each request says the epoch after the last one, -1 ends it. A request changes the
list of partitions; the answer leaves out partitions of which nothing new is to be said. What had records goes behind
the others, so that a partition with many does not keep the rest from being read.

Example: a consumer of 500 partitions asks with (id 0, epoch 0) and all of them, is told id 77, and asks with (77, 1)
and none; of the answer, three partitions with records are all there is.
"""

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_service.errors import Code

NO_SESSION: Final = 0
ENDS: Final = -1
BEGINS: Final = 0
EPOCH_MAX: Final = 2**31 - 1
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of the sessions of all connections; a fetch beyond that is answered without a session."""
PARTITION_BYTES: Final = 640
"""What a session holds of a partition at most, but for the characters of its topic's name; where a topic has many, and
consumers are at offsets that they began with, it is half of that."""
OF_SESSION_MAX: Final = 10_000
"""Partitions of one session, as of one fetch: each request of a session asks for all of them, however small it is."""

Key = tuple[str, bytes, int]
"""Name of the topic, its id (zeros where the request names it), number of the partition."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a consumer wants of a partition."""

    offset: int
    bytes_max: int
    leader_epoch: int
    """-1: not said."""
    last_epoch: int
    """Epoch of the last record that it has read; -1: not said."""


@dataclass(frozen=True, slots=True)
class Said:
    """What was said of a partition in the last answer."""

    high_watermark: int
    log_start: int


class Sessions:
    """How much the sessions of a listener hold. Belongs to the event loop."""

    def __init__(self, bytes_max: int = HELD_BYTES_MAX) -> None:
        """Only assigns."""
        self._bytes_max: Final = bytes_max
        self.held_bytes = 0
        """By all of them."""

    def take(self, size_bytes: int) -> bool:
        """Hold so much more; False: there is no room."""
        if self.held_bytes + size_bytes > self._bytes_max:
            return False
        self.held_bytes += size_bytes
        return True


class ConnectionSession:
    """The session of a connection, if it has one. Belongs to the event loop."""

    def __init__(self, sessions: Sessions, chance: random.Random) -> None:
        """Only assigns; ``chance`` makes ids."""
        self._sessions: Final = sessions
        self._chance: Final = chance
        self.id = NO_SESSION
        """0: it has none."""
        self._epoch = 0
        self._places: dict[Key, Place] = {}
        self._said: dict[Key, Said] = {}
        self._held_bytes = 0

    def close(self) -> None:
        """It ends."""
        self._sessions.held_bytes -= self._held_bytes
        self._held_bytes = 0
        self.id, self._epoch, self._places, self._said = NO_SESSION, 0, {}, {}

    def wanted(
        self, id: int, epoch: int, named: Mapping[Key, Place], forgotten: Collection[Key]
    ) -> Mapping[Key, Place] | Code:
        """What a request wants to read, in order; or the error of a session that it has not."""
        if epoch in (ENDS, BEGINS):
            self.close()
            if epoch == BEGINS and self._take(named):
                self.id, self._epoch = self._chance.randint(1, 2**31 - 1), 1
                self._places = dict(named)
            return named
        if id == NO_SESSION or id != self.id:
            return errors_pb2.ERROR_CODE_FETCH_SESSION_ID_NOT_FOUND
        if epoch != self._epoch:
            return errors_pb2.ERROR_CODE_INVALID_FETCH_SESSION_EPOCH
        self._epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        new = [key for key in named if key not in self._places]
        if len(self._places) + len(new) > OF_SESSION_MAX or not self._take(new):
            self.close()
            return errors_pb2.ERROR_CODE_FETCH_SESSION_ID_NOT_FOUND
        self._places.update(named)
        for key in forgotten:
            if self._places.pop(key, None) is not None:
                self._said.pop(key, None)
                self._held_bytes -= held_bytes(key)
                self._sessions.held_bytes -= held_bytes(key)
        return dict(self._places)

    def _take(self, keys: Iterable[Key]) -> bool:
        size = sum(map(held_bytes, keys))
        if not self._sessions.take(size):
            return False
        self._held_bytes += size
        return True

    def again(self, epoch: int) -> None:
        """The request of that epoch found no room and is made again: it is no further one."""
        if self.id != NO_SESSION and epoch not in (ENDS, BEGINS):
            self._epoch = epoch

    def news(self, key: Key, said: Said, *, worth_saying: bool) -> bool:
        """Whether an answer names a partition; ``worth_saying``: it has records, an error, or another place to read."""
        if self.id == NO_SESSION:
            return True
        before = self._said.get(key)
        self._said[key] = said
        return worth_saying or before != said

    def served(self, keys: Iterable[Key]) -> None:
        """These had records: they are read behind the others."""
        for key in keys:
            place = self._places.pop(key, None)
            if place is not None:
                self._places[key] = place


def held_bytes(key: Key) -> int:
    """What a session holds of a partition, at most: a character beyond ASCII may make all of a name four bytes wide."""
    name = key[0]
    return PARTITION_BYTES + (len(name) if name.isascii() else 4 * len(name))
