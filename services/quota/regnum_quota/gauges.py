"""What a quota process shows of itself: numbers that are there, read by the thread that somebody asks."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from regnum_service.clock import Clock
from regnum_telemetry.instruments import quota as instruments
from regnum_telemetry.metrics import OTHER, Labels, Metrics

from regnum_quota.office import Office
from regnum_quota.usage import Used

FRESH_S: Final = 0.5
"""For so long what was worked out for one metric serves the others: somebody asks for all of them at once."""

UNNAMED: Final = "<unnamed>"
"""Label of a client that does not name itself; nothing at all means that the bucket is for no particular one."""
_REST: Final = (OTHER, OTHER)


def show_quotas(metrics: Metrics, office: Office, clock: Clock, *, entities_max: int) -> None:
    """Let the metrics read whatever term there is; nothing is shown of buckets while this process does not decide.

    Users and client ids come from outside, in any number: the ``entities_max`` buckets that were used last are shown
    by name, the rest together, and none that was not used for an hour. `regnum quotas top` shows all.
    """

    def buckets() -> float | None:
        term = office.active
        return None if term is None else term.bucket_count

    def tokens_least() -> float | None:
        term = office.active
        return None if term is None else term.tokens_least

    metrics.observe(instruments.QUOTA_ACTIVE, lambda: 0 if office.active is None else 1)
    metrics.observe(instruments.QUOTA_BUCKETS, buckets)
    metrics.observe(instruments.QUOTA_TOKENS_LEAST, tokens_least)
    shown = _Shown(office, clock, entities_max)
    metrics.observe_all(instruments.QUOTA_RATE, lambda: shown.each(lambda used: used.usage.rate, sum))
    metrics.observe_all(instruments.QUOTA_TOKENS, lambda: shown.each(lambda used: used.bucket.tokens, min))
    metrics.observe_all(
        instruments.QUOTA_THROTTLE_TIME, lambda: shown.each(lambda used: used.usage.throttle_ms / 1000, max)
    )


class _Shown:
    """Used by the thread that reads metrics."""

    def __init__(self, office: Office, clock: Clock, entities_max: int) -> None:
        self._office: Final = office
        self._clock: Final = clock
        self._entities_max: Final = entities_max
        self._found: tuple[Used, ...] = ()
        self._at_s = float("-inf")

    def each(
        self, value: Callable[[Used], float], together: Callable[[Sequence[float]], float]
    ) -> Iterator[tuple[Labels, float]]:
        """A value of each bucket, and of those that have no room one of all ``together``."""
        now_s = self._clock.monotonic()
        if now_s - self._at_s > FRESH_S:
            term = self._office.active
            self._found, self._at_s = () if term is None else term.usages(), now_s
        # Callers choose their names: two of the same labels, or those of the rest, would spoil the whole answer.
        named: dict[Labels, float] = {}
        rest: list[float] = []
        for used in self._found:
            labels = _label(used.key.user), _label(used.key.client_id)
            if len(named) < self._entities_max and labels not in named and labels != _REST:
                named[labels] = value(used)
            else:
                rest.append(value(used))
        yield from named.items()
        if rest:
            yield _REST, together(rest)


def _label(part: str | None) -> str:
    return "" if part is None else part or UNNAMED
