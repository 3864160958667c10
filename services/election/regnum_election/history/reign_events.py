"""What a reign writes into the event log: events get their places here."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog
from regnum.types.v1 import events_pb2 as words
from regnum_model.ids import BrokerEpoch, BrokerId, PartitionKey, TopicId
from regnum_service.clock import Clock
from regnum_telemetry import tracing

from regnum_election.decisions.cluster import Cluster
from regnum_election.history.events import (
    AssignmentRow,
    AssignmentsEntry,
    Entry,
    Kind,
    Named,
    OtherEntry,
    PartitionRow,
    PartitionsEntry,
    Position,
    Reason,
    not_written_down,
)
from regnum_election.history.missing import AskLog, Unlogged, nothing_logged, unlogged, unlogged_topics
from regnum_election.reign.reign import Reign


def nowhere(_entry: Entry) -> None:
    """Takes entries for nobody."""


class ReignEvents:
    """Of one reign. Used by the controller's loop only; nothing here waits or fails."""

    def __init__(
        self, reign: Reign, write: Callable[[Entry], None], clock: Clock, ask_log: AskLog = nothing_logged
    ) -> None:
        """Only assigns; ``ask_log``: what the log says of reigns before."""
        self._reign: Final = reign
        self._write: Final = write
        self._clock: Final = clock
        self._ask_log: Final = ask_log
        self._log: Final = structlog.get_logger("event-log")
        self._number = 1
        self._deleting: Final[dict[TopicId, str]] = {}
        self._unborn: Final[set[TopicId]] = set()
        self.unreadable: Final[dict[TopicId, str]] = {}
        """Topics whose nodes cannot be read, and why, as it was told (``state.accepted``)."""
        self._told: set[tuple[Kind, TopicId]] | None = set()
        """What this reign has said of whole topics; None: ``tell_of_unlogged`` is done and nobody asks any more."""

    def partitions(self, rows: Sequence[PartitionRow], topics: Mapping[TopicId, Named], reason: Reason) -> None:
        """States of partitions changed.

        Args:
            rows: which, and how; nobody changes the sequence any more.
            topics: topics of the picture, with those of the rows.
            reason: why.
        """
        if not rows:
            return
        self._write(
            PartitionsEntry(
                position=self._next(len(rows)),
                controller=self._reign.controller_id,
                time_unix_ms=self._clock.wall_ms(),
                reason=self._traced(reason),
                rows=rows,
                topics=topics,
            )
        )

    def assignments(
        self, kind: Kind, rows: Sequence[AssignmentRow], topics: Mapping[TopicId, Named], reason: Reason
    ) -> None:
        """Replicas of partitions change, or are to change.

        Args:
            kind: what happened to each of them.
            rows: which, from where and to where; nobody changes the sequence any more.
            topics: topics of the picture, with those of the rows.
            reason: why, and who asked.
        """
        if not rows:
            return
        self._write(
            AssignmentsEntry(
                position=self._next(len(rows)),
                controller=self._reign.controller_id,
                time_unix_ms=self._clock.wall_ms(),
                reason=self._traced(reason),
                kind=kind,
                rows=rows,
                topics=topics,
            )
        )

    def broker(self, kind: Kind, broker: BrokerId, epoch: BrokerEpoch, reason: Reason, *, count: int = 0) -> None:
        """A broker came, went, or said something of ``count`` replicas."""
        self._other(kind, reason, broker=broker, broker_epoch=epoch, count=count)

    def refused(self, broker: BrokerId, epoch: BrokerEpoch, detail: str) -> None:
        """A registered broker takes no part, or nothing reaches it."""
        kind, reason = words.EVENT_KIND_BROKER_REFUSED, Reason(words.EVENT_CAUSE_UNSPECIFIED)
        self._other(kind, reason, broker=broker, broker_epoch=epoch, detail=detail)

    def topic(
        self, kind: Kind, name: str, id: TopicId, reason: Reason, *, partitions: int = 0, detail: str = ""
    ) -> None:
        """Something happened to a topic as a whole."""
        if self._told is not None:
            self._told.add((kind, id))
        self._other(kind, reason, topic=name, topic_id=id, count=partitions, detail=detail)

    def out_of_reach(self, name: str, key: PartitionKey, detail: str) -> None:
        """Only a person can repair a partition."""
        kind = words.EVENT_KIND_PARTITION_OUT_OF_REACH
        self._other(
            kind,
            Reason(words.EVENT_CAUSE_UNSPECIFIED),
            topic=name,
            topic_id=key.topic_id,
            partition=key.partition,
            detail=detail,
        )

    def config(self, topic: str, detail: str) -> None:
        """Settings changed: of a topic, or, with an empty name, of the cluster."""
        self._other(words.EVENT_KIND_CONFIG_CHANGED, Reason(words.EVENT_CAUSE_CONFIG), topic=topic, detail=detail)

    def overdue(
        self, kind: Kind, detail: str, *, count: int, broker: BrokerId | None = None, traceparent: str = ""
    ) -> None:
        """Something has been wrong for too long.

        Args:
            kind: ORDERS_OVERDUE or TROUBLE_OVERDUE.
            detail: what, for people, with the first partitions that it is about.
            count: orders, or partitions.
            broker: who does not acknowledge them.
            traceparent: what caused the oldest of the orders; empty: nothing that is traced.
        """
        reason = Reason(words.EVENT_CAUSE_UNSPECIFIED).within(traceparent)
        self._other(kind, reason, broker=broker, count=count, detail=detail)

    def found_unborn(self, id: TopicId) -> None:
        """None of a topic's partitions has a state: an earlier reign made it, perhaps without writing that down."""
        if self._told is not None:
            self._unborn.add(id)

    def found_deleting(self, name: str, id: TopicId) -> None:
        """The deletion of a topic is recorded, and its nodes stand: an earlier reign began it."""
        if self._told is not None:
            self._deleting[id] = name

    async def tell_of_unlogged(self, found: Cluster) -> None:
        """Write down what a predecessor wrote to the store and not into the log; ``found``: as the reign began.

        Reads the log on a thread, and compares in steps: nobody waits for it.
        """
        try:
            logged = await self._ask_log(self._reign.epoch)
        except OSError as error:
            self._log.warning("the log cannot be read, and what is missing in it is not looked for", reason=str(error))
            return
        told, self._told = self._told or set(), None
        if logged is None:
            return
        # Topics first: they come before their partitions.
        lost = Reason(words.EVENT_CAUSE_NOT_WRITTEN_DOWN, "found in the store at the beginning of a reign")
        for topic in await unlogged_topics(found, self._unborn, logged, reign=self._reign.epoch):
            if (words.EVENT_KIND_TOPIC_CREATED, topic.id) not in told:
                count = len(topic.partitions)
                self.topic(words.EVENT_KIND_TOPIC_CREATED, topic.name, topic.id, lost, partitions=count)
        for id, name in self._deleting.items():
            if id not in logged.deleted and (words.EVENT_KIND_TOPIC_DELETED, id) not in told:
                self.topic(words.EVENT_KIND_TOPIC_DELETED, name, id, lost)
        self._unlogged(await unlogged(found.partitions, logged, reign=self._reign.epoch), found.topics)

    def _unlogged(self, found: Unlogged, topics: Mapping[TopicId, Named]) -> None:
        """States that reigns before this one wrote, and of which the log has no event.

        Args:
            found: those states.
            topics: topics of the picture, with those of the states.
        """
        told = 0
        for epoch, rows in sorted(found.rows.items()):
            told += len(rows)
            self.partitions(rows, topics, not_written_down(epoch))
        if found.count > told:
            reason = Reason(words.EVENT_CAUSE_NOT_WRITTEN_DOWN, "found in the store at the beginning of a reign")
            self._other(words.EVENT_KIND_EVENTS_DROPPED, reason, count=found.count - told)

    def store_went_back(self) -> None:
        """The store holds an earlier state than it did, and this reign changes nothing."""
        self._other(
            words.EVENT_KIND_STORE_WENT_BACK, Reason(words.EVENT_CAUSE_UNSPECIFIED), detail=self._reign.went_back
        )

    def store_writes(self, refused_because: str) -> None:
        """The store takes no writes, for that reason; empty: it takes them again."""
        kind = words.EVENT_KIND_STORE_WRITES_REFUSED if refused_because else words.EVENT_KIND_STORE_WRITES_TAKEN
        self._other(kind, Reason(words.EVENT_CAUSE_UNSPECIFIED), detail=refused_because)

    def connections(self, broker: BrokerId, epoch: BrokerEpoch, refused_because: str) -> None:
        """A broker turns connections away, for that reason; empty: it takes them again."""
        kind = words.EVENT_KIND_CONNECTIONS_REFUSED if refused_because else words.EVENT_KIND_CONNECTIONS_TAKEN
        reason = Reason(words.EVENT_CAUSE_UNSPECIFIED)
        self._other(kind, reason, broker=broker, broker_epoch=epoch, detail=refused_because)

    def reign_began(self, traceparent: str) -> None:
        """The first event of a reign; ``traceparent``: the succession, if it is traced."""
        before = self._reign.predecessor
        if before is None:
            reason, detail = Reason(words.EVENT_CAUSE_UNSPECIFIED), "no controller was known before"
        else:
            reason = Reason(words.EVENT_CAUSE_CONTROLLER_GONE, before.cause)
            detail = f"it succeeds election process {before.id}"
        self._other(words.EVENT_KIND_CONTROLLER_ELECTED, reason.within(traceparent), detail=detail)

    def _other(
        self,
        kind: Kind,
        reason: Reason,
        *,
        broker: BrokerId | None = None,
        broker_epoch: BrokerEpoch = BrokerEpoch(0),  # noqa: B008 - a number
        topic: str = "",
        topic_id: str = "",
        partition: int = -1,
        count: int = 0,
        detail: str = "",
    ) -> None:
        self._write(
            OtherEntry(
                position=self._next(1),
                controller=self._reign.controller_id,
                time_unix_ms=self._clock.wall_ms(),
                reason=self._traced(reason),
                kind=kind,
                broker=broker,
                broker_epoch=broker_epoch,
                topic=topic,
                topic_id=topic_id,
                partition=partition,
                count=count,
                detail=detail,
            )
        )

    def _next(self, events: int) -> Position:
        number = self._number
        self._number += events
        return Position(self._reign.epoch, number)

    @staticmethod
    def _traced(reason: Reason) -> Reason:
        return reason if reason.traceparent else reason.within(tracing.current())
