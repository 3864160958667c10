"""Links between processes and the connections over them.

A connection keeps the order of all that is sent over it each way, as TCP does for all streams of an HTTP/2 connection.
What is sent over a cut link arrives when the link is whole again, unless a side has given the connection up by then:
clients after CLIENT_PATIENCE_S, servers after SERVER_PATIENCE_S, as the keep-alive options of ``regnum_service`` say.
The kernel of a process that dies closes its connections; that of a paused process accepts and keeps.
"""

import random
import zlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from regnum_testing.simulation.loop import Process, SimulatedLoop

if TYPE_CHECKING:
    from regnum_testing.simulation.channels import ClientCall
    from regnum_testing.simulation.servers import ServerCall, SimulatedServer

CLIENT_PATIENCE_S: Final = 4.0
SERVER_PATIENCE_S: Final = 15.0
CONNECT_S: Final = 1.0
"""What an attempt to connect may take."""

SLOW_SHARE: Final = 0.03
"""Of messages, those that are slow."""


class Pipe:
    """One direction of a connection."""

    def __init__(self, network: "Network", source: Process, target: Process) -> None:
        """Only assigns."""
        self._network: Final = network
        self._source: Final = source
        self._target: Final = target
        self._free_s = 0.0
        self._under_way: Final[deque[tuple[Callable[..., object], tuple[Any, ...]]]] = deque()
        self._stalled = 0
        """Of those, how many would have arrived if the link were whole."""
        self.broken = False
        """Whether nothing arrives any more."""

    def send(self, arrive: Callable[..., object], *what: Any) -> None:
        """Have that called where it arrives, after all that was sent before."""
        network = self._network
        network.messages += 1
        for part in what:
            if isinstance(part, bytes | str):
                network.note(part if isinstance(part, bytes) else part.encode())
        self._under_way.append((arrive, what))
        self._go()

    def _go(self) -> None:
        network = self._network
        now_s = network.loop.time()
        self._free_s = max(self._free_s + 1e-6, now_s + network.delay_s())
        network.loop.in_world(self._free_s - now_s, self._arrived)

    def _arrived(self) -> None:
        """The first of those under way arrives, whichever of them this was made for: what was cut off goes first."""
        if self.broken:
            return
        if self._network.is_cut(self._source, self._target):
            self._stalled += 1
            return
        arrive, what = self._under_way.popleft()
        arrive(*what)

    def release(self) -> None:
        """The link is whole again: what waited is sent once more."""
        if not self._network.is_cut(self._source, self._target):
            stalled, self._stalled = self._stalled, 0
            for _ in range(stalled):
                self._go()


class Connection:
    """Between a client and a server process."""

    def __init__(
        self, network: "Network", number: int, client: Process, server: "SimulatedServer", address: str
    ) -> None:
        """Only assigns; ``address``: where the client meant to go."""
        self._network: Final = network
        self.number: Final = number
        self.address: Final = address
        self.client: Final = client
        self.server: Final = server
        self.up: Final = Pipe(network, client, server.process)
        self.down: Final = Pipe(network, server.process, client)
        self.client_calls: Final[dict[int, ClientCall]] = {}
        self.server_calls: Final[dict[int, ServerCall]] = {}
        self.client_open = self.server_open = True
        self._silent_since_s: float | None = None

    @property
    def peer(self) -> str:
        """The client as the server's gRPC names it."""
        return f"ipv4:127.0.0.1:{10_000 + self.number % 50_000}"

    def look(self) -> None:
        """A link was cut or healed, or a process paused or goes on: begin, or end, to lose patience."""
        network = self._network
        client, server = self.client, self.server.process
        is_silent = client.paused or server.paused or network.is_cut(client, server) or network.is_cut(server, client)
        if not is_silent:
            self._silent_since_s = None
        elif self._silent_since_s is None:
            self._silent_since_s = since_s = network.loop.time()
            network.loop.in_world(CLIENT_PATIENCE_S, self._give_up, since_s, self.break_client)
            network.loop.in_world(SERVER_PATIENCE_S, self._give_up, since_s, self.break_server)
        self.up.release()
        self.down.release()

    def _give_up(self, since_s: float, give_up: Callable[[], None]) -> None:
        if self._silent_since_s == since_s:
            give_up()

    def break_client(self) -> None:
        """The client's side is over; the server's will be when it hears of that."""
        if not self.client_open:
            return
        self.client_open, self.down.broken = False, True
        for call in tuple(self.client_calls.values()):
            call.broken()
        self.up.send(self.break_server)
        self._forget()

    def break_server(self) -> None:
        """The same the other way."""
        if not self.server_open:
            return
        self.server_open, self.up.broken = False, True
        for call in tuple(self.server_calls.values()):
            call.cancel()
        self.down.send(self.break_client)
        self._forget()

    def _forget(self) -> None:
        if not (self.client_open or self.server_open):
            self._network.connections.pop(self.number, None)


