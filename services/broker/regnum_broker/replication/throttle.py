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

Streams take turns: a follower that would let all leaders of its new replicas send at once gets a batch of each, in one
moment, and pays for all of them together, over and over in the same step; so do they all come in sync together. Those
that want something stand in line, and who is first may have all the tokens. It is the next one's turn when something
was counted for it, or after TURN_S without that, whatever has become of it. Those who are far away are not done by
then: where tokens have come together meanwhile, several have their turn, one for each portion and AT_ONCE_MAX at most,
and what there is is shared among them. Who wants nothing, for all that is known, stands in no line and holds nobody up;
should it send something all the same, it may send a portion.

Example: 1 MB/s, three leaders, batches of 250 KB. One comes every quarter of a second, from each leader in turn, where
three came every three quarters.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Final

from regnum_model.bucket import Bucket, Limit, charge, full, refill
from regnum_service.clock import Clock

BURST_S: Final = 0.5
"""Seconds of the rate that may be sent at once after quiet: more than there is between a busy follower's requests."""

PAUSE_S: Final = 0.1
"""Seconds of the rate that are waited for before anything is sent or taken."""

TURN_S: Final = PAUSE_S
"""How long whoever has the turn may leave it unused while others wait for theirs, seconds."""

AT_ONCE_MAX: Final = 4
"""So many may have their turn at a time, where tokens have come together for a portion each: those who are far away are
not done in TURN_S."""

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
    """One direction of one broker, shared by its streams. Belongs to the event loop."""

    def __init__(self, clock: Clock) -> None:
        """Only assigns: there is no throttle."""
        self._clock: Final = clock
        self._limit: Limit | None = None
        self._bucket = Bucket(0.0, 0.0)
        self._line: Final[dict[Share, None]] = {}
        """Who wants something and has asked for it, in that order."""
        self._turn_s: float | None = None
        """Since when the first of the line could have had something; None: nobody has seen that yet."""
        self.counted = 0
        """Bytes that were counted since the broker started, with a throttle or without one."""

    @property
    def waiting(self) -> int:
        """How many streams stand in line."""
        return len(self._line)

    def share(self) -> "Share":
        """The part of one stream."""
        return Share(self)

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

    def allowance(self, share: "Share") -> int:
        """See ``Share.allowance``."""
        if self._limit is None:
            return UNLIMITED
        now_s, portion = self._clock.monotonic(), _portion(self._limit)
        if share.wants:
            self._line.setdefault(share)
        tokens = self._tokens(self._limit, now_s)
        # Who has waited for a portion finds it, whatever was lost in rounding.
        portions = min(int(tokens / (0.99 * portion)), AT_ONCE_MAX)
        if portions < 1:
            self._turn_s = None
            return 0
        if not share.wants:
            return max(int(min(tokens, portion)), 1)
        self._send_away(share, now_s)
        if share not in islice(self._line, portions):
            return 0
        return max(int(tokens / min(portions, len(self._line))), 1)

    def pause_s(self, share: "Share") -> float:
        """See ``Share.pause_s``."""
        if self._limit is None or self.allowance(share) > 0:
            return 0.0
        before = next((place for place, one in enumerate(self._line) if one is share), 0)
        needed = min(before + 1, AT_ONCE_MAX) * _portion(self._limit)
        missing = needed - self._tokens(self._limit, self._clock.monotonic())
        return missing / self._limit.rate if missing > 0.01 * needed else TURN_S

    def count(self, size_bytes: int, share: "Share") -> None:
        """See ``Share.count``."""
        self.counted += size_bytes
        if not size_bytes:
            return
        self.leave(share)
        if self._limit is not None:
            self._bucket = charge(self._bucket, self._limit, size_bytes, self._clock.monotonic())

    def leave(self, share: "Share") -> None:
        """It stands in line no more."""
        if share in self._line:
            if share is next(iter(self._line)):
                self._turn_s = None
            del self._line[share]

    def _tokens(self, limit: Limit, now_s: float) -> float:
        self._bucket = refill(self._bucket, limit, now_s)
        return self._bucket.tokens

    def _send_away(self, share: "Share", now_s: float) -> None:
        """Whoever is first, if it did not use its turn and another one asks."""
        if self._turn_s is None:
            self._turn_s = now_s
        first = next(iter(self._line))
        if first is not share and now_s >= self._turn_s + 0.99 * TURN_S:
            del self._line[first]
            self._turn_s = now_s


class Share:
    """What one stream may have of a meter. Belongs to the event loop."""

    __slots__ = ("_meter", "wants")

    def __init__(self, meter: Meter) -> None:
        """Only assigns."""
        self._meter: Final = meter
        self.wants = False
        """Whether it stands in line; otherwise it has nothing to send, or to ask for, as far as is known."""

    def want(self) -> None:
        """There is something."""
        self.wants = True

    def rest(self) -> None:
        """There is nothing, as it seems. Should there be something all the same, a portion of it waits for nobody."""
        self.wants = False
        self._meter.leave(self)

    def allowance(self) -> int:
        """Bytes that may be counted now; UNLIMITED: any number; 0: none, see ``pause_s``."""
        return self._meter.allowance(self)

    def pause_s(self) -> float:
        """Seconds until it is worth to ask again; 0: it is now."""
        return self._meter.pause_s(self)

    def count(self, size_bytes: int) -> None:
        """Bytes were sent, or taken: there may be more, once others have had their turn."""
        self._meter.count(size_bytes, self)
        self.wants = self.wants or size_bytes > 0


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
