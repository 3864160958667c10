"""What the connections of one Kafka listener have in common: their number, and the work of those that ended.

Goals: connections that say nothing take the place of none that is used, as at the other listener of clients
(``regnum_service.connection_limit``); here each is counted when it comes, so that there are never more, and nothing is
looked through.

Algorithm: of too many the oldest that has never asked for anything goes, but for the newest, which had no time to;
where all have asked, the one whose last request is the longest ago. The same for those of one address.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address
from itertools import chain
from typing import Any, Final, Protocol

import structlog
from regnum_kafka_wire.apis import Buffers
from regnum_kafka_wire.frames import Head
from regnum_service.access.identity import Caller
from regnum_service.clock import Clock
from regnum_service.connection_limit import Uses
from regnum_service.limits.budget import Budget
from regnum_service.machine import MACHINE
from regnum_telemetry.metrics import Counter

from regnum_broker.kafka.context import Context
from regnum_broker.kafka.fetch_sessions import Sessions
from regnum_broker.kafka.produce_together import Together

Host = IPv4Address | IPv6Address

SMALL_BYTES: Final = 64 * 1024
"""A request is counted when it is larger than this."""
LEFT_S_MAX: Final = 30.0
"""For so long what a client asked for is carried on with once it has hung up: as long as Kafka's producers wait."""


class Open(Protocol):
    """One of them (``connection.Connection``)."""

    name: str
    """How gRPC would name the other end."""
    host: Host | None
    """Its address."""

    def get_extra_info(self, name: str) -> Any:
        """Of the transport."""

    def close(self) -> None:
        """End it."""


class _Line:
    """Some connections, in the order in which they go."""

    __slots__ = ("_asked", "_silent")

    def __init__(self) -> None:
        self._silent: Final[dict[Open, None]] = {}
        self._asked: Final[dict[Open, None]] = {}

    def __len__(self) -> int:
        return len(self._silent) + len(self._asked)

    def __iter__(self) -> Iterator[Open]:
        return chain(self._silent, self._asked)

    def __contains__(self, connection: Open) -> bool:
        return connection in self._silent or connection in self._asked

    def has_asked(self, connection: Open) -> bool:
        return connection in self._asked

    def add(self, connection: Open) -> None:
        self._silent[connection] = None

    def used(self, connection: Open) -> None:
        self.remove(connection)
        self._asked[connection] = None

    def remove(self, connection: Open) -> None:
        self._silent.pop(connection, None)
        self._asked.pop(connection, None)

    def first_but(self, newest: Open) -> Open:
        return next((connection for connection in self if connection is not newest), newest)


class Crowd:
    """Of one listener. Belongs to the event loop."""

    def __init__(
        self,
        most: int,
        of_address_max: int | None,
        *,
        uses: Uses,
        too_many: Counter,
        too_many_of_address: Counter,
        crowded: Callable[[], None],
    ) -> None:
        """Only assigns.

        Args:
            most: connections.
            of_address_max: of one address; None: any number.
            uses: is told which have come through their handshakes.
            too_many: counts those that are closed because there are more.
            too_many_of_address: likewise.
            crowded: hears that one of those had asked for something.
        """
        self.most: Final = most
        self._of_address_max: Final = of_address_max
        self._uses: Final = uses
        self._too_many: Final = too_many
        self._too_many_of_address: Final = too_many_of_address
        self._crowded: Final = crowded
        self._all: Final = _Line()
        self._of_host: Final[dict[Host | None, _Line]] = {}

    def __len__(self) -> int:
        """As many are open."""
        return len(self._all)

    def __iter__(self) -> Iterator[Open]:
        """They; first those that go first."""
        return iter(self._all)

    def opened(self, connection: Open) -> None:
        """One more."""
        self._uses.began(connection.name)
        own = self._of_host.setdefault(connection.host, _Line())
        self._all.add(connection)
        own.add(connection)
        if len(self._all) > self.most:
            self._close(self._all.first_but(connection), self._too_many)
        if self._of_address_max is not None and len(own) > self._of_address_max:
            self._close(own.first_but(connection), self._too_many_of_address)

    def used(self, connection: Open) -> None:
        """It asks for something."""
        if connection in self._all:
            self._all.used(connection)
            self._of_host[connection.host].used(connection)

    def closed(self, connection: Open) -> None:
        """One less."""
        if connection in self._all:
            self._uses.ended(connection.name)
            self._all.remove(connection)
            own = self._of_host[connection.host]
            own.remove(connection)
            if not own:
                del self._of_host[connection.host]

    def close(self) -> None:
        """Close all of them."""
        for connection in tuple(self):
            connection.close()

    def _close(self, connection: Open, counted: Counter) -> None:
        if self._all.has_asked(connection):
            self._crowded()
        connection.close()
        counted.add(1)


