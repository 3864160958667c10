"""Changes chosen by what they are about. Pure."""

from dataclasses import dataclass
from typing import Final

from regnum_insight.attribution.changes import UNTRACED, Change
from regnum_insight.reporting.rows import chains_of, label_of

ANY_ERROR: Final = "any"
"""As ``ChangeFilter.error``: any error, or a change that never ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFilter:
    """What a change has to have; all of it. Outages of no change are left out unless their kind is named."""

    kind: str = ""
    """Kind or cause, with spaces or dashes; empty: any."""
    victim: str = ""
    """What failed: ``broker 2``, ``broker-2`` or ``2``; empty: anything."""
    broker: int | None = None
    """Failed, or leads a partition since; None: any."""
    partition: str = ""
    """``orders/0``, or all of ``orders``, as far as the trace names partitions; empty: any."""
    min_ms: float = 0.0
    """So long is the longest chain at least, milliseconds."""
    error: str = ""
    """What a client was told: a part of an error's name, or ANY_ERROR; empty: anything."""
    since_ns: int = 0
    """It began then or later, nanoseconds since 1970."""

    def finds(self, change: Change) -> bool:
        """Whether a change has it."""
        kinds = {_plain(change.kind), _plain(label_of(change)), _plain(change.cause)}
        return (
            (_plain(self.kind) in kinds if self.kind else change.kind != UNTRACED)
            and (not self.victim or _plain(change.victim) in {_plain(self.victim), f"broker {self.victim}"})
            and (self.broker is None or self._has_broker(change))
            and (not self.partition or any(map(self._is_partition, partitions_of(change))))
            and change.total_ms >= self.min_ms
            and (not self.error or self._has_error(change))
            and change.start_ns >= self.since_ns
        )

    def _has_broker(self, change: Change) -> bool:
        leaders = {chain.leader for chain in (*chains_of(change), *change.orders)}
        return change.victim == f"broker {self.broker}" or str(self.broker) in leaders

    def _is_partition(self, name: str) -> bool:
        return self.partition in {name, name.rpartition("/")[0]}

    def _has_error(self, change: Change) -> bool:
        errors = errors_of(change)
        if self.error.lower() == ANY_ERROR:
            return bool(errors) or change.unfinished
        return any(self.error.lower() in one.lower() for one in errors)


def errors_of(change: Change) -> tuple[str, ...]:
    """What clients were told last before they succeeded, each once."""
    return tuple(sorted({chain.error for chain in chains_of(change) if chain.error}))


def partitions_of(change: Change) -> tuple[str, ...]:
    """Its partitions, as far as the trace names them."""
    return tuple(dict.fromkeys(chain.name for chain in (*chains_of(change), *change.orders)))


def _plain(text: str) -> str:
    return text.lower().replace("-", " ").replace("_", " ")
