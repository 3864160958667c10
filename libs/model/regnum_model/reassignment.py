"""A reassignment: a partition's way from some brokers to others (seed 001 F, KIP-455).

A partition that moves is assigned to the brokers it comes from and to those it goes to, until every one of the latter
is in sync; then the former are dropped at one stroke. What the topic node says of it is this value, and the replicas
beside it.
"""

from dataclasses import dataclass

from regnum_model.ids import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """An open reassignment of one partition."""

    origin: tuple[BrokerId, ...]
    """Replicas before it began; they stay assigned until it is complete, and min.insync.replicas is counted by them."""
    target: tuple[BrokerId, ...]
    """Replicas afterwards, the preferred leader first. The same as ``origin`` while it is being cancelled."""
    since_ms: int = 0
    """When it was asked for, milliseconds since 1970: those that wait begin in this order."""

    @property
    def cancelling(self) -> bool:
        """Whether it goes back to where it came from."""
        return self.target == self.origin

    @property
    def kept(self) -> tuple[BrokerId, ...]:
        """Every broker that has a part in it, the old ones first: the preferred leader stays what it was."""
        return tuple(dict.fromkeys((*self.origin, *self.target)))

    @property
    def adding(self) -> tuple[BrokerId, ...]:
        """Brokers that it brings in."""
        return tuple(id for id in self.target if id not in self.origin)
