"""What attempts to connect to a process say about its life (safety rule S9). Pure."""

import enum
from collections.abc import Collection
from typing import Final

REFUSAL_INTERVAL_S: Final = 0.1
"""Pause between two attempts to connect."""


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
