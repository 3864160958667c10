"""How many connections a listener keeps, and which go when there are more.

Goals: whoever opens many connections takes the place of nobody who uses theirs; files of the process are left for its
other listeners and its logs. gRPC's own limit (``grpc.max_allowed_incoming_connections``) refuses whoever comes next,
who may be a client that behaves.

Algorithm: as long as this network has no more sockets than the listener may have connections, nothing but that number
is looked at. Otherwise the kernel's table says who is connected (which takes milliseconds to read, however little is in
it, so it is read the less often the longer that takes), and the calls of this process who does anything. Of more than
the limit, those without a call under way go first, the ones that never made one before all others, then those whose
last call is the longest ago; if that is not enough, those with calls under way, the newest first. A connection that is
cut off ends for gRPC as if its client had gone.

Where connections from one address are bounded, too (off by default: behind a NAT many clients share one), those of an
address that has more go first, in the same order.

Example: with room for 3, one client streams, two called a minute and a second ago, and three say nothing. The three
are closed.
"""

import asyncio
import resource
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import structlog
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics

from regnum_service.clock import Clock
from regnum_service.connections import cut_off, peer_name, peers_at, place_of, sockets

INTERVAL_S: Final = 1.0
"""Pause between two looks."""

LOOK_SHARE: Final = 0.0025
"""Reading the table takes no more than this part of a processor, while nothing is found to be too much,"""

LOOK_INTERVAL_S_MAX: Final = 5.0
"""unless it would be read less often than this."""

FORGET_INTERVAL_S: Final = 60.0
"""Longest pause between two looks who is connected: what is remembered of others is let go then."""

CROWDED_S: Final = 10.0
"""For so long after connections were closed that had made calls, the listener counts as crowded."""

SHARE_OF_FILES: Final = 0.5
"""Of the files that the process may open; the rest is for other listeners, logs and the store."""


ADDRESS: Final = "address"
LISTENER: Final = "listener"
"""Of which there were too many connections."""


@dataclass(slots=True)
class Use:
    """Of one connection."""

    name: str
    """Of the other side, as ``connections.peers_at`` gives it."""
    began_s: float
    """Monotonic time of its first call."""
    last_s: float
    """Of the last beginning or end of one."""
    under_way: int = 0
    """Calls now."""


def crowded(
    connected: Collection[str], used: Mapping[str, Use], *, limit: int, of_address: int | None
) -> tuple[list[str], int]:
    """Connections to close, and how many of them for the number from their own address. Pure.

    Args:
        connected: those that there are.
        used: what they are used for, by name.
        limit: as many are left at most.
        of_address: as many of one address are; None: any number.
    """
    doomed: list[str] = []
    if of_address is not None:
        places: dict[str, list[str]] = {}
        for peer in connected:
            places.setdefault(peer.rpartition(":")[0], []).append(peer)
        for peers in places.values():
            doomed += surplus(peers, used, of_address)
    left = set(connected).difference(doomed)
    return [*doomed, *surplus(left, used, limit)], len(doomed)


def surplus(connected: Collection[str], used: Mapping[str, Use], limit: int) -> list[str]:
    """Connections to close, so that no more than the limit are left. Pure."""
    if len(connected) <= limit:
        return []
    idle: list[tuple[float, str]] = []
    busy: list[tuple[float, str]] = []
    for peer in connected:
        use = used.get(peer)
        if use is None:
            idle.append((float("-inf"), peer))
        elif use.under_way:
            busy.append((-use.began_s, peer))
        else:
            idle.append((use.last_s, peer))
    in_order = [peer for _, peer in sorted(idle)] + [peer for _, peer in sorted(busy)]
    return in_order[: len(connected) - limit]


