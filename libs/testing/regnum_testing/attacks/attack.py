"""What an attack is."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from regnum_testing.attacks.target import Target

ATTACK_S: Final = 10.0
"""For so long each goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One way to have a cluster do more than it was paid for."""

    name: str
    """In a few words."""
    client: str
    """Whose certificate is shown; see ``target``."""
    run: Callable[[Target], Awaitable[Counter[str]]]
    """Goes on for ``ATTACK_S``; returns what the attacker saw, and how often."""
    is_charged: bool = False
    """Whether a quota of its client's bytes or time is used up by it."""
