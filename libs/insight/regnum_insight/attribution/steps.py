"""The steps of an outage, in the order of cause and effect. Pure.

A step is named by the boundary at which it ends: ``fenced`` is the time from the decision to fence until the fence is
in the store. What lies between two boundaries of which a boundary between them was never recorded is UNEXPLAINED.
"""

from typing import Final

FAILED: Final = "failed"
"""The first sign, in any process, that the victim is gone; of silence its last sign of life."""
NOTICED: Final = "noticed"
"""The controller has noticed it, or has the request: the root begins."""
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
BACKOFF: Final = "backoff"
"""The client has waited until its next attempt."""
SENT: Final = "sent"
"""The call that was acknowledged begins."""
APPENDED: Final = "appended"
"""Its records are in the new leader's log."""
ACKNOWLEDGED: Final = "acknowledged"
"""The client has its acknowledgement: records are replicated, and the answer is there."""
UNEXPLAINED: Final = "unexplained"
"""Time between two boundaries of which one between them was not recorded."""

STEPS: Final = (
    FAILED, NOTICED, DETECTED, FENCED, WON, LOADED, DECIDED, WRITTEN, VERIFIED, ORDER_SENT, RECEIVED, LEADS,
    DISPATCHED, LEARNED, BACKOFF, SENT, APPENDED, ACKNOWLEDGED,
)  # fmt: skip
"""All steps in order."""

_OF_A_FAILOVER: Final = frozenset({NOTICED, DETECTED, FENCED, DECIDED, WRITTEN, ORDER_SENT, RECEIVED, LEADS})
_OF_A_CLIENT: Final = frozenset({LEARNED, SENT, APPENDED, ACKNOWLEDGED})

EXPECTED: Final = {
    "failover": _OF_A_FAILOVER | _OF_A_CLIENT,
    "succession": frozenset({NOTICED, DETECTED, FENCED, WON, LOADED, VERIFIED, DISPATCHED}),
    "recovery": frozenset({NOTICED, DECIDED, WRITTEN, ORDER_SENT, RECEIVED, LEADS}) | _OF_A_CLIENT,
    "unknown": _OF_A_FAILOVER | _OF_A_CLIENT,
    "untraced": _OF_A_FAILOVER | _OF_A_CLIENT,
}
"""For each kind of change the boundaries that are recorded as a rule: without one, what follows it is unexplained."""

WITHOUT_DETECTION: Final = frozenset({DETECTED, FENCED})
"""What is not there when the registration itself went: nothing had to be detected, and nothing fenced."""
