"""A replication throttle for as long as one command moves partitions. Pure.

Goals: nothing moves unthrottled, and the cluster is afterwards as it was before.

Constraints: the two rates are settings of the cluster; others may change them at any time, and theirs count.

Algorithm: what the cluster itself had is kept; at the end each rate that still is the command's goes back to that, and
each that is not stays as somebody else wants it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from regnum_model.broker_configs import FOLLOWER_THROTTLE_RATE, LEADER_THROTTLE_RATE

from regnum_client.admin.configs import ConfigEntry, ConfigSource

RATES: Final = (LEADER_THROTTLE_RATE, FOLLOWER_THROTTLE_RATE)
"""Settings of the throttle."""

Rates = Mapping[str, str | None]
"""By setting, the cluster's own value; None: it has none, and nothing is throttled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack:
    """What is to be changed at the end."""

    back: Rates
    """Rates that go back, and to what."""
    foreign: Mapping[str, str]
    """Rates that somebody else changed meanwhile, with what they are now; they stay."""


def rates_of(entries: Iterable[ConfigEntry]) -> dict[str, str | None]:
    """The cluster's own rates, from its settings in force."""
    own = {entry.name: entry.value for entry in entries if entry.source is not ConfigSource.DEFAULT}
    return {name: own.get(name) for name in RATES}


def taken_back(before: Rates, *, ours: str, now: Rates) -> TakenBack:
    """What to do at the end.

    Args:
        before: the rates that there were.
        ours: what both were set to.
        now: the rates as they are.
    """
    return TakenBack(
        back={name: before[name] for name in RATES if now[name] == ours and before[name] != ours},
        foreign={name: now[name] or "0" for name in RATES if now[name] not in {ours, before[name]}},
    )


def command_of(rates: Rates) -> str:
    """The command that gives the cluster these rates."""
    changes = [f"--delete {name}" if rate is None else f"--set {name}={rate}" for name, rate in rates.items()]
    return f"regnum configs alter --cluster {' '.join(changes)}"
