"""Who has not been heard of for how long. Pure.

Goals: silence is what this process listened to in vain; time during which it could not listen is not silence.

Algorithm: the listener counts what it hears of each peer and looks at the counts at short intervals. A count that
moved, a peer that it did not listen to before, and a look that comes late (the process was held up, or stopped) each
begin the silence anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from regnum_model.ids import BrokerId


@dataclass(frozen=True, slots=True)
class Heard:
    """What is known of one peer."""

    count: int
    """How often it was heard, as of the last look."""
    since_s: float
    """Its silence began then at the latest; monotonic seconds."""


def observe(
    known: Mapping[BrokerId, Heard], counts: Mapping[BrokerId, int], *, now_s: float, attentive: bool
) -> dict[BrokerId, Heard]:
    """What is known after a look.

    Args:
        known: after the look before.
        counts: how often each peer that is listened to was heard so far.
        now_s: moment of the look.
        attentive: whether the process can have heard all that was to be heard since the look before.
    """
    observed: dict[BrokerId, Heard] = {}
    for id, count in counts.items():
        before = known.get(id)
        goes_on = attentive and before is not None and before.count == count
        observed[id] = before if goes_on and before is not None else Heard(count, now_s)
    return observed


def silent(known: Mapping[BrokerId, Heard], *, now_s: float, limit_s: float) -> frozenset[BrokerId]:
    """Peers that have been silent for so long."""
    return frozenset(id for id, heard in known.items() if now_s - heard.since_s >= limit_s)
