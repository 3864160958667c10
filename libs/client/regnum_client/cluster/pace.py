"""Whether to try again, and how long to wait before. Pure.

Goals: a client adds little to an outage that it did not cause, and thousands of clients do not hammer a cluster that
is down for long.

Algorithm: wait a twentieth of the time that the trouble has lasted, within bounds, and up to a fifth more or less by
chance. So a leader change
of 400 ms is noticed at most some 20 ms late, and after ten seconds there are two tries a second.
"""

from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError

SHORTEST_MS: Final = 20.0
LONGEST_MS: Final = 500.0


def retry_delay_ms(trouble_ms: float, chance: float) -> float:
    """Milliseconds until the next try; ``trouble_ms`` since the first failure in a row, ``chance`` in [0, 1)."""
    return min(LONGEST_MS, max(SHORTEST_MS, trouble_ms / 20)) * (0.8 + 0.4 * chance)


def may_pass(error: RegnumError) -> bool:
    """Asking again, here or elsewhere, may help; a call that fails as a whole may be a broker about to end."""
    return error.traits.retriable or error.code == errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR
