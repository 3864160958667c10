"""Which connection may hold how many bytes of a process' memory. Pure.

Goals: all together never hold more than there is; one that takes all it can get leaves room for others; whoever holds
nothing gets in as long as there is room.

Algorithm (dynamic thresholds, Choudhury and Hahne, IEEE/ACM Transactions on Networking 6 (2), 1998): a connection may
hold no more than is left free after it. So one alone holds at most half, two a third each, n of them 1/(n + 1) each,
without anybody knowing how many there are. What is held shrinks by itself when others come, as soon as it is let go.

Example, 256 MiB: a connection that sends without end holds 128. A second one may then take 64; as the first lets go,
both tend to 85, and 85 stay free.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Bounds on what is held."""

    total_max: int
    """Bytes that all connections hold together."""
    connection_max: int
    """Bytes that one holds, however much is free. A single thing that is larger gets in when it holds nothing else."""

    def allow(self, size: int, *, own: int, total: int) -> bool:
        """Whether a connection that holds ``own`` of ``total`` bytes may hold ``size`` more."""
        free = self.total_max - total - size
        if free < 0:
            # What is larger than all there is would never get in.
            return total == 0
        return own == 0 or own + size <= min(self.connection_max, free)
