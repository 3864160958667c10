"""Outages as a consumer sees them, as spans: for each partition the last answer of a leader and the first of the next.

An answer without records is one as well: a partition to which nothing is written has as long an outage as any. Does
nothing, and costs one look at a flag for each answer, while nothing is traced.
"""

from typing import Final

from regnum.broker.v1.log_pb2 import FetchResponse
from regnum_service.errors import reason_of
from regnum_telemetry import conventions, propagation
from regnum_telemetry.tracing import Kind, Tracer, Value

from regnum_client.cluster.view import LeaderTerm
from regnum_client.consumer.fetching.polls import Poll
from regnum_client.records import TopicPartition


class ConsumerOutages:
    """Watches all partitions of one consumer. Belongs to its event loop."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer: Final = tracer
        self.enabled: Final = tracer.recording
        """Whether anything is recorded."""
        self._last: Final[dict[TopicPartition, tuple[LeaderTerm, int]]] = {}
        """The leadership that answered last, and when."""
        self._failed: Final[dict[TopicPartition, str]] = {}
        self._learned: Final[dict[TopicPartition, tuple[LeaderTerm, int]]] = {}
        """The next leadership of those that wait for one, and when it was asked first."""

    def failed(self, partition: TopicPartition, error: str) -> None:
        """It could not be read."""
        if partition in self._last:
            self._failed[partition] = error

    def forget(self, partition: TopicPartition) -> None:
        """It is read no more: the next answer is the first."""
        self._last.pop(partition, None)
        self._failed.pop(partition, None)
        self._learned.pop(partition, None)

    def any_recovering(self, poll: Poll, at_unix_nano: int) -> bool:
        """Whether the answer to a poll that begins now is the first after an outage or a change of leader."""
        recovering = False
        for cursor, _, term in poll.asked:
            last = self._last.get(cursor.partition)
            if last is not None and (last[0] != term or cursor.partition in self._failed):
                recovering = True
                place = propagation.parse(self._tracer.reserve(conventions.CONSUMER_OUTAGE))
                if place is not None and last[0] != term and not poll.is_elsewhere(term):
                    poll.span_ids[cursor.topic_id, cursor.partition.partition] = place.span_id
                known = self._learned.get(cursor.partition)
                if known is None or known[0] != term:
                    self._learned[cursor.partition] = (term, at_unix_nano)
        if recovering:
            poll.begun_unix_nano = at_unix_nano
        return recovering

    def take(self, poll: Poll, answer: FetchResponse, at_unix_nano: int) -> None:
        """A broker answered."""
        for (cursor, generation, term), result in zip(poll.asked, answer.results, strict=True):
            if cursor.generation != generation or poll.is_elsewhere(term):
                # Another offset is wanted by now, or what is said is no word of the leader.
                continue
            if result.error_code:
                self.failed(cursor.partition, reason_of(result.error_code))
            else:
                key = (cursor.topic_id, cursor.partition.partition)
                cause, span_id = poll.causes.get(key, ""), poll.span_ids.get(key, "")
                self.answered(cursor.partition, term, at_unix_nano, cause, poll.begun_unix_nano, span_id)

    def answered(
        self,
        partition: TopicPartition,
        term: LeaderTerm,
        at_unix_nano: int,
        cause: str,
        sent_unix_nano: int = 0,
        span_id: str = "",
    ) -> None:
        """Its leader answered.

        Args:
            partition: which.
            term: the leadership that did.
            at_unix_nano: when.
            cause: what made that leadership, as traceparent; empty: unknown.
            sent_unix_nano: when it was asked; 0: not known.
            span_id: id for the span, as the leader was told it; empty: none was.
        """
        before = self._last.get(partition)
        self._last[partition] = (term, at_unix_nano)
        error = self._failed.pop(partition, "") if self._failed else ""
        if before is None or (before[0] == term and not error):
            return
        attributes: dict[str, Value] = {
            conventions.MESSAGING_SYSTEM: conventions.MESSAGING_SYSTEM_NAME,
            conventions.TOPIC: partition.topic,
            conventions.PARTITION: str(partition.partition),
            conventions.BROKER: term.leader,
            conventions.LEADER_EPOCH: term.epoch,
            conventions.RETRIED: bool(error),
        }
        if error:
            attributes[conventions.ERROR_TYPE] = error
        learned = self._learned.pop(partition, None)
        if learned is not None and learned[0] == term:
            attributes[conventions.LEARNED_UNIX_NANO] = learned[1]
        if sent_unix_nano:
            attributes[conventions.SENT_UNIX_NANO] = sent_unix_nano
        # A leadership that stood before the trouble was not made by what caused it.
        above = None if before[0] == term else propagation.parse(cause)
        if above is not None:
            attributes[conventions.FAILOVER_TRACE_ID] = above.trace_id
        span = self._tracer.start(
            conventions.CONSUMER_OUTAGE,
            parent="" if above is None else propagation.root_of(cause),
            kind=Kind.CONSUMER,
            attributes=attributes,
            links=() if above is None else (cause,),
            at_unix_nano=before[1],
            place="" if above is None else propagation.beside(cause, span_id),
        )
        span.end(at_unix_nano)
