"""When a segment is closed and the next one begun. Pure.

A batch goes into a new segment when the present one has batches and would become larger than ``segment.bytes``, could
not count its offsets any more, or is older than ``segment.ms``. Its age is the broker's own time since its first
append in this run, and not what records say of theirs: a producer that sends wrong timestamps would otherwise make
one segment of each batch. (Kafka takes the records' timestamps, and the file's age where it has none.)

Where ``retention.bytes`` is set, a segment is also closed at a fortieth of that: whole segments are deleted, once in a
segment, so a log is larger by less than two of them, and is to stay within a tenth of its limit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from regnum_model.config_definition import CLEANUP_COMPACT, CLEANUP_DELETE
from regnum_model.configs import (
    CLEANUP_POLICY,
    DEFINITIONS,
    DELETE_RETENTION_MS,
    MIN_CLEANABLE_DIRTY_RATIO,
    MIN_COMPACTION_LAG_MS,
    ReplicaSettings,
)

from regnum_broker.log.replica.index import INTERVAL_BYTES
from regnum_broker.log.replica.parts import Part

OFFSETS_IN_SEGMENT_MAX: Final = 2**31 - 1

SHARED_MAX: Final = 1024
"""So many different settings are remembered."""

RETAINED_SEGMENTS: Final = 40
"""So many segments at least make up a log of ``retention.bytes``."""
RETAINED_SEGMENT_BYTES_MIN: Final = 1024 * 1024
"""No segment is closed below this size for that reason: a small log has few files."""


def limit(told: int | None) -> int | None:
    """What a setting says that may be -1: None, as where nobody set it, is no limit."""
    return None if told is None or told < 0 else told


def _told(name: str, value: int | None) -> int:
    return DEFINITIONS[name].default if value is None else value


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How a replica keeps its log."""

    segment_bytes: int
    """Size at which a segment is closed."""
    segment_ms: int | None = None
    """Age at which it is, in milliseconds; None: at none."""
    index_interval_bytes: int = INTERVAL_BYTES
    """Bytes between two entries of its index."""
    retention_bytes: int | None = None
    """Size above which the oldest segments are deleted; None: at none."""
    retention_ms: int | None = None
    """Age at which they are, in milliseconds; None: at none."""
    is_compacted: bool = False
    """Whether only the newest record of each key is kept."""
    is_deleted: bool = True
    """Whether records may be deleted because there are too many of them, because they are too old, or on request."""
    min_cleanable_dirty_ratio: int = DEFINITIONS[MIN_CLEANABLE_DIRTY_RATIO].default
    """Part of it that is not compacted yet when it is compacted, in thousandths."""
    delete_retention_ms: int = DEFINITIONS[DELETE_RETENTION_MS].default
    """How long a deletion is kept after compaction has come to it, in milliseconds."""
    min_compaction_lag_ms: int = DEFINITIONS[MIN_COMPACTION_LAG_MS].default
    """How long records are kept as they are before compaction, in milliseconds."""
    max_compaction_lag_ms: int | None = None
    """Age of the oldest record that is not compacted yet at which the log is, in milliseconds; None: at none."""
    flush_messages: int | None = None
    """Records after which all is brought to the disk before the last of them counts as written; None: after none."""
    flush_ms: int | None = None
    """Milliseconds after which an append is brought to the disk; None: after none."""

    @property
    def is_limited(self) -> bool:
        """Whether anything is deleted because there is too much of it, or it is too old."""
        return self.retention_bytes is not None or self.retention_ms is not None

    def told(self, settings: ReplicaSettings) -> "LogSettings":
        """These, with what the controller says goes before them. Replicas with the same settings share one object."""
        return _told_settings(self, settings)

    def is_too_old(self, began_ms: int | None, now_ms: int) -> bool:
        """Whether a segment that began then is closed by the next append; None: nothing was appended in this run."""
        return self.segment_ms is not None and began_ms is not None and now_ms - began_ms >= self.segment_ms

    def portions(
        self, parts: Sequence[Part], base_offset: int, size_bytes: int, *, too_old: bool
    ) -> Iterator[tuple[bool, list[Part]]]:
        """Batches by segment: whether they begin a new one, and which.

        Args:
            parts: batches that continue the log.
            base_offset: first offset of the present segment.
            size_bytes: its size.
            too_old: whether it takes no more batches.
        """
        begins = size_bytes > 0 and too_old
        portion: list[Part] = []
        base, size = (parts[0].header.base_offset, 0) if begins else (base_offset, size_bytes)
        for part in parts:
            full = size + part.header.size_bytes > self.segment_bytes
            if size > 0 and (full or part.header.last_offset - base > OFFSETS_IN_SEGMENT_MAX):
                if portion:
                    yield begins, portion
                begins, portion, base, size = True, [], part.header.base_offset, 0
            portion.append(part)
            size += part.header.size_bytes
        if portion:
            yield begins, portion


@lru_cache(maxsize=SHARED_MAX)
def _told_settings(defaults: LogSettings, settings: ReplicaSettings) -> LogSettings:
    segment_bytes = defaults.segment_bytes if settings.segment_bytes is None else settings.segment_bytes
    segment_ms = defaults.segment_ms if settings.segment_ms is None else settings.segment_ms
    policy = _told(CLEANUP_POLICY, settings.cleanup_policy)
    is_deleted = bool(policy & CLEANUP_DELETE)
    retention_bytes = limit(settings.retention_bytes) if is_deleted else None
    if retention_bytes is not None:
        segment_bytes = min(segment_bytes, max(retention_bytes // RETAINED_SEGMENTS, RETAINED_SEGMENT_BYTES_MIN))
    if policy & CLEANUP_COMPACT and settings.max_compaction_lag_ms is not None:
        # Only what is closed is compacted.
        segment_ms = min(segment_ms or settings.max_compaction_lag_ms, settings.max_compaction_lag_ms)
    return LogSettings(
        segment_bytes=segment_bytes,
        segment_ms=segment_ms,
        index_interval_bytes=defaults.index_interval_bytes
        if settings.index_interval_bytes is None
        else settings.index_interval_bytes,
        retention_bytes=retention_bytes,
        retention_ms=limit(settings.retention_ms) if is_deleted else None,
        is_compacted=bool(policy & CLEANUP_COMPACT),
        is_deleted=is_deleted,
        min_cleanable_dirty_ratio=_told(MIN_CLEANABLE_DIRTY_RATIO, settings.min_cleanable_dirty_ratio),
        delete_retention_ms=_told(DELETE_RETENTION_MS, settings.delete_retention_ms),
        max_compaction_lag_ms=settings.max_compaction_lag_ms,
        min_compaction_lag_ms=_told(MIN_COMPACTION_LAG_MS, settings.min_compaction_lag_ms),
        flush_messages=settings.flush_messages,
        flush_ms=settings.flush_ms,
    )
