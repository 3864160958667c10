"""Whom a store lets in, found out by asking it as a stranger does: with neither certificate nor user. Pure.

Goals: a process knows whether what it relies on can be written by anybody who reaches the store; found at the store and
not read out of settings, which say what its owner meant.

Constraints: a server that asks for certificates ends the connection without a word, as one does that is just going
away. What a stranger tries changes nothing.

Algorithm: while a session of our own is up, the same addresses are connected to with the same authorities and nothing
else, and our own part of the store is asked for. One server that answers it is an open door. A refusal in words is a
closed one, and so is an ended connection where the session itself shows a certificate, which is then the only
difference. Silence says nothing.

Example: three members, certificates required, one member away: ENDED three times, the URL has cert=: REFUSED.
"""

import enum
from collections.abc import Collection
from dataclasses import dataclass


class Knock(enum.Enum):
    """What one server did with a stranger."""

    ADMITTED = enum.auto()
    """It answered."""
    REFUSED = enum.auto()
    """It said that it does not."""
    ENDED = enum.auto()
    """It ended the connection, or took none."""
    SILENT = enum.auto()
    """It did nothing in time."""


class Admission(enum.Enum):
    """What a store does with strangers."""

    ADMITTED = enum.auto()
    """It takes what they ask for: it authenticates nobody."""
    REFUSED = enum.auto()
    """It refuses them."""
    UNANSWERED = enum.auto()
    """It could not be found out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was found."""

    admission: Admission
    loopback: bool
    """Whether every server of the store is told of by an address of this machine alone."""
    weaknesses: tuple[str, ...] = ()
    """What is wrong besides, each as the end of a sentence that begins with the store."""


def settle(knocks: Collection[Knock], *, shows_certificate: bool) -> Admission:
    """What a store does, by what its servers did; ``shows_certificate``: whether our own sessions show one."""
    if Knock.ADMITTED in knocks:
        return Admission.ADMITTED
    if Knock.REFUSED in knocks or (shows_certificate and Knock.ENDED in knocks):
        return Admission.REFUSED
    return Admission.UNANSWERED