class Network:
    """All links, listeners and connections."""

    def __init__(self, loop: SimulatedLoop, chance: random.Random) -> None:
        """Only assigns."""
        self.loop: Final = loop
        self.chance: Final = chance
        self.listeners: Final[dict[str, SimulatedServer]] = {}
        """By address."""
        self.connections: Final[dict[int, Connection]] = {}
        self._cuts: Final[set[tuple[str, str]]] = set()
        self._detours: Final[dict[str, str]] = {}
        self._numbers = 0
        self.messages = 0
        """Sent so far."""
        self.slowest_s = 0.15
        """What a slow message takes at most."""
        self.digest = 0
        """Of all that was sent, and when."""
        self.on_call: Callable[[Process, Process, str], None] = lambda *_: None
        """Told of each call that is sent: from where, where to, its method."""

    def note(self, data: bytes) -> None:
        """Have the digest take that in, with the time, but for the order in it: protobuf writes maps in any order."""
        said = f"{self.loop.time()!r} {len(data)} {sum(data)}"
        self.digest = zlib.crc32(said.encode(), self.digest)

    def delay_s(self) -> float:
        """What the next message takes."""
        chance = self.chance
        return chance.uniform(0.0, self.slowest_s) if chance.random() < SLOW_SHARE else chance.uniform(1e-4, 2e-3)

    def at(self, address: str) -> "SimulatedServer | None":
        """What takes connections at an address."""
        return self.listeners.get(self._detours.get(address, address))

    def detour(self, address: str, other: str) -> None:
        """Have another process answer at an address: its connections end, and the next ones go astray."""
        self._detours[address] = other
        self._end_those_to({address})

    def straight(self) -> None:
        """Undo all detours; connections that went astray end."""
        astray = set(self._detours)
        self._detours.clear()
        self._end_those_to(astray)

    def _end_those_to(self, addresses: set[str]) -> None:
        for connection in tuple(self.connections.values()):
            if connection.address in addresses:
                connection.break_client()

    def is_listening(self, process: Process) -> bool:
        """Whether a process takes connections."""
        return any(
            server.process is process and self.at(address) is server for address, server in self.listeners.items()
        )

    def is_cut(self, source: Process, target: Process) -> bool:
        """Whether nothing gets from one to the other."""
        return bool(self._cuts) and (source.name, target.name) in self._cuts

    def cut(self, source: str, target: str) -> None:
        """Let nothing through in that direction."""
        self._cuts.add((source, target))
        self.look()

    def join(self, source: str, target: str) -> None:
        """Undo one cut."""
        self._cuts.discard((source, target))
        self.look()

    def heal(self) -> None:
        """Undo all cuts."""
        self._cuts.clear()
        self.look()

    def look(self) -> None:
        """Links or processes changed."""
        for connection in tuple(self.connections.values()):
            connection.look()

    def connect(self, client: Process, server: "SimulatedServer", address: str) -> Connection:
        """A connection that stands, of a client that meant to go to that address."""
        self._numbers += 1
        made = self.connections[self._numbers] = Connection(self, self._numbers, client, server, address)
        return made

    def died(self, process: Process) -> None:
        """The kernel closes what a process had open."""
        for address in [address for address, server in self.listeners.items() if server.process is process]:
            del self.listeners[address]
        for connection in tuple(self.connections.values()):
            if connection.client is process:
                connection.client_open, connection.down.broken = False, True
                connection.up.send(connection.break_server)
            if connection.server.process is process:
                connection.server_open, connection.up.broken = False, True
                connection.down.send(connection.break_client)
