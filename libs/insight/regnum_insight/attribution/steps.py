"""The steps of an outage, in the order of cause and effect, and which of them a change has. Pure.

A step is named by the boundary at which it ends: ``fenced`` is the time from the decision to fence until the fence is
in the store. What lies between two boundaries of which a boundary between them was never recorded is UNEXPLAINED.
"""

from functools import cache
from typing import Final

from regnum_telemetry import conventions as names

FAILED: Final = "failed"
"""The first sign, in any process, that the victim is gone; of silence its last sign of life."""
NOTICED: Final = "noticed"
"""The controller has noticed it, or has the request or the decision of a planned change."""
DETECTED: Final = "detected"
"""The controller has decided to fence the victim."""
FENCED: Final = "fenced"
"""The fence is in the store."""
WON: Final = "won"
"""Succession: the office is won."""
LOADED: Final = "loaded"
"""Succession: the store is read."""
DECIDED: Final = "decided"
"""The new leader is decided."""
WRITTEN: Final = "written"
"""It is in the store."""
VERIFIED: Final = "verified"
"""Succession: what was read is settled."""
ORDER_SENT: Final = "order_sent"
"""The call that tells the new leader begins."""
RECEIVED: Final = "received"
"""The new leader has it."""
LEADS: Final = "leads"
"""It leads the partition."""
DISPATCHED: Final = "dispatched"
"""Succession: every broker has acknowledged its full set."""
LEARNED: Final = "learned"
"""The client knows the new leader."""
IN_SYNC: Final = "in_sync"
"""As many replicas are in sync as an append needs."""
BACKOFF: Final = "backoff"
"""The client has waited until its next attempt."""
SENT: Final = "sent"
"""The call that was acknowledged begins."""
APPENDED: Final = "appended"
"""Its records are in the new leader's log."""
REPLICATED: Final = "replicated"
"""The high watermark covers them."""
ACKNOWLEDGED: Final = "acknowledged"
"""The client has its acknowledgement."""
ANSWERED: Final = "answered"
"""A consumer has the first answer of the new leader."""
UNSEEN: Final = "client_unseen"
"""What a client did that left no spans, until the new leader had appended its records."""
UNEXPLAINED: Final = "unexplained"
"""Time between two boundaries of which one between them was not recorded."""

STEPS: Final = (
    FAILED, NOTICED, DETECTED, FENCED, WON, LOADED, DECIDED, WRITTEN, VERIFIED, ORDER_SENT, RECEIVED, LEADS,
    DISPATCHED, LEARNED, IN_SYNC, BACKOFF, SENT, APPENDED, REPLICATED, ACKNOWLEDGED, ANSWERED,
)  # fmt: skip
"""All steps in order of time."""

ALL_STEPS: Final = (*STEPS, UNSEEN, UNEXPLAINED)
"""Every step that a table can have."""

OF_A_PRODUCER: Final = frozenset({LEARNED, SENT, APPENDED, ACKNOWLEDGED})
"""What the last part of a producer's chain has as a rule."""
OF_A_WAIT: Final = frozenset({REPLICATED, ACKNOWLEDGED})
"""The same where the leader stayed, and what was appended waited for a replica that was gone."""
OF_A_CONSUMER: Final = frozenset({ANSWERED})
"""What the last part of a consumer's chain has."""
OF_NO_CLIENT: Final = frozenset({LEARNED, SENT, APPENDED})
"""What a client would have left that left no spans, and the append that the broker saw."""
OF_AN_ORDER: Final[frozenset[str]] = frozenset()
"""What follows an order as a rule when no client waits for it: nothing."""

UNSAID_BEFORE: Final = (FAILED, BACKOFF, REPLICATED)
"""What traces of before the one root do not tell: it lies in ``noticed``, ``sent`` and ``acknowledged``."""

PLANNED: Final = frozenset({
    names.KIND_CONTROLLED_SHUTDOWN, names.KIND_BALANCE, names.KIND_REASSIGNMENT, names.KIND_ELECTION,
    names.KIND_UNCLEAN, names.KIND_RECOVERY,
})  # fmt: skip
"""Kinds of change that a request or a decision began, and no failure."""

_ORDERED: Final = frozenset({ORDER_SENT, RECEIVED, LEADS})
_DETECTED: Final = frozenset({DETECTED, FENCED})
_SUCCEEDED: Final = frozenset({NOTICED, WON, LOADED, VERIFIED})


@cache
def expected(kind: str, cause: str, tail: frozenset[str]) -> frozenset[int]:
    """Positions of the boundaries that a change of a kind records as a rule, with what follows its order.

    Without one of them, what lies around it is unexplained. ``cause``: nothing had to be detected and fenced where the
    registration itself went, or where nothing failed.
    """
    if kind == names.KIND_SUCCESSION:
        found = _SUCCEEDED | (_ORDERED if tail else {DISPATCHED})
    else:
        found = frozenset({NOTICED, DECIDED, WRITTEN}) | _ORDERED
    failure = kind not in PLANNED and cause in {"", names.CAUSE_LIFELINE, names.CAUSE_SILENCE}
    if tail is OF_A_WAIT:
        found -= {LEADS}
    found |= tail | (_DETECTED if failure else frozenset())
    return frozenset(ORDER[step] for step in found)


ORDER: Final = {step: position for position, step in enumerate(STEPS)}
"""Position of each step."""
