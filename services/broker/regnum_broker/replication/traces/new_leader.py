"""What a leadership owes to the traces of changes: of the one that made it, and of those that free what waits in it."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from regnum_telemetry import conventions, propagation, tracing

if TYPE_CHECKING:
    from regnum_broker.replication.leader import Leadership

FIRST_ANSWERS_MAX: Final = 1_000
"""Calls of clients that came back, in one trace and of one broker."""
TRACES_MAX: Final = 10_000
"""Traces of which it is known how many there are."""


class NewLeader:
    """Kept by a Leadership until its first append; none of it without a trace."""

    __slots__ = ("began_unix_nano", "refused_unix_nano")

    def __init__(self, began_unix_nano: int) -> None:
        """Only assigns."""
        self.began_unix_nano = began_unix_nano
        """When the leadership began."""
        self.refused_unix_nano: int | None = 0
        """When too few replicas were in sync for a producer for the first time; 0: never yet. None: it is recorded."""

    def refused(self) -> None:
        """A producer was refused because too few replicas are in sync."""
        if self.refused_unix_nano == 0:
            self.refused_unix_nano = tracing.now_unix_nano()

    def look(self, leadership: "Leadership") -> None:
        """The ISR or what is asked of it may be another: record a wait for it that is over, once."""
        if self.refused_unix_nano and leadership.isr_sufficient:
            record_wait(conventions.MIN_ISR_WAIT, leadership, self.refused_unix_nano)
            self.refused_unix_nano = None


class FreedRecords:
    """Records that waited for a replica until a traced change took it out of the ISR."""

    __slots__ = ("_begin", "_end", "_recorded", "cause")

    def __init__(self, cause: str, begin: int, end: int) -> None:
        """Offsets from ``begin`` to before ``end``."""
        self.cause: Final = cause
        """Place in the trace of the change."""
        self._begin: Final = begin
        self._end: Final = end
        self._recorded = False

    def has(self, offset: int) -> bool:
        """Whether a record is one of them."""
        return self._begin <= offset < self._end

    def record(self, leadership: "Leadership", came_unix_nano: int, offset: int) -> None:
        """Their wait, as spans, once: from the moment at which the first of them came.

        The first is that of the order that freed them, the second one lies below the span of the client, which finds
        its id by itself (``propagation.waiting_id``). ``offset``: of the first batch.
        """
        if self._recorded:
            return
        self._recorded = True
        record_wait(conventions.HIGH_WATERMARK_WAIT, leadership, came_unix_nano, parent=self.cause)
        key = leadership.partition.key
        sent = propagation.waiting_id(self.cause, key.topic_id, key.partition, offset)
        _answered(propagation.beside(self.cause, sent), leadership.partition.topic, key.partition, came_unix_nano)


class Asked(Protocol):
    """A partition that a call was about."""

    topic: str
    topic_id: str
    partition: int


class FirstAnswers:
    """Spans of the calls with which clients came back, as many for a change as there are clients that wait for it.

    A client may say at any time that it comes back: what it makes a broker record is bounded.
    """

    def __init__(self) -> None:
        """Nothing is recorded yet."""
        self._recorded: Final[dict[str, int]] = {}
        """How many there are in a trace; the one begun last is the last."""

    def record(
        self,
        began_unix_nano: int,
        answered: Iterable[tuple[Asked, str]],
        below: Mapping[tuple[str, int], str],
    ) -> None:
        """Spans of a call that ends now.

        Args:
            began_unix_nano: when it arrived.
            answered: what of it was done, and what made the leaderships, as traceparents.
            below: ids of the client's spans, by topic id and partition; of others nothing is recorded.
        """
        now = tracing.now_unix_nano()
        for item, cause in answered:
            parent = propagation.parse(propagation.beside(cause, below.get((item.topic_id, item.partition), "")))
            if parent is not None and self._has_room(parent.trace_id):
                _answered(propagation.render(parent), item.topic, item.partition, began_unix_nano, now)

    def _has_room(self, trace_id: str) -> bool:
        count = self._recorded.get(trace_id, 0)
        if count == FIRST_ANSWERS_MAX:
            return False
        self._recorded[trace_id] = count + 1
        if len(self._recorded) > TRACES_MAX:
            del self._recorded[next(iter(self._recorded))]
        return True


def _answered(parent: str, topic: str, partition: int, began_unix_nano: int, end_unix_nano: int = 0) -> None:
    """The leader's part of a client's call that ends then; 0: now."""
    span = tracing.tracer().start(
        conventions.FIRST_ANSWER,
        parent=parent,
        kind=tracing.Kind.SERVER,
        attributes={conventions.TOPIC: topic, conventions.PARTITION: str(partition)},
        at_unix_nano=began_unix_nano,
    )
    span.end(end_unix_nano or tracing.now_unix_nano())


def record_wait(
    name: str, leadership: "Leadership", began_unix_nano: int, offset: int | None = None, *, parent: str = ""
) -> None:
    """A span of a leadership that ends now, in the trace of what made that, or below ``parent``."""
    attributes: dict[str, tracing.Value] = {
        conventions.BROKER: leadership.broker,
        conventions.TOPIC: leadership.partition.topic,
        conventions.PARTITION: str(leadership.partition.key.partition),
        conventions.LEADER_EPOCH: leadership.state.leader_epoch,
    }
    if offset is not None:
        attributes[conventions.OFFSET] = offset
    tracing.between(
        name, began_unix_nano, tracing.now_unix_nano(), parent=parent or leadership.cause, attributes=attributes
    )
