"""The connections of one listener, and which of them go when there are more than are kept.

Goals: connections that say nothing take the place of none that is used, as at the other listener of clients
(``regnum_service.connection_limit``); here each is counted when it comes, so that there are never more, and nothing is
looked through.

Algorithm: of too many the oldest that has never asked for anything goes, but for the newest, which had no time to;
where all have asked, the one whose last request is the longest ago. The same for those of one address.
"""

from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address
from itertools import chain
from typing import Final, Protocol

from regnum_service.connection_limit import Uses
from regnum_telemetry.metrics import Counter

Host = IPv4Address | IPv6Address


class Member(Protocol):
    """A connection."""

    @property
    def host(self) -> Host | None:
        """The address of its other end."""

    @property
    def name(self) -> str:
        """How gRPC would name the other end."""

    def close(self) -> None:
        """End it; it leaves the crowd by that."""


class _Line:
    """Some connections, in the order in which they go."""

    __slots__ = ("_asked", "_silent")

    def __init__(self) -> None:
        self._silent: Final[dict[Member, None]] = {}
        self._asked: Final[dict[Member, None]] = {}

    def __len__(self) -> int:
        return len(self._silent) + len(self._asked)

    def __iter__(self) -> Iterator[Member]:
        return chain(self._silent, self._asked)

    def __contains__(self, member: Member) -> bool:
        return member in self._silent or member in self._asked

    def has_asked(self, member: Member) -> bool:
        return member in self._asked

    def add(self, member: Member) -> None:
        self._silent[member] = None

    def used(self, member: Member) -> None:
        self.remove(member)
        self._asked[member] = None

    def remove(self, member: Member) -> None:
        self._silent.pop(member, None)
        self._asked.pop(member, None)

    def first_but(self, newest: Member) -> Member:
        return next((member for member in self if member is not newest), newest)


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

    def __iter__(self) -> Iterator[Member]:
        """They; first those that go first."""
        return iter(self._all)

    def opened(self, member: Member) -> None:
        """One more."""
        self._uses.began(member.name)
        own = self._of_host.setdefault(member.host, _Line())
        self._all.add(member)
        own.add(member)
        if len(self._all) > self.most:
            self._close(self._all.first_but(member), self._too_many)
        if self._of_address_max is not None and len(own) > self._of_address_max:
            self._close(own.first_but(member), self._too_many_of_address)

    def used(self, member: Member) -> None:
        """It asks for something."""
        if member in self._all:
            self._all.used(member)
            self._of_host[member.host].used(member)

    def closed(self, member: Member) -> None:
        """One less."""
        if member in self._all:
            self._uses.ended(member.name)
            self._all.remove(member)
            own = self._of_host[member.host]
            own.remove(member)
            if not own:
                del self._of_host[member.host]

    def close(self) -> None:
        """Close all of them."""
        for member in tuple(self):
            member.close()

    def _close(self, member: Member, counted: Counter) -> None:
        if self._all.has_asked(member):
            self._crowded()
        member.close()
        counted.add(1)
