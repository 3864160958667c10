"""Which topics a throttled call sends next, and when. Pure.

Goals: everything is done as soon as the quota allows it; no topic is sent before the wait that the controller asked
for is over; the cost to the controller grows with what it admits, not with what waits.

Constraints: the answer names one wait, after which exactly one more topic is admitted (the bucket is at 0 then, and is
judged before it is charged). The client knows neither rate nor burst, and other clients may draw on the same bucket.

Algorithm: the wait is stretched to a tenth of the time since the first refusal, to 1 s at most, so that tokens for a
few topics gather. That pays as long as the burst holds what flows meanwhile: the flow between two refusals is what was
admitted, divided by the time between them without the wait named before and with the one named now (the debts); when
it is well below the best one seen, tokens were lost, and waits are stretched half as far from then on. A batch is
twice what the last one had admitted; one that is admitted whole is followed by a larger one at once.

Example: 500 topics of one partition, 5 a second, burst 50. The first call sends all, 51 are admitted. The next calls
send a few after 200 ms each; from the tenth second on there is one a second, with 10 topics, of which 5 are admitted.
After 90 s all are done, in some hundred calls.
"""

from typing import Final

BATCH_MIN: Final = 4
"""Topics sent at least, once something was refused."""
STRETCH: Final = 0.1
"""Share of the time since the first refusal that a wait may be stretched to."""
STRETCHED_S_MAX: Final = 1.0
"""A wait is stretched no further than this."""
GOOD_FLOW: Final = 0.75
"""Share of the best flow below which tokens are taken to have been lost."""


class Throttle:
    """What one call has learned of its quota."""

    def __init__(self) -> None:
        self._batch: int | None = None
        self._first_refusal_s: float | None = None
        self._last_refusal_s = 0.0
        self._asked_s = 0.0
        self._admitted = 0
        self._best_flow = 0.0
        self._stretched_s_max = STRETCHED_S_MAX
        self._resume_s = float("-inf")

    @property
    def resume_s(self) -> float:
        """Monotonic time before which nothing that waits for the quota is sent."""
        return self._resume_s

    def batch(self, waiting: int) -> int:
        """How many of so many topics to send."""
        return waiting if self._batch is None else min(self._batch, waiting)

    def answered(
        self, *, admitted: int, refused: int, waiting: int, throttle_ms: int, now_s: float, deadline_s: float
    ) -> None:
        """Learn from an answer.

        Args:
            admitted: topics of the batch that the quota let pass.
            refused: topics of the batch that it did not.
            waiting: topics that have still to be sent, the refused ones among them.
            throttle_ms: wait that the answer named, in milliseconds.
            now_s: when the answer came.
            deadline_s: after that nothing is sent any more; the wait is not stretched beyond it.
        """
        self._admitted += admitted
        if not refused:
            if self._batch is not None:
                self._batch *= 2
            return
        asked_s = throttle_ms / 1000
        if self._first_refusal_s is None:
            self._first_refusal_s = now_s
        else:
            self._judge_flow(now_s, asked_s)
        self._last_refusal_s, self._asked_s, self._admitted = now_s, asked_s, 0
        self._batch = max(BATCH_MIN, 2 * admitted)
        stretched_s = min(self._stretched_s_max, STRETCH * (now_s - self._first_refusal_s)) if waiting > 1 else 0.0
        wait_s = max(asked_s, stretched_s)
        self._resume_s = now_s + (wait_s if now_s + wait_s < deadline_s else asked_s)

    def _judge_flow(self, now_s: float, asked_s: float) -> None:
        flowed_s = now_s - self._last_refusal_s - self._asked_s + asked_s
        flow = self._admitted / flowed_s if flowed_s > 0 else 0.0
        if flow < GOOD_FLOW * self._best_flow:
            self._stretched_s_max /= 2
        self._best_flow = max(self._best_flow, flow)
