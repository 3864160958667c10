"""Brokers that asked to be given time, and until when. Pure. All times are monotonic seconds.

A broker says so with an answer (throttle_time_ms: a quota was exceeded, what was asked is done) or instead of one
(THROTTLING_QUOTA_EXCEEDED with RetryInfo: nothing is done). Either way nothing more of that kind goes there before the
time is over: the broker would hold it, or refuse it again.
"""

from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId
from regnum_service.errors import RegnumError
from regnum_service.status import RETRY_DELAY_MS

THROTTLE_S_MAX: Final = 60.0
"""After so long a broker is asked again, whatever it said: its quotas may have changed."""
SPREAD: Final = 0.2
"""Up to so much longer, by chance, waits whoever was refused: those who were refused together come one by one."""

_NEVER: Final = float("-inf")


class Throttles:
    """Of one producer or consumer."""

    def __init__(self) -> None:
        self._until_s: Final[dict[BrokerId, float]] = {}
        self.told_s = 0.0
        """All times that were told, added up."""

    def answered(self, broker: BrokerId, throttle_ms: int, *, now_s: float) -> None:
        """An answer asked for so much time; 0: for none."""
        self._wait(broker, throttle_ms / 1000, now_s)

    def refused(self, broker: BrokerId, error: RegnumError, *, now_s: float, chance: float) -> None:
        """A call failed; nothing happens unless it was throttled. ``chance`` is in [0, 1)."""
        if error.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED:
            # Refused without a time, or with none: whoever came again at once would do so without end.
            told_ms = max(0, error.retry_after_ms or 0) or RETRY_DELAY_MS
            self._wait(broker, told_ms / 1000 * (1 + SPREAD * chance), now_s)

    def until_s(self, broker: BrokerId) -> float:
        """When it may be asked again; minus infinity: at any time."""
        return self._until_s.get(broker, _NEVER)

    def endings_s(self, now_s: float) -> list[float]:
        """When those may be asked again that may not be now."""
        return [until_s for until_s in self._until_s.values() if until_s > now_s]

    def _wait(self, broker: BrokerId, seconds: float, now_s: float) -> None:
        if seconds <= 0.0:
            return
        seconds = min(seconds, THROTTLE_S_MAX)
        self.told_s += seconds
        self._until_s[broker] = max(self.until_s(broker), now_s + seconds)