class Uses:
    """What the connections of a listener are used for. Belongs to its event loop."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        """Only assigns."""
        self._now_s: Final = monotonic_s
        self.by_peer: Final[dict[str, Use]] = {}
        """By what gRPC calls the other side; of those that made a call."""

    def began(self, peer: str) -> None:
        """A call begins on that connection."""
        now_s = self._now_s()
        use = self.by_peer.get(peer)
        if use is None:
            use = self.by_peer[peer] = Use(_plain_name(peer), now_s, now_s)
        use.last_s = now_s
        use.under_way += 1

    def ended(self, peer: str) -> None:
        """A call has ended."""
        use = self.by_peer.get(peer)
        if use is not None:
            use.last_s = self._now_s()
            use.under_way -= 1

    def keep(self, connected: Collection[str]) -> None:
        """The others are gone."""
        gone = [peer for peer, use in self.by_peer.items() if not use.under_way and use.name not in connected]
        for peer in gone:
            del self.by_peer[peer]

    def by_name(self) -> dict[str, Use]:
        """By what ``connections.peers_at`` calls the other side."""
        return {use.name: use for use in self.by_peer.values()}


class Crowding:
    """Whether clients that made calls were closed lately since there are too many connections.

    Connections that never made a call are closed without a word: they take the place of nobody.
    """

    def __init__(self, limit: int, *, listener: str, option: str, which: str, clock: Clock) -> None:
        """Only assigns.

        Args:
            limit: connections that are kept.
            listener: its name.
            option: that sets the limit.
            which: are closed, in words.
            clock: source of time.
        """
        self._clock: Final = clock
        self._words: Final = (
            f"more than {limit} connections at its {listener} listener: {which}, are closed; see {option} and the open"
            " files (ulimit -n)"
        )
        self._until_s = clock.monotonic()

    def noted(self) -> None:
        """One was closed."""
        self._until_s = self._clock.monotonic() + CROWDED_S

    @property
    def words(self) -> str:
        """That they were; empty: they were not."""
        return self._words if self._clock.monotonic() < self._until_s else ""


class ConnectionLimit:
    """Of one listener. Belongs to its event loop."""

    def __init__(
        self,
        connections_max: int,
        *,
        listener: str,
        port: Callable[[], int],
        clock: Clock,
        sockets: Callable[[], int | None] = sockets,
        peers: Callable[[int], set[str] | None] = peers_at,
        of_address: int | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """Only assigns.

        Args:
            connections_max: as many are kept; fewer where the process may open fewer files.
            listener: its name, for the log.
            port: where it listens.
            clock: source of time.
            sockets: how many there are at all, those of others included; None: nobody knows.
            peers: who has a connection to a port; called on a thread. None: nobody knows.
            of_address: as many connections from one address are kept; None: any number.
            metrics: where it is counted how many are closed; None: nobody asks.
        """
        self._of_address: Final = of_address
        counted = metrics or Metrics()
        self._closed: Final = {
            reason: counted.counter(instruments.CONNECTIONS_CLOSED, listener, reason) for reason in (ADDRESS, LISTENER)
        }
        self._sockets: Final = sockets
        self._peers: Final = peers
        self._looked_s = clock.monotonic()
        self._rests_until_s = self._looked_s
        self._max: Final = min(connections_max, files_for_connections())
        self._listener: Final = listener
        self._port: Final = port
        self._clock: Final = clock
        self._crowding: Final = Crowding(
            self._max,
            listener=listener,
            option=f"--{listener}-max-connections",
            which="those that are used least, and the newest",
            clock=clock,
        )
        self.uses: Final = Uses(clock.monotonic)
        """What the connections are used for; whoever begins a call says so."""

    async def run(self) -> None:
        """Look again and again; a task of the supervisor."""
        log = structlog.get_logger("connections").bind(listener=self._listener, limit=self._max)
        while True:
            await self._clock.sleep(INTERVAL_S)
            closed = await self.look()
            if closed:
                log.warning("more connections than are kept; idle ones were closed", closed=closed)

    @property
    def crowded(self) -> str:
        """That clients which made calls were closed lately since there are too many, in words; empty: none were."""
        return self._crowding.words

    async def look(self) -> int:
        """Close what is too much; returns how many connections were closed."""
        now_s = self._clock.monotonic()
        if now_s < self._rests_until_s or self._has_room(now_s):
            return 0
        self._looked_s = now_s
        port = self._port()
        # On a thread: with many connections the kernel's table is large.
        connected = await asyncio.to_thread(self._peers, port)
        if connected is None:
            return 0
        self.uses.keep(connected)
        used = self.uses.by_name()
        doomed, of_address = crowded(connected, used, limit=self._max, of_address=self._of_address)
        if not doomed:
            took_s = self._clock.monotonic() - now_s
            self._rests_until_s = now_s + min(took_s / LOOK_SHARE, LOOK_INTERVAL_S_MAX)
            return 0
        self._closed[ADDRESS].add(of_address)
        self._closed[LISTENER].add(len(doomed) - of_address)
        if not used.keys().isdisjoint(doomed):
            self._crowding.noted()
        return await asyncio.to_thread(cut_off, port, doomed)

    def _has_room(self, now_s: float) -> bool:
        """Whether there cannot be too many, and little is remembered of those that are gone."""
        if now_s - self._looked_s >= FORGET_INTERVAL_S or len(self.uses.by_peer) > self._max:
            return False
        # On the loop: some microseconds.
        sockets = self._sockets()
        return sockets is not None and sockets <= min(self._max, self._of_address or self._max)


def _plain_name(peer: str) -> str:
    place = place_of(peer)
    return peer if place is None else peer_name(*place)


def files_for_connections() -> int:
    """How many connections the files that this process may open are enough for."""
    return max(1, int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * SHARE_OF_FILES))
