"""What the traces say of outages beside what the acknowledgements themselves say. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from regnum_insight.attribution.chains import Chain
from regnum_insight.attribution.changes import UNTRACED, Change

TOLERANCE_MS: Final = 5.0
"""By how much a chain may differ from the gap between acknowledgements."""
UNEXPLAINED_MS: Final = 3.0
"""So much of a chain may be unexplained, or so large a share of it, whichever is more."""
UNEXPLAINED_SHARE: Final = 0.05
QUIET_FACTOR: Final = 1.5
"""A pause is so many times as long as the longest time between acknowledgements in quiet, and"""
QUIET_MS: Final = 10.0
"""so much longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The longest time without an acknowledgement of one partition."""

    partition: str
    """``orders/0``."""
    begin_ns: int
    """Last acknowledgement before."""
    end_ns: int
    """First acknowledgement after."""

    @property
    def ms(self) -> float:
        """Its length."""
        return (self.end_ns - self.begin_ns) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One pause beside its chain."""

    pause: Pause
    """By the acknowledgements."""
    chain: Chain | None
    """By the traces; None: they have none for it."""
    change: Change | None
    """The change that the chain is of."""
    stayed: bool = False
    """Whether its leader stayed: its producers waited for a replica that was gone."""

    @property
    def difference_ms(self) -> float | None:
        """How much longer the chain is."""
        return None if self.chain is None else self.chain.outage_ms - self.pause.ms

    @property
    def complaint(self) -> str:
        """What does not fit; empty: it does."""
        about = f"{self.pause.partition} paused {self.pause.ms:.1f} ms"
        if self.chain is None or self.change is None:
            return f"{about}, and no trace tells of it{'; its leader stayed' if self.stayed else ''}"
        if self.change.kind == UNTRACED:
            return f"{about}, and its outage is in no change's trace"
        if abs(self.chain.outage_ms - self.pause.ms) > TOLERANCE_MS:
            return f"{about}, and its chain is {self.chain.outage_ms:.1f} ms"
        allowed = max(UNEXPLAINED_MS, UNEXPLAINED_SHARE * self.chain.outage_ms)
        if self.chain.unexplained_ms > allowed:
            return f"{about}, of which {self.chain.unexplained_ms:.1f} ms are unexplained"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One scenario, once."""

    name: str
    """The scenario."""
    begin_ns: int
    """When it was begun."""
    end_ns: int
    """When all flowed again."""
    quiet_ms: float
    """Longest time without an acknowledgement before it."""
    kinds: Sequence[str]
    """Kinds of changes of which one has to be listed."""
    stayed: frozenset[str] = frozenset()
    """Partitions whose leader was the same in the same leader epoch afterwards."""
    changes: Sequence[Change] = ()
    """Changes that the traces list for that time."""
    compared: Sequence[Compared] = field(default=())
    """Partitions that paused for longer than in quiet."""

    def complaints(self, *, moved_only: bool = False) -> tuple[str, ...]:
        """What does not hold; ``moved_only``: of partitions that got another leader, or the same one anew."""
        judged = [one for one in self.compared if not (moved_only and one.stayed)]
        found = [one.complaint for one in judged if one.complaint]
        listed = {change.kind for change in self.changes}
        missing = [kind for kind in self.kinds if kind not in listed]
        found += [f"no change of kind {kind!r} is listed" for kind in missing]
        return tuple(found)


def longest_pauses(moments_ns: Mapping[str, Sequence[int]], begin_ns: int, end_ns: int) -> list[Pause]:
    """The longest pause of each partition among those that overlap a time, the longest first."""
    found = []
    for partition, moments in moments_ns.items():
        pairs = [(one, other) for one, other in pairwise(moments) if other >= begin_ns and one <= end_ns]
        if pairs:
            begin, end = max(pairs, key=lambda pair: pair[1] - pair[0])
            found.append(Pause(partition=partition, begin_ns=begin, end_ns=end))
    return sorted(found, key=lambda pause: -pause.ms)


def compared(
    pauses: Sequence[Pause], changes: Sequence[Change], *, quiet_ms: float, stayed: Collection[str] = ()
) -> list[Compared]:
    """Each pause that is longer than in quiet, with the producer's chain that overlaps it most."""
    chains = [(chain, change) for change in changes for chain in change.chains]
    found = []
    for pause in pauses:
        if pause.ms <= quiet_ms * QUIET_FACTOR + QUIET_MS:
            continue

        def shared_ns(of: tuple[Chain, Change], pause: Pause = pause) -> int:
            return min(of[0].end_ns, pause.end_ns) - max(of[0].start_ns, pause.begin_ns)

        of_it = [pair for pair in chains if pair[0].name == pause.partition and shared_ns(pair) > 0]
        chain, change = max(of_it, key=shared_ns, default=(None, None))
        found.append(Compared(pause=pause, chain=chain, change=change, stayed=pause.partition in stayed))
    return found


def within(changes: Sequence[Change], begin_ns: int, end_ns: int) -> list[Change]:
    """Changes that began in a time, or of which a chain lies in it."""
    return [
        change
        for change in changes
        if begin_ns <= change.start_ns <= end_ns
        or any(chain.end_ns >= begin_ns and chain.start_ns <= end_ns for chain in change.chains)
    ]
