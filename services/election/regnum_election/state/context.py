"""State and means of one reign: what the controller knows of the cluster, and by what it acts.

``partition_writes`` changes partitions, ``telling`` tells of what was changed; both work on this.
"""

import random
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Protocol

import structlog
from regnum_model.ids import NO_EPOCH, BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionKey, TopicId
from regnum_model.insync import may_let_go
from regnum_service.clock import Clock
from regnum_telemetry import conventions, tracing
from regnum_telemetry.metrics import Metrics

from regnum_election.decisions.cluster import Cluster, Partition
from regnum_election.decisions.leadership import Decision, Surroundings, first_state, settle
from regnum_election.decisions.registrations import SharedAddress
from regnum_election.dispatch.dispatch import Dispatch
from regnum_election.history.events import Reason
from regnum_election.history.reign_events import ReignEvents
from regnum_election.publication.metadata_processes import MetadataPublisher
from regnum_election.publication.unpublished import Unpublished
from regnum_election.reign.reign import DeposedError, Reign
from regnum_election.reign.writing import FencedStore
from regnum_election.state.open_deletions import OpenDeletions
from regnum_election.state.open_removals import OpenRemovals
from regnum_election.state.tally import Tally
from regnum_election.state.unverified import Unverified
from regnum_election.traces.change_trace import ChangeTrace
from regnum_election.traces.changes import Changes

Decide = Callable[[Cluster, PartitionKey, Partition], Decision]
"""A decision about one partition of the picture."""


class Defer(Protocol):
    """Puts work into the controller's queue."""

    def __call__(self, name: str, steps: AsyncGenerator[None, None], *, gives_way: bool = False) -> None:
        """Work in steps that counts as a cluster event; other cluster events come between its steps.

        Args:
            name: what it is, for the log.
            steps: the work.
            gives_way: whether mutations of callers may come between its steps as well.
        """


