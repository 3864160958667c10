"""Ports for servers of tests."""

import random
from typing import Final

from regnum_service.ports import free_port

_RNG: Final = random.Random()  # Not seeded: two test runs at the same time must not choose alike.

_GIVEN_MAX: Final = 5_000
"""Ports that are remembered; far fewer than there are."""

_given: Final[dict[int, None]] = {}
"""Ports that this process was given, the latest last: bound a moment later, they look free to the next who asks."""


def unused_port() -> int:
    """A free port of 127.0.0.1, below the range of outgoing connections, that nobody was given lately."""
    port = free_port(_RNG, taken=_given.keys())
    _given[port] = None
    if len(_given) > _GIVEN_MAX:
        del _given[next(iter(_given))]
    return port


def unused_ports(count: int) -> list[int]:
    """That many different ones."""
    return [unused_port() for _ in range(count)]
