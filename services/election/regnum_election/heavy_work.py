"""Pure work on values of any size, which never holds the event loop (safety rule S22)."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

PARTITIONS_ON_LOOP: Final = 1_000
"""Partitions that are put into a picture, or taken out of it, on the loop; more of them on a thread."""

BYTES_ON_LOOP: Final = 64 * 1024
"""Bytes of JSON that are decoded on the loop; more of them on a thread."""


async def beside_loop(work: Callable[[], T], *, light: bool) -> T:
    """The result of a pure function, in this turn of the loop if it is light, and from a thread otherwise.

    The caller's own state must not change meanwhile: what runs on a thread works on frozen values.
    """
    return work() if light else await asyncio.to_thread(work)
