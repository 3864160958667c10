"""A partition in the sender: its lane, and the trouble on the way to its leader. Pure."""

from typing import Final

from regnum_client.producer.batches.lane import Identity, Lane
from regnum_client.producer.outcomes import Receipt
from regnum_client.producer.trouble import Trouble


class Route:
    """State of one partition in the sender."""

    __slots__ = ("broken_because", "identity_spent", "lane", "trouble", "was_there")

    def __init__(self, *, idempotent: bool) -> None:
        self.lane: Final[Lane[Receipt]] = Lane(idempotent=idempotent)
        self.trouble: Final = Trouble()
        self.broken_because = ""
        """Why a batch with sequence numbers was not written, the last time that there was one."""
        self.identity_spent: Identity | None = None
        """The identity the lane has or had: a broken sequence needs another one."""
        self.was_there = False
        """Whether a leader of the partition has been known."""
