"""What attempts to connect to a process say about its life (safety rule S9). Pure."""

import enum
from collections.abc import Collection, Sequence
from typing import Final

KNOCK_INTERVAL_S: Final = 0.02
"""Pause between two attempts to connect: after a refusal always, and at first after any."""

KNOCK_INTERVAL_S_MAX: Final = 0.1
"""Longest pause, between attempts that were accepted."""

KNOCKS_AFTER_BREAK: Final = 12
"""Attempts to connect after a stream broke: a second of them, if all are accepted. A process that is being killed may
still seem to listen for a while after its streams broke.
"""


class Contact(enum.Enum):
    """Outcome of one attempt to connect to a process's port."""

    ACCEPTED = "accepted"
    """Something listens."""
    REFUSED = "refused"
    """The host answered that nothing listens."""
    NO_ANSWER = "no answer"
    """Neither; proves nothing."""


def proves_death(contacts: Collection[Contact]) -> bool:
    """Whether attempts to connect prove that the process is gone: refused, twice."""
    return len(contacts) >= 2 and all(contact is Contact.REFUSED for contact in contacts)


def knock_pause_s(contacts: Sequence[Contact]) -> float:
    """Pause before the next attempt to connect, in seconds.

    Two refusals 20 ms apart prove a death. What still listens is asked more and more seldom, so that the streams of
    many live processes, broken at the same time, cost few connections.

    Args:
        contacts: outcomes so far, at least one.
    """
    if contacts[-1] is Contact.REFUSED:
        return KNOCK_INTERVAL_S
    accepted = sum(1 for contact in contacts if contact is not Contact.REFUSED)
    return min(KNOCK_INTERVAL_S * 2.0 ** min(accepted - 1, 8), KNOCK_INTERVAL_S_MAX)
