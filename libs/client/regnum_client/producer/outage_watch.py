"""Outages as a producer sees them, as spans: for each partition the last acknowledgement before and the first after.

Does nothing, and costs one look at a flag for each batch, while nothing is traced.
"""

from dataclasses import dataclass, replace
from typing import Final

from regnum_telemetry import conventions, propagation, tracing
from regnum_telemetry.tracing import Tracer, Value

from regnum_client.cluster.view import LeaderTerm
from regnum_client.records import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
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
    error: str
    """The last failure before it (``recovered``); empty: none."""


class OutageWatch:
    """Watches all partitions of one producer. Belongs to its event loop."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer: Final = tracer
        self.enabled: Final = tracer.recording
        """Whether anything is recorded."""
        self._last: Final[dict[TopicPartition, Acknowledgement]] = {}
        self._failed: Final[dict[TopicPartition, str]] = {}
        self._learned: Final[dict[TopicPartition, tuple[LeaderTerm, int]]] = {}
        """The leadership that was known last, and since when."""

    def learned(self, partition: TopicPartition, term: LeaderTerm, at_unix_nano: int) -> None:
        """Records wait for that leadership; the first time counts."""
        known = self._learned.get(partition)
        if known is None or known[0] != term:
            self._learned[partition] = (term, at_unix_nano)

    def failed(self, partition: TopicPartition, error: str) -> None:
        """A batch failed and is sent again."""
        self._failed[partition] = error

    def recovered(self, partition: TopicPartition) -> str:
        """The trouble is over: what it was; empty when there was none."""
        return self._failed.pop(partition, "")

    def is_recovering(self, partition: TopicPartition, term: LeaderTerm) -> bool:
        """Whether the next acknowledgement of the partition is the first after an outage or a change of leader."""
        last = self._last.get(partition)
        return partition in self._failed or (last is not None and last.term != term)

    def acknowledged(self, partition: TopicPartition, now: Acknowledgement) -> None:
        """A batch was acknowledged."""
        before = self._last.get(partition)
        if before is not None and before.term == now.term:
            # The leadership stood before the trouble: what made it, long ago perhaps, is not what caused this.
            now = replace(now, cause="")
        self._last[partition] = now
        if now.tries > 1:
            self._record_retried(partition, now)
        if before is not None and (now.error or before.term != now.term):
            self._record_outage(partition, before, now)

    def _record_outage(self, partition: TopicPartition, before: Acknowledgement, now: Acknowledgement) -> None:
        attributes: dict[str, Value] = {
            conventions.LAST_ACK_UNIX_NANO: before.at_unix_nano,
            conventions.LAST_ACK_OFFSET: before.offset,
            conventions.LAST_ACK_LEADER_EPOCH: before.term.epoch,
            conventions.FIRST_ACK_UNIX_NANO: now.at_unix_nano,
            conventions.RETRIED: bool(now.error),
            conventions.WAITING_SINCE_UNIX_NANO: now.at_unix_nano - round(now.waited_s * 1e9),
        }
        if now.sent_unix_nano:
            attributes[conventions.SENT_UNIX_NANO] = now.sent_unix_nano
        known = self._learned.get(partition)
        if known is not None and known[0] == now.term:
            attributes[conventions.LEARNED_UNIX_NANO] = known[1]
        self._record(conventions.OUTAGE, partition, now, attributes, before.at_unix_nano, parent=now.cause)

    def _record_retried(self, partition: TopicPartition, now: Acknowledgement) -> None:
        begin = now.at_unix_nano - round(now.waited_s * 1e9)
        self._record(conventions.RETRIED_SEND, partition, now, {conventions.ATTEMPTS: now.tries}, begin)

    def _record(
        self,
        name: str,
        partition: TopicPartition,
        now: Acknowledgement,
        more: dict[str, Value],
        begin_unix_nano: int,
        *,
        parent: str = "",
    ) -> None:
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
        if now.error:
            attributes[conventions.ERROR_TYPE] = now.error
        cause = propagation.parse(now.cause)
        if cause is not None:
            attributes[conventions.FAILOVER_TRACE_ID] = cause.trace_id
        span = self._tracer.start(
            name,
            parent=parent,
            kind=tracing.Kind.PRODUCER,
            attributes=attributes,
            links=(now.cause,) if now.cause else (),
            at_unix_nano=begin_unix_nano,
        )
        span.end(now.at_unix_nano)