class Answering(Protocol):
    """What answers requests (``door.Door``)."""

    async def answer(self, frame: memoryview, context: Context) -> Buffers | None:
        """The frame that answers one; None: nobody waits for it."""

    def ends_with_its_client(self, head: Head) -> bool:
        """Whether such a request is of no use once its client has hung up."""

    def takes_together(self, head: Head) -> bool:
        """Whether such a request may be answered together with others."""

    async def together(self, asked: Sequence[tuple[memoryview, Context]]) -> Together:
        """Begin to answer them; the connection closes what is returned."""


class Shared:
    """What the connections of one listener have in common. Belongs to the event loop."""

    def __init__(
        self,
        *,
        door: Answering,
        budget: Budget,
        clock: Clock,
        caller_of: Callable[["Open"], Caller],
        request_bytes_max: int,
        first_s: float,
        idle_s: float,
        age_s: float,
        crowd: Crowd,
        defect: Callable[[BaseException], None],
        chance: random.Random = MACHINE.chance,
    ) -> None:
        """Only assigns.

        Args:
            door: answers requests.
            budget: pays for what they take.
            clock: source of time.
            caller_of: who is at the other end; raises RegnumError where that is not believed.
            request_bytes_max: the largest request.
            first_s: seconds within which the first request of a connection begins.
            idle_s: seconds without a request after which a connection is closed.
            age_s: seconds after which it takes no further request and is closed.
            crowd: they are counted there.
            defect: hears of errors that nobody expected.
            chance: makes ids of fetch sessions.
        """
        self.door: Final = door
        self.budget: Final = budget
        self.clock: Final = clock
        self.caller_of: Final = caller_of
        self.request_bytes_max: Final = request_bytes_max
        self.first_s: Final = first_s
        self.idle_s: Final = idle_s
        self.age_s: Final = age_s
        self.defect: Final = defect
        self.sessions: Final = Sessions()
        self.chance: Final = chance
        self.scratch: Final = memoryview(bytearray(SMALL_BYTES))
        self.crowd: Final = crowd
        self._left: Final[dict[asyncio.Task[None], asyncio.TimerHandle]] = {}
        """What works for clients that have hung up, and when it ends at the latest."""
        self._stops = False
        self.log: Final = structlog.get_logger("kafka")

    def left(self, serving: asyncio.Task[None]) -> None:
        """Its client has hung up, and it does what it was asked for before; of too many the oldest ends."""
        if self._stops:
            serving.cancel()
            return
        self._left[serving] = asyncio.get_running_loop().call_later(LEFT_S_MAX, serving.cancel)
        serving.add_done_callback(self._let_go)
        if len(self._left) > self.crowd.most:
            oldest = next(iter(self._left))
            oldest.cancel()
            self._let_go(oldest)

    def _let_go(self, serving: asyncio.Task[None]) -> None:
        if (at_the_latest := self._left.pop(serving, None)) is not None:
            at_the_latest.cancel()

    def stop(self) -> None:
        """Close all connections; nothing is carried on with for clients that have hung up."""
        self._stops = True
        for serving in self._left:
            serving.cancel()
        self.crowd.close()
