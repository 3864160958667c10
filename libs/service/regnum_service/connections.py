"""TCP connections at a listener, as the kernel counts them, since gRPC does not tell; and how one is ended.

They are read on the thread that makes the text of the metrics, never on an event loop: with 10,000 connections the
kernel's table has some 1.5 MB.
"""

import ipaddress
import os
import socket
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote

TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
"""Connections of this process's network, in version 4 and 6."""

COUNTS: Final = (Path("/proc/self/net/sockstat"), Path("/proc/self/net/sockstat6"))
"""How many sockets this process's network has, in version 4 and 6."""

OPEN_FILES: Final = Path("/proc/self/fd")
"""Files of this process by number."""

Place: TypeAlias = tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]

ESTABLISHED: Final = b"01"
"""State of an open connection in these tables."""


def open_at(port: int, tables: Iterable[Path] = TABLES) -> int | None:
    """How many connections are open at a local port; None: this system does not tell. Any thread."""
    counts = [_count(table, b":%04X" % port) for table in tables]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def sockets(counts: Iterable[Path] = COUNTS) -> int | None:
    """How many TCP sockets this process's network has, those that listen included; None: this system does not tell.

    Takes microseconds. To read the tables takes milliseconds even where they are empty: the kernel walks all places of
    a hash that is as large as the machine's memory allows.
    """
    known = [count for path in counts if (count := _in_use(path)) is not None]
    return sum(known) if known else None


def _in_use(path: Path) -> int | None:
    try:
        # Of lines such as: TCP: inuse 27 orphan 0 tw 0 alloc 30 mem 2
        lines = path.read_bytes().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, rest = line.partition(b": inuse ")
        if name in {b"TCP", b"TCP6"}:
            return int(rest.split(None, 1)[0])
    return None


def _count(table: Path, ending: bytes) -> int | None:
    try:
        lines = table.read_bytes().splitlines()[1:]
    except OSError:
        return None
    return sum(1 for line in lines if _is_open_at(line, ending))


def _is_open_at(line: bytes, ending: bytes) -> bool:
    # "sl: local_address remote_address st ...": most lines are of other ports, and are told apart without being split.
    if ending not in line:
        return False
    columns = line.split(None, 4)
    return len(columns) > 3 and columns[1].endswith(ending) and columns[3] == ESTABLISHED


def peers_at(port: int, tables: Iterable[Path] = TABLES) -> set[str] | None:
    """Who has a connection to a local port, as gRPC calls them; None: this system does not tell. Any thread."""
    ending = b":%04X" % port
    found: set[str] | None = None
    for table in tables:
        try:
            lines = table.read_bytes().splitlines()[1:]
        except OSError:
            continue
        found = set() if found is None else found
        found.update(_peer(line.split(None, 4)[2]) for line in lines if _is_open_at(line, ending))
    return found


def _peer(column: bytes) -> str:
    """The other end, from its column of the kernel's table: groups of four bytes, each in the machine's order."""
    host, _, port = column.partition(b":")
    packed = bytes.fromhex(host.decode())
    words = b"".join(packed[at : at + 4][:: -1 if sys.byteorder == "little" else 1] for at in range(0, len(packed), 4))
    address = plain_address(str(ipaddress.ip_address(words)))
    return peer_name(address, int(port, 16))


def peer_name(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    """How gRPC names a peer; one of version 4 always as that."""
    return f"ipv4:{address}:{port}" if address.version == 4 else f"ipv6:%5B{address}%5D:{port}"


def counted_at(port: Callable[[], int], listener: str) -> Callable[[], Iterable[tuple[tuple[str, ...], float]]]:
    """What a metric reads: the connections at a listener by its name."""

    def read() -> Iterable[tuple[tuple[str, ...], float]]:
        count = open_at(port())
        return () if count is None else (((listener,), count),)

    return read


def incarnations(port: int, peers: Collection[str], tables: Iterable[Path] = TABLES) -> dict[str, int] | None:
    """Which of these connections at a local port are open, each with the number of its socket. Any thread.

    Another connection from the same address and port has another number. A peer that is no TCP connection is always
    open, as number 0. None: this system does not tell.

    Args:
        port: where they came in.
        peers: theirs, as gRPC names them (``context.peer()``).
        tables: the kernel's.
    """
    found: dict[str, int] = {}
    wanted: dict[bytes, str] = {}
    for peer in peers:
        place = place_of(peer)
        if place is None:
            found[peer] = 0
        else:
            wanted.update(dict.fromkeys(_columns(place), peer))
    known = [_find(table, b":%04X" % port, wanted, found) for table in tables]
    return found if any(known) else None


def _columns(place: Place) -> tuple[bytes, ...]:
    """How the kernel's tables write an address and a port: words of 32 bits in the machine's order."""
    address, port = place
    ends = [address.packed]
    if isinstance(address, ipaddress.IPv4Address):
        ends.append(bytes(10) + b"\xff\xff" + address.packed)
    return tuple(
        b"%s:%04X"
        % (
            b"".join(b"%08X" % int.from_bytes(end[at : at + 4], sys.byteorder) for at in range(0, len(end), 4)),
            port,
        )
        for end in ends
    )


def _find(table: Path, ending: bytes, wanted: dict[bytes, str], found: dict[str, int]) -> bool:
    try:
        lines = table.read_bytes().splitlines()[1:]
    except OSError:
        return False
    for line in lines:
        if _is_open_at(line, ending):
            columns = line.split(None, 10)
            peer = wanted.get(columns[2])
            if peer is not None:
                found[peer] = int(columns[9])
    return True


def cut_off(port: int, peers: Collection[str]) -> int:
    """End connections at a local port, with all calls on them; returns how many were found. Any thread but a loop's.

    gRPC sees what it sees when a client is gone, lets go of what it wanted to send, and cancels the handlers.

    Args:
        port: where they came in.
        peers: theirs, as gRPC names them (``context.peer()``).
    """
    wanted = {place for peer in peers if (place := place_of(peer)) is not None}
    try:
        numbers = [int(entry.name) for entry in OPEN_FILES.iterdir()]
    except OSError:
        return 0
    return sum(_cut_off(number, port, wanted) for number in numbers)


def place_of(peer: str) -> Place | None:
    """Address and port of a peer: ``ipv4:10.0.0.1:5``, ``ipv6:%5B::1%5D:5``."""
    family, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    if family not in {"ipv4", "ipv6"}:
        return None
    try:
        return plain_address(host.strip("[]")), int(port)
    except ValueError:
        return None


def plain_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address; one of version 4 is that also where a socket of version 6 took it."""
    address = ipaddress.ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def _cut_off(number: int, port: int, wanted: Collection[Place]) -> bool:
    # Of a copy: the number may be another file's by now, and its owner still closes it.
    try:
        copy = os.dup(number)
    except OSError:
        return False
    try:
        end = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return False
    with end:
        try:
            if end.family not in {socket.AF_INET, socket.AF_INET6} or end.getsockname()[1] != port:
                return False
            host, peer_port = end.getpeername()[:2]
            if (plain_address(host), peer_port) not in wanted:
                return False
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            # Not connected, or no more.
            return False
    return True
