"""Ports for servers of tests."""

import random

from regnum_service.ports import free_port, free_ports

_RNG = random.Random()  # Not seeded: two test runs at the same time must not choose alike.


def unused_port() -> int:
    """A free port of 127.0.0.1, below the range of outgoing connections."""
    return free_port(_RNG)


def unused_ports(count: int) -> list[int]:
    """That many different ones."""
    return free_ports(_RNG, count)
