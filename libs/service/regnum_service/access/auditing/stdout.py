"""Lines of an audit log on standard output. Called on the log's own thread."""

import os
from typing import Final

STDOUT: Final = 1
"""File descriptor."""


class StandardOutput:
    """Lines of the log, as they are, between what else the process writes there. A reader that is slow costs lines."""

    def __init__(self, descriptor: int = STDOUT) -> None:
        """Only assigns."""
        self._descriptor: Final = descriptor

    def append(self, lines: bytes) -> None:
        """Write whole lines. Raises OSError."""
        written = 0
        while written < len(lines):
            written += os.write(self._descriptor, lines[written:])

    def sync(self) -> None:
        """What reads them keeps them, or does not."""

    def close(self) -> None:
        """It stays open: it is the process'."""
