"""`regnum logs NAME`: the output of a process of `regnum up`."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from regnum_service.clock import Clock

BLOCK_BYTES: Final = 64 * 1024
"""What is read of a file at a time."""
LOOK_S: Final = 0.25
"""Between two looks at a file that is followed."""


def last_lines(path: Path, count: int) -> tuple[list[str], int]:
    """The last lines of a file, and how far it was read. Bytes that are no UTF-8 are replaced."""
    with path.open("rb") as file:
        end = at = file.seek(0, 2)
        blocks: list[bytes] = []
        ends = 0
        # One line feed more than lines: the last one ends with it.
        while at and ends <= count:
            size = min(BLOCK_BYTES, at)
            at -= size
            file.seek(at)
            blocks.append(file.read(size))
            ends += blocks[-1].count(b"\n")
    lines = b"".join(reversed(blocks)).splitlines()
    return [line.decode("utf-8", errors="replace") for line in lines[-count:]] if count else [], end


async def later_lines(path: Path, position: int, clock: Clock) -> AsyncIterator[list[str]]:
    """Lines that are written behind a position, as they come, without end. Only whole ones."""
    rest = b""
    with path.open("rb") as file:
        file.seek(position)
        while True:
            piece = file.read(BLOCK_BYTES)
            if not piece:
                await clock.sleep(LOOK_S)
                continue
            *lines, rest = (rest + piece).split(b"\n")
            if lines:
                yield [line.decode("utf-8", errors="replace") for line in lines]
