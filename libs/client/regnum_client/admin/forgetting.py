"""What is remembered of a broker that never comes back, as callers get it. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenBroker:
    """What was, or would be, forgotten."""

    deletions: int
    """Deletions of topics that waited for the broker."""
    deletions_ended: int
    """Those of them that waited for nobody else."""
    assigned_partitions: int
    """Partitions whose assignment still names it; they stay as they are."""
