"""Whether this broker may delete and forget by the time of day. Pure.

Goals: a broker whose wall clock jumps deletes no acknowledged record, forgets no producer and no group's offsets by it;
what it holds back is done when the clocks agree again; a cluster of one release and the next goes on as before.

Constraints: a message of the controller takes its time, all of a pause of either process included, and its clock seems
to be behind by that. The broker's clock may jump between two messages, and while no controller is there.

Algorithm: each message of the lifeline says what the controller's wall clock was. It is kept as its distance from the
broker's *monotonic* clock, which does not jump: so a jump of the broker's wall clock shows at the very next look, with
a controller or without. Of the distances of the last ten to twenty seconds the largest counts, which is that of the
message that was under way for the shortest time: a pause, however long, makes no difference as long as one message in
these seconds was quick.

Error: the difference is too large (the broker seems to be ahead) by what that message took, milliseconds; and a
controller's clock that was set back is believed for twenty seconds more. Without a controller it changes by what the
monotonic clock drifts: at 100 millionths, five minutes in 35 days. The monotonic clock stands still while a machine is
suspended; until the next message the broker seems to be ahead by that, and holds back.

Example: a broker hears 1,000,000 ms at 50 s of its monotonic clock, which is a distance of 950,000 ms; at 60 s the
controller's clock shows 1,010,000 ms. If its own shows 1,310,001 then and 300 s are allowed, nothing expires.
"""

import enum
from dataclasses import dataclass, replace
from typing import Final, assert_never

WINDOW_S: Final = 10.0
"""The message that was under way for the shortest time is looked for in so many seconds, and in as many before."""


class Unknown(enum.Enum):
    """Why the controller's wall clock is not known."""

    NOT_HEARD = "no controller has said anything since this broker started"
    """Its clock may be as wrong as it can be after a start: nothing expires."""
    NOT_TOLD = "the controller does not tell its clock"
    """It is of release 0.1.0, which had brokers expire by their own; not to would stop that for as long as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerClock:
    """What is known of the controller's wall clock."""

    distance_ms: int
    """It less the broker's monotonic clock: the largest since ``since_s``."""
    former_ms: int
    """The largest of the time before."""
    since_s: float
    """Monotonic time of the first message that ``distance_ms`` is of."""

    def ahead_ms(self, *, wall_ms: int, now_s: float) -> int:
        """The broker's wall clock less the controller's, at ``now_s`` of its monotonic clock; negative: behind."""
        return wall_ms - round(now_s * 1000) - max(self.distance_ms, self.former_ms)


Known = ControllerClock | Unknown


def heard(known: Known, told_ms: int | None, *, now_s: float) -> Known:
    """What is known after another message.

    Args:
        known: before, of the same controller; NOT_HEARD: this is its first message.
        told_ms: its wall clock when it made the message; None: it does not tell.
        now_s: the broker's monotonic clock.
    """
    if told_ms is None:
        return Unknown.NOT_TOLD
    distance_ms = told_ms - round(now_s * 1000)
    if isinstance(known, Unknown):
        return ControllerClock(distance_ms=distance_ms, former_ms=distance_ms, since_s=now_s)
    if now_s - known.since_s >= WINDOW_S:
        return ControllerClock(distance_ms=distance_ms, former_ms=known.distance_ms, since_s=now_s)
    return replace(known, distance_ms=max(known.distance_ms, distance_ms))


def may_expire(known: Known, *, wall_ms: int, now_s: float, difference_ms_max: int) -> bool:
    """Whether anything may be deleted or forgotten because the broker's wall clock shows ``wall_ms``.

    Args:
        known: of the controller's clock.
        wall_ms: the broker's.
        now_s: its monotonic clock at that moment.
        difference_ms_max: by so much they may differ.
    """
    match known:
        case Unknown.NOT_HEARD:
            return False
        case Unknown.NOT_TOLD:
            return True
        case ControllerClock():
            return abs(known.ahead_ms(wall_ms=wall_ms, now_s=now_s)) <= difference_ms_max
        case _:
            assert_never(known)
