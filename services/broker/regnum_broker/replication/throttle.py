"""How fast replicas that a reassignment brings in may be filled, at this broker (Kafka's replication throttle, KIP-73).

Goals: moving partitions takes no more of a broker's network and disks than it was given, as leader and as follower;
members of the ISR are never slowed down, for acknowledgements wait for them.

Constraints: only the leader knows who is in the ISR at a moment. So the follower says in each request how much it will
take, and the leader, which has a rate of its own, decides what it sends; it marks what counted, so that the follower
can count it as well.

Algorithm: a token bucket for each direction (``regnum_model.bucket``), which holds BURST_S of its rate. Whoever has
tokens may send or take as much as the tokens say, and a whole batch in any case, which the next ones pay for: over
seconds the rate is held exactly. Nobody has tokens until there are PAUSE_S of the rate: what flows in during one
request would be the next one otherwise, a hundred and forty of them in a second, each for as much work as a large one.
A follower asks several leaders at once: each for its share of the tokens, for whatever is asked for may come.
"""

from dataclasses import dataclass
from typing import Final

from regnum_model.bucket import Bucket, Limit, charge, full, refill
from regnum_service.clock import Clock

BURST_S: Final = 0.5
"""Seconds of the rate that may be sent at once after quiet: more than there is between a busy follower's requests."""

PAUSE_S: Final = 0.1
"""Seconds of the rate that are waited for before anything is sent or taken."""

UNLIMITED: Final = -1
"""In place of a number of bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleRates:
    """Bytes in a second; 0: no throttle."""

    leader: int = 0
    """What this broker may send to new replicas of partitions that it leads."""
    follower: int = 0
    """What it may take for new replicas of its own."""


class Meter:
    """One direction of one broker. Belongs to the event loop."""

    def __init__(self, clock: Clock) -> None:
        """Only assigns: there is no throttle."""
        self._clock: Final = clock
        self._limit: Limit | None = None
        self._bucket = Bucket(0.0, 0.0)
        self._sharers = 0
        self.counted = 0
        """Bytes that were counted since the broker started, with a throttle or without one."""

    def join(self) -> None:
        """One more who asks for bytes before it is known who gets them; ``leave`` ends it."""
        self._sharers += 1

    def leave(self) -> None:
        """One less."""
        self._sharers -= 1

    def set_rate(self, rate: int) -> None:
        """Another rate from now on; what was overdrawn stays so."""
        now_s = self._clock.monotonic()
        if rate <= 0:
            self._limit = None
            return
        limit = Limit(rate=float(rate), burst=max(rate * BURST_S, 1.0))
        if self._limit is None:
            self._bucket = full(limit, now_s)
        elif limit != self._limit:
            self._bucket = refill(refill(self._bucket, self._limit, now_s), limit, now_s)
        self._limit = limit

    def allowance(self) -> int:
        """Bytes that may be counted now, by each who shares; UNLIMITED: any number; 0: none, see ``pause_s``."""
        if self._limit is None:
            return UNLIMITED
        self._bucket = refill(self._bucket, self._limit, self._clock.monotonic())
        tokens = self._bucket.tokens
        # Who has waited for a portion finds it, whatever was lost in rounding.
        return max(int(tokens / max(self._sharers, 1)), 1) if tokens >= 0.99 * _portion(self._limit) else 0

    def pause_s(self) -> float:
        """Seconds until there is something worth a request; 0: there is."""
        if self._limit is None or self.allowance() > 0:
            return 0.0
        return (_portion(self._limit) - self._bucket.tokens) / self._limit.rate

    def count(self, size_bytes: int) -> None:
        """Bytes were sent, or taken."""
        self.counted += size_bytes
        if self._limit is not None and size_bytes:
            self._bucket = charge(self._bucket, self._limit, size_bytes, self._clock.monotonic())


def _portion(limit: Limit) -> float:
    """Bytes that are worth a request."""
    return max(limit.rate * PAUSE_S, 1.0)


class ReplicationThrottle:
    """Both directions of one broker. Belongs to the event loop."""

    def __init__(self, clock: Clock) -> None:
        """Only assigns."""
        self.sending: Final = Meter(clock)
        """As leader."""
        self.taking: Final = Meter(clock)
        """As follower."""
        self._rates = ThrottleRates()
        self._own: tuple[int | None, int | None] = (None, None)

    def set_rates(self, rates: ThrottleRates) -> None:
        """What the newest order says, which is the cluster's."""
        self._rates = rates
        self._apply()

    def set_own(self, *, leader: int | None, follower: int | None) -> None:
        """What was set for this broker alone, which goes before what orders say; None: nothing."""
        self._own = (leader, follower)
        self._apply()

    def _apply(self) -> None:
        leader, follower = self._own
        self.sending.set_rate(self._rates.leader if leader is None else leader)
        self.taking.set_rate(self._rates.follower if follower is None else follower)
