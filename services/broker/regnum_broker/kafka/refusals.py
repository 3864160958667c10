"""What this door refuses by itself, and what it makes again instead: calls that find no room, whose clients wait.

Algorithm: an attempt in which a handler was at work is followed by a pause, which doubles each time. One that ended
before that, for there was still less room than the last one lacked, costs nothing and is repeated soon. After WAITED_S
one more attempt is the last. What a refusal asks for itself (a quota) is waited for, however long that is.

Example: a handler is at work at 0, 0.2, 0.6, 1.4, 3.0, 6.2 s and so on, 14 times in all; only at 0 and when room has
come free where that is what it lacked.
"""

from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple, Self

from regnum.types.v1 import errors_pb2
from regnum_service.clock import Clock
from regnum_service.errors import Code, RegnumError

OF_GROUPS: Final = frozenset(range(8, 15))
"""Calls of members to their coordinator, and the one that looks for it."""

AGAIN_S: Final = 0.2
"""When a call is made again for the first time, if its refusal does not ask for longer: what is held for a client is
let go within some tens of milliseconds, unless nobody reads it."""
AGAIN_S_MAX: Final = 3.2
"""The longest pause of those that double."""
WAITED_S: Final = 30.0
"""For so long a call is made again. Kafka's clients wait no longer unless they are set to (``request.timeout.ms``), and
whoever is told then that it took too long comes again by himself."""


def told(key: int, code: Code) -> Code:
    """The error that a client of Kafka is told of a call that failed as a whole.

    BROKER_NOT_AVAILABLE is final for these clients (an idempotent producer of Kafka's own gives up with it), and a
    member that is told anything but that its coordinator is away ends. What was waited for in vain took too long.
    """
    if not is_waited_for(code) and code not in (
        errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
        errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
    ):
        return code
    if key in OF_GROUPS:
        return errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE
    return errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT


def no_transactions() -> RegnumError:
    """With an error that ends the attempt: clients try most others again, for ever."""
    return RegnumError(
        errors_pb2.ERROR_CODE_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not offered at this listener"
    )


def unheard(code: Code) -> RegnumError:
    """Of a producer that waits for no answer (acks 0): its connection ends, which it notices, and looks for leaders."""
    return RegnumError(code, "its producer waits for no answer, and is told by the end of the connection")


def unsaid() -> RegnumError:
    """Of a call whose answer has no place for an error: its connection ends, and its client comes again by another."""
    return RegnumError(
        errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "there was no room for its answer, which can tell no error"
    )


def is_waited_for(code: Code) -> bool:
    """Whether a client is not told of it: the door waits, and makes the call again (``Attempts``)."""
    return code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED


def check_once(named: Iterable[Hashable], what: str) -> None:
    """Raise RegnumError where the same is asked for twice: a few bytes more would be as much again of an answer."""
    seen: set[Hashable] = set()
    for one in named:
        if one in seen:
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, f"{what} {one!r} is in the request twice")
        seen.add(one)


class Again(NamedTuple):
    """Comes of an attempt that found no room."""

    after_s: float
    """The refusal asks for that much time; 0: for none."""
    lacked: int = 0
    """Bytes of an answer for which there was no room; 0: it was something else."""
    worked: bool = True
    """Whether a handler was at work."""

    @classmethod
    def of(cls, error: RegnumError, *, lacked: int = 0, worked: bool = True) -> Self:
        """Of an attempt that was refused."""
        return cls((error.retry_after_ms or 0) / 1000, lacked, worked)


class Attempts:
    """Those of one call, the first of which is about to begin."""

    def __init__(self, clock: Clock) -> None:
        """Only assigns; ``clock`` is that of the listener."""
        self._clock: Final = clock
        self._until_s: Final = clock.monotonic() + WAITED_S
        self._pause_s = AGAIN_S
        self.is_last = False
        """Whether the next one is the last."""

    async def pause(self, after: Again, owed_s: float = 0.0) -> None:
        """Return when the next one may begin; ``owed_s``: for so long its client has to wait for what it took."""
        left_s = self._until_s - self._clock.monotonic()
        pause_s = max(after.after_s, owed_s, min(self._pause_s if after.worked else AGAIN_S, left_s))
        if after.worked:
            self._pause_s = min(2 * self._pause_s, AGAIN_S_MAX)
        self.is_last = pause_s >= left_s
        await self._clock.sleep(pause_s)
