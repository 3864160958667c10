"""Which replica a consumer reads from (KIP-392). Pure.

Goals: bytes do not leave a rack (or an availability zone, which costs money) where a copy is in it.

Constraints: only members of the ISR, since others may be behind without end; only one that has the offset wanted, or
the consumer would be sent back at once. A follower shows what it knows to be committed, which is less than what the
leader knows: reading there is later by up to one round of its fetches, and never wrong.

Algorithm: where the leader is in the consumer's rack, the leader. Else, of the members in that rack whose logs have the
offset, the one whose log is longest, and of equal ones the one with the lowest id. Else the leader.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from regnum_model.ids import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A member of the ISR other than the leader."""

    broker: BrokerId
    """Its id."""
    rack: str
    """Its rack; empty: none."""
    log_start_offset: int
    """First offset of its log, as the leader heard last."""
    log_end_offset: int
    """Its log end, as the leader heard last."""


def preferred(candidates: Iterable[Candidate], *, client_rack: str, leader_rack: str, offset: int) -> BrokerId | None:
    """The replica to send a consumer to that wants ``offset``; None: it reads from the leader."""
    if not client_rack or client_rack == leader_rack:
        return None
    fit = [
        one for one in candidates if one.rack == client_rack and one.log_start_offset <= offset <= one.log_end_offset
    ]
    return min(fit, key=lambda one: (-one.log_end_offset, one.broker)).broker if fit else None
