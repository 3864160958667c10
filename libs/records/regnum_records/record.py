"""Single records, on their way in and out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record to be written."""

    value: bytes | None
    """Value. None: a tombstone."""
    key: bytes | None = None
    """Key. None: without."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Headers in order; names may repeat."""
    timestamp_ms: int | None = None
    """Creation time, milliseconds since 1970. None: the time given for the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as read."""

    offset: int
    """Offset in its partition."""
    timestamp_ms: int
    """Milliseconds since 1970."""
    key: bytes | None
    """Key. None: without."""
    value: bytes | None
    """Value. None: a tombstone."""
    headers: tuple[tuple[str, bytes | None], ...]
    """Headers in order; names may repeat."""
