"""Outages as a producer sees them, as spans: for each partition the last acknowledgement before and the first after.

Inside an outage lies what the producer did meanwhile: from its first failed call until it knew of the leadership that
acknowledged (LEARN), the pauses before it sent again (BACKOFF), and the call that was acknowledged (SEND_TO_TOPIC).

Does nothing, and costs one look at a flag for each batch, while nothing is traced. Where something is, all that
ordinary batches cost is in ``is_recovering``, ``learned`` and the first lines of ``acknowledged``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from regnum_telemetry import conventions, propagation
from regnum_telemetry.tracing import Kind, Span, Tracer, Value

from regnum_client.cluster.view import LeaderTerm
from regnum_client.records import TopicPartition

PAUSES_MAX: Final = 32
"""Pauses of one outage that are recorded; the last one takes in what comes behind it."""

PLACES_MAX: Final = 16
"""Spans of records that the call is linked to."""


class Acknowledgement(NamedTuple):
    """One acknowledged batch."""

    at_unix_nano: int
    """When the answer was taken up."""
    term: LeaderTerm
    """The leadership that gave it."""
    offset: int
    """Base offset; -1 when the answer named none."""
    records: int
    """Number of records."""
    tries: int
    """How often the batch was sent."""
    waited_s: float
    """Since its first record."""
    sent_unix_nano: int
    """When it was last sent; 0: not known."""
    cause: str
    """What made that leadership, as traceparent; empty: unknown."""
    send_id: str = ""
    """Id for the span of the call that was acknowledged, as the leader was told it; empty: none was."""
    isr_change: str = ""
    """What ended the wait for a replica that was gone, as traceparent; empty: nobody waited for one, or unknown."""


@dataclass(slots=True, kw_only=True)
class Trouble:
    """What has gone wrong with a partition since its last acknowledgement."""

    since_unix_nano: int
    """The first failure."""
    error: str
    """Name of the last one."""
    pauses: list[tuple[int, int]] = field(default_factory=list)
    """Beginnings and ends of the pauses before it was sent again."""
    pausing_since_unix_nano: int = 0
    """When the pause began that has not ended; 0: there is none."""

    def pause(self, at_unix_nano: int) -> None:
        """The partition waits before it is sent again."""
        self.pausing_since_unix_nano = self.pausing_since_unix_nano or at_unix_nano

    def go_on(self, at_unix_nano: int) -> None:
        """It waits no longer."""
        begin_unix_nano, self.pausing_since_unix_nano = self.pausing_since_unix_nano, 0
        if begin_unix_nano:
            if len(self.pauses) >= PAUSES_MAX:
                begin_unix_nano, _ = self.pauses.pop()
            self.pauses.append((begin_unix_nano, at_unix_nano))


class OutageWatch:
    """Watches all partitions of one producer. Belongs to its event loop."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer: Final = tracer
        self.enabled: Final = tracer.recording
        """Whether anything is recorded."""
        self._last: Final[dict[TopicPartition, Acknowledgement]] = {}
        self._troubles: Final[dict[TopicPartition, Trouble]] = {}
        self._learned: Final[dict[TopicPartition, tuple[LeaderTerm, int]]] = {}
        """The leadership that was known last, and since when."""

    def learned(self, partition: TopicPartition, term: LeaderTerm, at_unix_nano: int, *, pauses: bool = False) -> None:
        """Records wait for that leadership, of which the first time counts; ``pauses``: before they are sent again."""
        known = self._learned.get(partition)
        if known is None or known[0] != term:
            self._learned[partition] = (term, at_unix_nano)
        trouble = self._troubles.get(partition)
        if trouble is None:
            return
        if pauses:
            trouble.pause(at_unix_nano)
        else:
            trouble.go_on(at_unix_nano)

    def failed(self, partition: TopicPartition, error: str, at_unix_nano: int) -> None:
        """A batch failed and is sent again."""
        trouble = self._troubles.get(partition)
        if trouble is None:
            self._troubles[partition] = Trouble(since_unix_nano=at_unix_nano, error=error)
        else:
            trouble.error = error

    def recovered(self, partition: TopicPartition) -> Trouble | None:
        """The trouble is over: what it was; None when there was none."""
        return self._troubles.pop(partition, None)

    def is_recovering(self, partition: TopicPartition, term: LeaderTerm) -> bool:
        """Whether the next acknowledgement of the partition is the first after an outage or a change of leader."""
        if partition in self._troubles:
            return True
        last = self._last.get(partition)
        return last is not None and last.term != term

    def has_moved(self, partition: TopicPartition, term: LeaderTerm) -> bool:
        """Whether the last acknowledgement of the partition is of another leadership."""
        last = self._last.get(partition)
        return last is not None and last.term != term

    def forget(self, partition: TopicPartition) -> None:
        """Nothing is sent to it any more: the next acknowledgement is the first."""
        for known in (self._last, self._troubles, self._learned):
            known.pop(partition, None)

    def send_id(self) -> str:
        """Id for the span of a call to a new leader, to tell that before."""
        place = propagation.parse(self._tracer.reserve(conventions.SEND_TO_TOPIC))
        return "" if place is None else place.span_id

    def acknowledged(
        self,
        partition: TopicPartition,
        now: Acknowledgement,
        trouble: Trouble | None = None,
        places: Sequence[str] = (),
    ) -> None:
        """A batch was acknowledged.

        Args:
            partition: where it went.
            now: the acknowledgement.
            trouble: what went wrong before it (``recovered``); None: nothing did.
            places: spans that led to it, as traceparents: the produce call's own, and those that its records brought.
        """
        before = self._last.get(partition)
        stayed = before is not None and before.term == now.term
        if stayed and now.cause != now.isr_change:
            # The leadership stood before the trouble: what made it, long ago perhaps, is not what caused this.
            now = now._replace(cause=now.isr_change)
        self._last[partition] = now
        if trouble is None and now.tries <= 1 and (before is None or (stayed and not now.isr_change)):
            return
        error: dict[str, Value] = {} if trouble is None else {conventions.ERROR_TYPE: trouble.error}
        if now.tries > 1:
            begin_unix_nano = now.at_unix_nano - round(now.waited_s * 1e9)
            more: dict[str, Value] = {conventions.ATTEMPTS: now.tries, **error}
            self._begin(conventions.RETRIED_SEND, partition, now, more, begin_unix_nano).end(now.at_unix_nano)
        if before is None or (trouble is None and stayed and now.isr_change in {"", before.isr_change}):
            # (Of the batches that one change of the ISR has freed the first one ended the outage.)
            return
        learned_unix_nano = self._learned_unix_nano(partition, now.term)
        outage = self._begin_outage(partition, before, now, learned_unix_nano, error)
        if outage.context:
            if trouble is not None:
                self._record_trouble(outage.context, partition, trouble, learned_unix_nano)
            if now.sent_unix_nano:
                self._record_send(outage.context, partition, now, places)
        outage.end(now.at_unix_nano)

    def _learned_unix_nano(self, partition: TopicPartition, term: LeaderTerm) -> int:
        known = self._learned.get(partition)
        return known[1] if known is not None and known[0] == term else 0

    def _begin_outage(
        self,
        partition: TopicPartition,
        before: Acknowledgement,
        now: Acknowledgement,
        learned_unix_nano: int,
        error: dict[str, Value],
    ) -> Span:
        attributes: dict[str, Value] = {
            conventions.LAST_ACK_UNIX_NANO: before.at_unix_nano,
            conventions.LAST_ACK_OFFSET: before.offset,
            conventions.LAST_ACK_LEADER_EPOCH: before.term.epoch,
            conventions.FIRST_ACK_UNIX_NANO: now.at_unix_nano,
            conventions.RETRIED: bool(error),
            conventions.WAITING_SINCE_UNIX_NANO: now.at_unix_nano - round(now.waited_s * 1e9),
            **error,
        }
        root = propagation.root_of(now.cause)
        if now.sent_unix_nano:
            attributes[conventions.SENT_UNIX_NANO] = now.sent_unix_nano
        if learned_unix_nano:
            attributes[conventions.LEARNED_UNIX_NANO] = learned_unix_nano
        return self._begin(conventions.OUTAGE, partition, now, attributes, before.at_unix_nano, parent=root)

    def _record_trouble(self, outage: str, partition: TopicPartition, trouble: Trouble, learned_unix_nano: int) -> None:
        if trouble.since_unix_nano < learned_unix_nano:
            self._record(conventions.LEARN, partition, outage, trouble.since_unix_nano, learned_unix_nano)
        for begin_unix_nano, end_unix_nano in trouble.pauses:
            self._record(conventions.BACKOFF, partition, outage, begin_unix_nano, end_unix_nano)

    def _record_send(self, outage: str, partition: TopicPartition, now: Acknowledgement, places: Sequence[str]) -> None:
        name = conventions.SEND_TO_TOPIC.format(topic=partition.topic)
        place = propagation.beside(outage, now.send_id)
        send = self._begin(
            name, partition, now, {}, now.sent_unix_nano, parent=outage, kind=Kind.CLIENT, links=places, place=place
        )
        send.end(max(now.sent_unix_nano, now.at_unix_nano))

    def _record(
        self, name: str, partition: TopicPartition, outage: str, begin_unix_nano: int, end_unix_nano: int
    ) -> None:
        attributes = {conventions.TOPIC: partition.topic, conventions.PARTITION: str(partition.partition)}
        self._tracer.start(name, parent=outage, attributes=attributes, at_unix_nano=begin_unix_nano).end(end_unix_nano)

    def _begin(
        self,
        name: str,
        partition: TopicPartition,
        now: Acknowledgement,
        more: dict[str, Value],
        begin_unix_nano: int,
        *,
        parent: str = "",
        kind: Kind = Kind.PRODUCER,
        links: Sequence[str] = (),
        place: str = "",
    ) -> Span:
        attributes: dict[str, Value] = {
            conventions.MESSAGING_SYSTEM: conventions.MESSAGING_SYSTEM_NAME,
            conventions.TOPIC: partition.topic,
            conventions.PARTITION: str(partition.partition),
            conventions.OFFSET: now.offset,
            conventions.MESSAGE_COUNT: now.records,
            conventions.BROKER: now.term.leader,
            conventions.LEADER_EPOCH: now.term.epoch,
            **more,
        }
        cause = propagation.parse(now.cause)
        if cause is not None:
            attributes[conventions.FAILOVER_TRACE_ID] = cause.trace_id
        return self._tracer.start(
            name,
            parent=parent,
            kind=kind,
            attributes=attributes,
            links=links or ((now.cause,) if now.cause else ()),
            at_unix_nano=begin_unix_nano,
            place=place,
        )


def places_in(headers: Sequence[tuple[str, bytes | None]]) -> tuple[str, ...]:
    """Where in traces the record with these headers was made; its sender may say so in ``traceparent``."""
    said = (value for name, value in headers if name == propagation.TRACEPARENT and value is not None)
    texts = (value.decode("ascii", errors="replace") for value in said)
    return tuple(text for text in texts if propagation.parse(text) is not None)