class ControllerContext:
    """State and means of one reign. Used by the controller's one task only."""

    def __init__(
        self,
        *,
        reign: Reign,
        store: FencedStore,
        dispatch: Dispatch,
        metadata: MetadataPublisher,
        clock: Clock,
        chance: random.Random,
        defer: Defer,
        unverified: Unverified,
        events: ReignEvents,
        tally: Tally | None = None,
    ) -> None:
        self.reign: Final = reign
        self.store: Final = store
        self.dispatch: Final = dispatch
        self.metadata: Final = metadata
        self.clock: Final = clock
        self.chance: Final = chance
        self.defer: Final = defer
        """Puts work into the queue."""
        self.log: Final = structlog.get_logger("controller").bind(epoch=reign.epoch)
        self.tally: Final = tally or Tally(Metrics())
        """What is counted."""
        self.unverified: Final = unverified
        """Partitions whose state comes from the predecessor and not from the store."""
        self.events: Final = events
        """What happened, for people."""
        self.unpublished: Final = Unpublished()
        """Topics that nobody but this reign knows of."""
        self.picture = Cluster()
        self.deletions: Final = OpenDeletions()
        self.removals: Final = OpenRemovals()
        """Partitions that are gone from topics that stay, and that some broker has still to delete."""
        self.refused: Final[dict[str, str]] = {}
        """Topics whose nodes are left alone, or were damaged while this reign knows them, by name, with the reason."""
        self.incomplete: Final[dict[str, str]] = {}
        """Topics that run though their nodes miss partition numbers, by name, in words; see ``topics.incomplete``."""
        self.edited: Final[dict[TopicId, str]] = {}
        """Topics whose nodes name other replicas than were accepted, in words; see ``accepted``."""
        self.unrecorded: Final[dict[TopicId, None]] = {}
        """Topics whose guards do not record their assignment yet."""
        self.spoiled: Final[dict[PartitionKey, str]] = {}
        """Partitions that are led on, though their state in the store cannot be used any more, with the reason."""
        self.clearing: dict[str, TopicId] = {}
        """Names whose nodes are being deleted; not free yet."""
        self.fenced: dict[BrokerId, BrokerEpoch] = {}
        self.contradicted: Final[dict[PartitionKey, tuple[int, str]]] = {}
        """Partitions whose state a broker's log contradicts: version of that state, and what is wrong."""
        self.strangers: Final[dict[BrokerId, str]] = {}
        """Brokers that are registered and take no part, because they do not speak the protocol in force; with words."""
        self.sharing: dict[BrokerId, SharedAddress] = {}
        """Brokers that are registered and take no part, because another one has an address that they advertise."""
        self.troubled: set[TopicId] = set()
        """Topics of which some partition was in trouble; see ``trouble``."""
        self.changes: Final = Changes(
            reign,
            opened=self._change_opened,
            ended=self.tally.change_ended,
            measured=self.tally.change_measured,
        )
        """Traces of changes of leadership."""
        self.unfinished: dict[PartitionKey, tuple[Decide, Reason]] = {}
        """Partitions still in conflict after all rounds of a change, with its decision and why; see ``unfinished``."""
        self.folders: set[PartitionKey] = set()
        """Partitions without a state whose folder stands in the store."""
        self._surroundings: Surroundings | None = None

    def _change_opened(self, trace: ChangeTrace) -> None:
        self.tally.change_opened(trace.kind)
        self.dispatch.tell_of_acknowledgements(trace)

    @property
    def change(self) -> ChangeTrace | None:
        """The change whose new leaders are being decided, written and told."""
        return self.changes.under_way

    @property
    def surroundings(self) -> Surroundings:
        """What decisions look at; one value for as long as the brokers are the same."""
        picture, known = self.picture, self._surroundings
        if known is None or known.brokers is not picture.brokers or known.leaving is not picture.leaving:
            known = self._surroundings = Surroundings(
                brokers=picture.brokers, leaving=picture.leaving, controller_epoch=self.reign.epoch
            )
        return known

    def surroundings_of(self, key: PartitionKey) -> Surroundings:
        """What decisions about one partition look at."""
        offline = self.picture.offline_at(key)
        return replace(self.surroundings, offline=offline) if offline else self.surroundings

    def decided(self, former: Iterable[BrokerId], *, leaders: bool) -> None:
        """States were decided; ``leaders``: some of them begin leader epochs, of partitions that ``former`` led."""
        if self.change is None:
            return
        if leaders:
            self.change.decided(former)
            tracing.enter(self.change.context)
        else:
            self.reached(conventions.DECIDED_UNIX_NANO, again=False)

    def reached(self, boundary: str, *, again: bool) -> None:
        """The change that is being handled has come so far."""
        if self.change is not None:
            self.change.reached(boundary, again=again)

    @contextmanager
    def traced(self, trace: ChangeTrace | None) -> Iterator[None]:
        """What is decided, written and told in the body belongs to that change, from when it is one (``decided``)."""
        self.changes.under_way = trace
        try:
            with tracing.within(trace.context if trace is not None and trace.is_open else ""):
                yield
        finally:
            self.changes.under_way = None

    def settle(self, picture: Cluster, key: PartitionKey, partition: Partition) -> Decision:
        """The ordinary decision: fit to the live brokers, or the first state of a partition that may get one."""
        if partition.held is None:
            last = NO_EPOCH if partition.tombstone is None else partition.tombstone.state.leader_epoch
            after = LeaderEpoch(max(last, partition.began - 1))
            return first_state(key.topic_id, partition.replicas, self.surroundings_of(key), after=after)
        return settle(
            partition.held.state,
            partition.replicas,
            self.surroundings_of(key),
            min_insync=picture.min_insync(key, partition),
        )

    def is_held_up(self, key: PartitionKey, partition: Partition) -> bool:
        """Whether a partition commits nothing because of eligible replicas that it no longer needs."""
        held = partition.held
        if held is None or not held.state.elr:
            return False
        return may_let_go(held.state, min_insync=self.picture.min_insync(key, partition))

    def release(self) -> None:
        """The reign is over: forget what is large. Reign and parts refer to one another, and old cycles stay."""
        self.picture = Cluster()
        self.dispatch.release()
        self.metadata.release()

    def trouble(self, troubles: dict[PartitionKey, str]) -> None:
        """Partitions that only a person can repair (safety rule S14)."""
        for key, reason in troubles.items():
            topic = self.picture.topics.get(key.topic_id)
            self.troubled.add(key.topic_id)
            name = "" if topic is None else topic.name
            self.log.error("partition offline", topic=name, partition=key.partition, reason=reason)
            self.events.out_of_reach(name, key, reason)
        self.picture = self.picture.with_trouble(troubles)
        self.metadata.changed(troubles)

    def trouble_contradicted(self) -> None:
        """States were read anew: what was contradicted, and is as it was, is in trouble still."""
        still: dict[PartitionKey, str] = {}
        for key, (version, reason) in tuple(self.contradicted.items()):
            partition = self.picture.partitions.get(key)
            if partition is None or partition.held is None or partition.held.version != version:
                del self.contradicted[key]
            elif partition.trouble is None:
                still[key] = reason
        if still:
            self.troubled.update(key.topic_id for key in still)
            self.picture = self.picture.with_trouble(still)

    def give_way(self, latest: ControllerEpoch) -> None:
        """End the reign if a state is from a later one (safety rule S7).

        A partition that only kept the state of the later reign would have no controller: this one may not touch it, and
        the other one knows nothing of its brokers. The next reign begins above the highest that was met.

        Raises:
            DeposedError: it is.
        """
        if latest > self.reign.epoch:
            raise DeposedError(f"a partition's state is from controller epoch {latest}", seen=latest)
