"""Which epochs can be true: one message, or one slip of a person's pen, must not use up all that are left.

Every epoch in this system grows by one with each election or registration, and whoever hears of a higher one than its
own gives way to it. So a number out of nowhere does lasting harm: it would end every reign in turn, and the next
winner would have to write a number above it. What is far above the one that the store last showed is therefore not a
later reign but an error of whoever said it, and is refused where it was said.

The distance is far more than elections that anybody could miss, and far less than what is left below the largest
number that the wire carries.
"""

from typing import Final

EPOCH_LEAP_MAX: Final = 2**16
"""How far above the epoch last read from the store one may be and still be believed."""


def is_plausible(epoch: int, last_read: int) -> bool:
    """Whether an epoch that somebody shows may be true.

    Args:
        epoch: what is shown.
        last_read: the epoch of that kind that was last read from the store.
    """
    return epoch <= last_read + EPOCH_LEAP_MAX
