"""When the controller may declare a broker dead before its session ends (safety rule S9).

Two kinds of evidence. A *refused* port proves that no process listens: enough at once, if seen twice. *Silence*
proves nothing by itself (a paused broker, a lost network, or a controller that is itself slow look alike), so it
counts only when the controller can show that it is not the one at fault, and for one broker in a session time-out, so
that a mistake never cascades.
"""

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from regnum_model.ids import BrokerId

SILENCE_S: Final = 2.0
"""Age of the oldest unanswered probe from which a broker counts as silent."""

ANSWERING_S: Final = 0.5
"""Age of the oldest unanswered probe up to which another broker counts as answering."""

LOOP_LAG_MAX_S: Final = 0.1
"""Lag of the controller's own loops from which it does not trust its own ears."""

BEAT_INTERVAL_S: Final = 0.1
"""Time between two beats, and between two probes, of few brokers; see ``beat_interval_s``."""

BROKERS_AT_FULL_PACE: Final = 100
"""Brokers up to which beats go out every BEAT_INTERVAL_S; above, the interval grows in proportion."""

ISOLATION_S: Final = 3.0
"""Silence of all registered brokers from which a controller asks others whether they reach one."""

ISOLATION_MEMORY_S: Final = 60.0
"""How long a resignation for such silence makes the next one take longer."""


class Verdict(enum.Enum):
    """Whether a silent broker is fenced, or what speaks against it."""

    FENCE = "fence"
    NOT_SILENT = "the broker answers"
    NOT_ACTING = "the controller's session is not confirmed"
    LAGGING = "the controller's own loop lags"
    TOO_FEW_ANSWER = "not more than half of the other brokers answer"
    ONE_AT_A_TIME = "another broker was fenced for silence within a session time-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """What the controller knows of its own ability to hear."""

    session_connected: bool
    """Whether the coordination session is CONNECTED."""
    loop_lag_s: float
    """Worst recent lag of the controller's event loops, in seconds."""
    since_silence_fence_s: float | None
    """Seconds since a broker was last fenced for silence; None when none ever was."""
    session_timeout_s: float
    """Store session time-out."""


def beat_interval_s(brokers: int) -> float:
    """Time between two beats, and between two probes, of a lifeline, in seconds.

    All lifelines together carry as many messages a second as those of 100 brokers.

    Args:
        brokers: live brokers.
    """
    return BEAT_INTERVAL_S * max(1.0, brokers / BROKERS_AT_FULL_PACE)


def judge_silences(
    unanswered_s: Mapping[BrokerId, float | None], live: Collection[BrokerId], listen: Callable[[], Listener]
) -> dict[BrokerId, Verdict]:
    """Whether brokers that hold their streams open and do not answer are fenced: those that are silent, in order.

    Args:
        unanswered_s: age of the oldest unanswered probe of every live broker with a stream; None when all are answered.
        live: registered brokers.
        listen: the controller's own state; asked once, and only if somebody is silent.
    """
    suspects = sorted(id for id, silence_s in unanswered_s.items() if silence_s is not None and silence_s >= SILENCE_S)
    if not suspects:
        return {}
    # None of the suspects answers, so for each of them these are the answers of the others.
    answering = sum(1 for id in live if id in unanswered_s and (unanswered_s[id] or 0.0) <= ANSWERING_S)
    listener = listen()
    verdicts: dict[BrokerId, Verdict] = {}
    for suspect in suspects:
        verdicts[suspect] = verdict = _judge(answering, len(live) - 1, listener)
        if verdict is Verdict.FENCE:
            listener = replace(listener, since_silence_fence_s=0.0)
    return verdicts


def _judge(answering: int, others: int, listener: Listener) -> Verdict:
    if not listener.session_connected:
        return Verdict.NOT_ACTING
    if listener.loop_lag_s >= LOOP_LAG_MAX_S:
        return Verdict.LAGGING
    # With no other broker there is no witness: half of nothing is not more than half.
    if answering * 2 <= others:
        return Verdict.TOO_FEW_ANSWER
    recent_s = listener.since_silence_fence_s
    if recent_s is not None and recent_s < listener.session_timeout_s:
        return Verdict.ONE_AT_A_TIME
    return Verdict.FENCE


def isolation_patience_s(resigned_s: Iterable[float], now_s: float) -> float:
    """How long a controller bears the silence of all brokers: twice as long for each time that it lately did not.

    Args:
        resigned_s: moments at which the process resigned for that reason.
        now_s: the present moment.
    """
    lately = sum(1 for at_s in resigned_s if now_s - at_s < ISOLATION_MEMORY_S)
    return ISOLATION_S * 2.0**lately
