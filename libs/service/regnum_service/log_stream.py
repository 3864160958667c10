"""Where the lines of a process go: a stream that never fails whoever writes to it.

A log often lies on the disk whose failure it is to tell of, or ends in a pipe that nobody reads any more. The line is
lost then. What the writer does next is not: it ends the process, or hands a partition to another broker.
"""

import io
import json
from contextlib import suppress
from typing import Final, TextIO, cast

LOST: Final = "this log could not be written to: lines are missing"
"""Event of the first line after some that were lost."""


def unfailing(stream: TextIO) -> TextIO:
    """The same stream, for writers that it must not fail."""
    return stream if isinstance(stream, LogStream) else cast("TextIO", LogStream(stream))


class LogStream(io.TextIOBase):
    """Text that goes to another stream, as far as that takes it. Any thread, as far as the other one allows it."""

    def __init__(self, stream: TextIO) -> None:
        """Only assigns; ``stream``: where it goes, and closed by whoever opened it."""
        self._stream: Final = stream
        self._error = ""

    def write(self, text: str) -> int:
        """Write, or lose it."""
        try:
            if self._error:
                error, self._error = self._error, ""
                self._stream.write(json.dumps({"event": LOST, "level": "warning", "error": error}) + "\n")
            self._stream.write(text)
        except (OSError, ValueError) as error:
            self._error = str(error)
        return len(text)

    def flush(self) -> None:
        """Hand it to the system, or lose it."""
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._error = str(error)

    def fileno(self) -> int:
        """Descriptor of the other stream. Raises OSError: it has none."""
        return self._stream.fileno()

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        with suppress(ValueError):
            return self._stream.isatty()
        return False

    def writable(self) -> bool:
        """Yes."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Of the other stream."""
        return self._stream.encoding
