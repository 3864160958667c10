"""How long to wait before trying again. Pure.

Goals: a client adds little to an outage that it did not cause, and thousands of clients do not hammer a cluster that
is down for long.

Algorithm: wait a twentieth of the time that the trouble has lasted, within bounds, and up to a fifth more or less by
chance. So a leader change
of 400 ms is noticed at most some 20 ms late, and after ten seconds there are two tries a second.
"""

from typing import Final

SHORTEST_MS: Final = 20.0
LONGEST_MS: Final = 500.0


def retry_delay_ms(trouble_ms: float, chance: float) -> float:
    """Milliseconds until the next try; ``trouble_ms`` since the first failure in a row, ``chance`` in [0, 1)."""
    return min(LONGEST_MS, max(SHORTEST_MS, trouble_ms / 20)) * (0.8 + 0.4 * chance)
