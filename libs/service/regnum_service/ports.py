"""Free TCP ports that the machine will not hand to somebody's outgoing connection meanwhile."""

import random
import socket
from collections.abc import Collection
from pathlib import Path
from typing import Final

from regnum_service.errors import StartRefusedError

LOW: Final = 15_000
"""Lowest port that is tried."""
EPHEMERAL_LOW_DEFAULT: Final = 32_768
"""Where outgoing connections begin on a Linux that does not say otherwise."""
TRIES: Final = 500
_RANGE_FILE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a listener could bind the port now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As gRPC and etcd bind: connections of a predecessor that linger do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(rng: random.Random, *, taken: Collection[int] = (), host: str = "127.0.0.1") -> int:
    """A port below the ephemeral range that nobody listens on and that is not in ``taken``."""
    high = _ephemeral_low()
    for _ in range(TRIES):
        port = rng.randrange(LOW, high)
        if port not in taken and is_free(port, host):
            return port
    raise StartRefusedError(f"no free port from {LOW} to {high - 1} on {host}; stop what listens there")


def free_ports(rng: random.Random, count: int, *, taken: Collection[int] = (), host: str = "127.0.0.1") -> list[int]:
    """That many different free ports."""
    ports: list[int] = []
    for _ in range(count):
        ports.append(free_port(rng, taken=(*taken, *ports), host=host))
    return ports


def _ephemeral_low() -> int:
    try:
        low = int(_RANGE_FILE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        low = EPHEMERAL_LOW_DEFAULT
    return max(low, LOW + 1_000)
