"""Where the trace of a failure begins: the first that any process saw of it. Pure.

Goals: the time before the controller noticed is in the trace; nothing that one process says makes nonsense of it.

Algorithm: the first connection to the victim that broke counts, whichever process saw it; where none broke, or where
the victim fell silent, its last sign of life. What a process reports is kept as it said it, though its clock is
another one; what lies behind the controller's own notice, or long before it, is not believed, and a connection that
broke long before the victim was last heard is another story.
"""

import enum
from collections.abc import Iterable
from typing import Final

from regnum_election.reign.witnesses import Sign, Signs

SIGN_AGE_S_MAX: Final = 60.0
"""How long before the controller's own notice a sign may lie: longer than any session."""


LIFE_AFTER_S_MAX: Final = 1.0
"""By how much the last sign of life may lie behind a broken connection: clocks differ, and messages are under way."""


class Notice(enum.Enum):
    """How the controller noticed a failure."""

    BROKEN = "broken"
    """Its own connection broke, or was refused."""
    SILENCE = "silence"
    """Nothing was heard any more: a connection that breaks later is a consequence."""
    REGISTRATION = "registration"
    """The store said so."""


def failed(signs: Signs, *, noticed: Sign, by: Notice) -> Sign:
    """The first sign of a failure.

    Args:
        signs: what others saw, and the controller apart from its notice.
        noticed: when the controller noticed it, with its own id.
        by: how it did.
    """
    last = max(_believed(signs.heard, noticed), default=None)
    broken = _believed(signs.broken, noticed)
    if last is not None:
        broken = [sign for sign in broken if sign.unix_nano >= last.unix_nano - round(LIFE_AFTER_S_MAX * 1e9)]
    if last is not None and (by is Notice.SILENCE or (by is Notice.REGISTRATION and not broken)):
        return min(noticed, last)
    return min((noticed, *broken))


def _believed(signs: Iterable[Sign], noticed: Sign) -> list[Sign]:
    earliest = noticed.unix_nano - round(SIGN_AGE_S_MAX * 1e9)
    return [sign for sign in signs if earliest <= sign.unix_nano <= noticed.unix_nano]
