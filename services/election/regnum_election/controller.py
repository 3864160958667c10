"""The controller: a single writer that takes an event, decides, writes, applies and dispatches.

One object for each reign. Everything that changes the cluster runs in its one task, event after event, so nothing has
to be locked; what clients ask for is queued and answered through futures. It stops acting while its session is not
confirmed (safety rule S8) and ends with DeposedError as soon as a write is fenced or somebody shows a later epoch
(safety rule S7).
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, Final, TypeVar, assert_never

import structlog
from regnum_coordination.errors import SessionExpired
from regnum_coordination.port import Children, Store
from regnum_coordination.recipes.changed_children import changed_children
from regnum_model import paths
from regnum_model.bucket import Limit
from regnum_model.epochs import is_plausible
from regnum_model.ids import ControllerEpoch
from regnum_model.nodes import Address
from regnum_model.quotas import QuotaProcessNode
from regnum_service.cancellation import carried_through
from regnum_service.clock import Clock
from regnum_service.supervisor import Spawn
from regnum_telemetry.metrics import Metrics

from regnum_election.acls.calls import AclCalls
from regnum_election.admission.quota_calls import QuotaCalls
from regnum_election.admission.quota_process import QuotaChannel
from regnum_election.admission.quotas import Quotas
from regnum_election.brokers.calls import BrokerCalls
from regnum_election.brokers.changes import fence_broker, look_at_brokers, take_up_isrs
from regnum_election.brokers.forgetting import BrokerForgetting
from regnum_election.brokers.in_sync import Tell, nobody_is_told
from regnum_election.brokers.offline_replicas import take_back, take_offline
from regnum_election.brokers.relieving import Relieving
from regnum_election.configs.book import ConfigBook
from regnum_election.configs.calls import ConfigCalls
from regnum_election.decisions.cluster import Broker, Cluster
from regnum_election.dispatch.control_requests import ControlRequests
from regnum_election.dispatch.dispatch import Dispatch
from regnum_election.dispatch.ports import ControlChannel
from regnum_election.health.watch import HealthWatch, Limits
from regnum_election.history.events import Entry
from regnum_election.history.missing import AskLog, nothing_logged
from regnum_election.history.reign_events import ReignEvents, nowhere
from regnum_election.leaders.balance import FIRST_LOOK_S
from regnum_election.leaders.calls import LeaderCalls
from regnum_election.leaders.fenced import take_fenced
from regnum_election.partitions.by_hand import FOLDERS, OrdersByHand
from regnum_election.partitions.calls import PartitionCalls
from regnum_election.partitions.removal import PartitionRemover
from regnum_election.publication.delta_log import Announcer, Base
from regnum_election.publication.metadata_processes import MetadataPublisher
from regnum_election.publication.subscriber import DeathDetector, MetadataProcess, PropagationChannel
from regnum_election.reassignment.agent import MOVING_MAX, Reassigner
from regnum_election.reassignment.by_hand import ReassignmentsByHand
from regnum_election.reassignment.calls import PartitionReassignments
from regnum_election.recovery.calls import PartitionRecoveries
from regnum_election.recovery.restored import RestoredPartitions
from regnum_election.reign.ending import end_reign
from regnum_election.reign.event_times import EventTimes
from regnum_election.reign.event_waits import EventWaits
from regnum_election.reign.events import (
    BrokerDead,
    BrokersChanged,
    Event,
    EventQueue,
    IsrsWritten,
    LeaderCutOff,
    LeadershipsFenced,
    Mutation,
    PartitionsDeleted,
    ReplicasDeleted,
    ReplicasOffline,
    ReplicasUsable,
    Report,
    Superseded,
    TopicsChanged,
    nobody_waits,
)
from regnum_election.reign.reign import DeposedError, Reign
from regnum_election.reign.request_queue import RequestQueue
from regnum_election.reign.writing import WENT_BACK, FencedStore
from regnum_election.standby.picture import Followed
from regnum_election.standby.sender import StandbyPublisher
from regnum_election.standby.succession import take_over
from regnum_election.startup import become_controller, look_on
from regnum_election.state.context import ControllerContext
from regnum_election.state.replies import ReplyListener
from regnum_election.state.tally import Tally
from regnum_election.state.unverified import Unverified
from regnum_election.topics.adoption import TopicAdopter
from regnum_election.topics.calls import TopicCalls
from regnum_election.topics.deletion import TopicDeleter
from regnum_election.upkeep import CORRECTIONS_INTERVAL_S, Upkeep

T = TypeVar("T")


class Controller:
    """One reign. ``run`` until it raises DeposedError; the request methods may be called while it runs."""

    def __init__(
        self,
        *,
        reign: Reign,
        store: Store,
        cluster_id: str,
        client_listener: Address,
        open_channel: Callable[[Broker], ControlChannel],
        open_metadata: Callable[[MetadataProcess], PropagationChannel],
        metadata_detector: DeathDetector | None,
        open_quota: Callable[[QuotaProcessNode], QuotaChannel],
        quota_stand_in: Limit | None,
        picture_changed: Callable[[Cluster], None],
        tell_in_sync: Tell = nobody_is_told,
        clock: Clock,
        chance: random.Random,
        spawn: Spawn,
        config_seeds: Mapping[str, int],
        balance_interval_s: float,
        first_balance_s: float = FIRST_LOOK_S,
        corrections_interval_s: float = CORRECTIONS_INTERVAL_S,
        moving_max: int = MOVING_MAX,
        followed: Followed | None = None,
        limits: Limits | None = None,
        watches_store: bool = True,
        metrics: Metrics | None = None,
        record: Callable[[Entry], None] = nowhere,
        logged_leaders: AskLog = nothing_logged,
    ) -> None:
        counted = metrics or Metrics()
        self._event_times: Final = EventTimes(clock, counted)
        self._reign = reign
        self._store = store
        self._picture_changed = picture_changed
        self._spawn = spawn
        self._queue = EventQueue(EventWaits(clock, counted))
        self._in_hand: Event | None = None
        """Taken from the queue, and not done."""
        self._log = structlog.get_logger("controller").bind(epoch=reign.epoch)
        self._followed = followed
        unverified = Unverified()
        fenced = FencedStore(store, reign, clock)
        replies = ReplyListener(reign, self._queue, fenced)
        self._metadata = MetadataPublisher(
            epoch=reign.epoch,
            announcer=Announcer(reign, cluster_id=cluster_id, client_listener=client_listener),
            open_channel=open_metadata,
            detector=metadata_detector,
            listener=replies,
            clock=clock,
            spawn=spawn,
            base=None if followed is None else Base(epoch=followed.epoch, version=followed.version),
        )
        self._standbys = StandbyPublisher(epoch=reign.epoch, journal=self._metadata.journal, clock=clock)
        self._metadata.tell_of_publications(self._standbys.wake)
        self._dispatch = Dispatch(
            book=ControlRequests(reign, unverified),
            open_channel=open_channel,
            listener=replies,
            clock=clock,
            spawn=spawn,
            orders_nothing=bool(reign.went_back),
        )
        self._context = ControllerContext(
            reign=reign,
            store=fenced,
            dispatch=self._dispatch,
            metadata=self._metadata,
            clock=clock,
            chance=chance,
            defer=self._put_internal,
            unverified=unverified,
            tally=Tally(counted),
            events=ReignEvents(reign, record, clock, logged_leaders),
        )
        self._relieving = Relieving(self._context)
        self._deleter = TopicDeleter(self._context)
        self._requests = RequestQueue(self._queue, refuses=WENT_BACK if reign.went_back else "")
        self.health: Final = HealthWatch(
            self._context, limits or Limits(), store if watches_store else None, self._requests.store_refuses
        )
        """What is wrong, and what has been for too long."""
        self.quotas: Final = Quotas(
            reign,
            self._context.store,
            open_channel=open_quota,
            stand_in_limit=quota_stand_in,
            clock=clock,
            spawn=spawn,
            metrics=counted,
        )
        # Quotas and who judges by them.
        self.topics: Final = TopicCalls(
            self._context, deleter=self._deleter, requests=self._requests, admissions=self.quotas.admissions
        )
        # Creation and deletion of topics.
        self._remover = PartitionRemover(self._context)
        self.partitions: Final = PartitionCalls(
            self._context, remover=self._remover, requests=self._requests, admissions=self.quotas.admissions
        )
        """Partitions added to topics and removed from them."""
        self._orders_by_hand = OrdersByHand(self._context, self._remover, patience_s=2 * corrections_interval_s)
        self.recoveries: Final = PartitionRecoveries(self._context, self._requests)
        """Partitions that nobody may lead."""
        self.leaders: Final = LeaderCalls(self._context, self.recoveries, self._requests)
        """Elections by request, and who leads what."""
        self._forgetting = BrokerForgetting(self._context, self._deleter, self._remover.records, self._requests)
        self._reassigner = Reassigner(
            self._context, moving_max=moving_max, refusing=lambda: self.health.writability.refusing
        )
        self._reassignments = PartitionReassignments(self._context, self._reassigner, self._requests)
        self._config_book = ConfigBook(
            self._context, seeds=config_seeds, protocol_raised=lambda: self._queue.put(BrokersChanged())
        )
        self._configs = ConfigCalls(self._context, self._config_book, self._requests)
        self._adopter = TopicAdopter(self._context, self._deleter)
        self.upkeep: Final = Upkeep(
            self._context,
            self._queue,
            adopter=self._adopter,
            deleter=self._deleter,
            remover=self._remover,
            orders=self._orders_by_hand,
            configs=self._config_book,
            reassigner=self._reassigner,
            reassignments=ReassignmentsByHand(
                self._context, self._reassignments, patience_s=2 * corrections_interval_s
            ),
            balance_interval_s=balance_interval_s,
            first_balance_s=first_balance_s,
            corrections_interval_s=corrections_interval_s,
        )
        """What is done by the clock."""
        self.replies: Final = replies
        """Who takes what others answer."""
        self.brokers: Final = BrokerCalls(self._context, self._requests, tell_in_sync)
        """What brokers ask for."""
        self.quota_calls: Final = QuotaCalls(self.quotas.book)
        self.acls: Final = AclCalls(self._context.store, clock.wall_ms)
        """Quotas, changed and described."""
        self._ready = asyncio.Event()

    @property
    def reign(self) -> Reign:
        """Whose reign it is."""
        return self._reign

    @property
    def picture(self) -> Cluster:
        """The cluster as of now."""
        return self._context.picture

    @property
    def standbys(self) -> StandbyPublisher:
        """What standbys follow."""
        return self._standbys

    @property
    def published_version(self) -> int:
        """Version of the last publication."""
        return self._metadata.version

    @property
    def queue(self) -> EventQueue:
        """Where events are put; on the controller's loop only."""
        return self._queue

    async def wait_ready(self) -> None:
        """Return when the reign has begun: there is a picture, its leaders are settled, and brokers are being told."""
        await self._ready.wait()

    async def run(self) -> None:
        """Reign. Ends by raising DeposedError."""
        watches = [
            self._spawn("watch-brokers", self._watch_brokers()),
            self._spawn("watch-metadata", self._metadata.follow(self._store, self._context.store)),
        ]
        acts = not self._reign.went_back
        if acts:
            restored = RestoredPartitions(self._context, self.recoveries)
            watches += self.upkeep.start(self._spawn, self.wait_ready)
            watches.append(self._spawn("unclean-elections", self.leaders.unclean.run(self.wait_ready)))
            watches.append(self._spawn("restored", restored.run(self.wait_ready)))
        self.quotas.start(self._store)
        try:
            await self._begin()
            watches.append(self._spawn("unlogged states", self._context.events.tell_of_unlogged(self.picture)))
            watches += self.health.start(self._spawn)
            if acts:
                # Not before: its first answer lists every topic, which on some stores costs what lies below them.
                watches.append(self._spawn("watch-topics", self._watch_topics()))
                watches.append(self._spawn("in sync", self.brokers.in_sync.run()))
                watches += [self._spawn(f"watch {folder}", self._watch_orders(folder)) for folder in FOLDERS]
                watches.append(self._spawn("watch-settings", self._config_book.follow(self._store, self._put_internal)))
            self._ready.set()
            while True:
                event = self._in_hand = await self._queue.take()
                await self._context.store.until_connected()
                with self._event_times.of(event):
                    await self._handle(event)
                self._in_hand = None
                # A step that waited for nothing has held the loop; the next one must not go on with it (rule S22).
                await asyncio.sleep(0)
        finally:
            self._requests.close()
            self._standbys.close()
            # What was taken and not begun when the session ended has a caller as well.
            in_hand = (self._in_hand,) if isinstance(self._in_hand, Mutation) else ()
            waiting = (*in_hand, *self._queue.drain())
            # Why the reign ends is on its way from here; a cancellation that comes meanwhile has nothing to add.
            with contextlib.suppress(asyncio.CancelledError):
                ending = end_reign(watches, waiting, self.quotas.close, self._dispatch.close, self._metadata.close)
                await carried_through(ending)
            self._context.release()

    async def _begin(self) -> None:
        """Become controller, with the predecessor's picture or without one."""
        context, followed, self._followed = self._context, self._followed, None

        def brokers_known() -> None:
            # Their lifelines need not wait until everything is read.
            self._picture_changed(context.picture)

        if self._reign.went_back:
            await look_on(context, self._adopter, self._config_book, brokers_known=brokers_known)
            return
        if followed is None:
            await become_controller(context, self._adopter, self._config_book, brokers_known=brokers_known)
            self._resume_deletions()
            return
        verification = await take_over(context, self._adopter, self._config_book, followed, brokers_known=brokers_known)
        self._deleter.inherit()
        self._put_internal("verification", self._after_verification(verification))

    async def _after_verification(self, verification: AsyncGenerator[None, None]) -> AsyncGenerator[None, None]:
        async with aclosing(verification):
            async for _ in verification:
                yield
        # Behind it: full sets are more urgent than the names of deleted topics.
        self._resume_deletions()

    def _resume_deletions(self) -> None:
        self._put_internal("resume deletions", self._deleter.resume())
        self._put_internal("resume removals", self._remover.resume())
        self._put_internal("partitions by hand", self._orders_by_hand.begin())

    async def _handle(self, event: Event) -> None:
        context = self._context
        brokers_before = context.picture.brokers
        match event:
            case BrokersChanged(names=names):
                await look_at_brokers(context, names)
            case BrokerDead():
                if not self._reign.went_back:
                    await fence_broker(context, event)
            case LeaderCutOff():
                await self._relieving.take(event)
            case TopicsChanged(names=names):
                self._put_internal("hand-written topics", self._adopter.look(names))
            case Superseded(seen=seen):
                self._superseded(seen)
            case Mutation():
                await self._step(event)
            case _:
                await self._handle_report(event)
        if context.picture.brokers is not brokers_before:
            self._picture_changed(context.picture)

    async def _handle_report(self, event: Report) -> None:
        """What a broker says of its replicas."""
        match event:
            case IsrsWritten(reports=reports):
                await take_up_isrs(self._context, reports)
                self._reassigner.hear(reports)
            case ReplicasOffline():
                await take_offline(self._context, event)
            case LeadershipsFenced():
                await take_fenced(self._context, event)
            case ReplicasDeleted(broker=broker, topics=topics):
                await self._deleter.answered(broker, topics)
            case PartitionsDeleted(broker=broker, partitions=partitions):
                await self._remover.records.answered(broker, partitions)
            case ReplicasUsable():
                await take_back(self._context, event)
            case _:
                assert_never(event)

    def _superseded(self, seen: ControllerEpoch) -> None:
        """Give way to a later controller; a number that no reign can have reached deposes nobody."""
        if not is_plausible(seen, self._reign.epoch):
            self._log.error("a controller epoch that is not believed", seen=seen)
        elif seen > self._reign.epoch:
            raise DeposedError(f"a broker has seen controller epoch {seen}", seen=seen)

    async def _step(self, mutation: Mutation) -> None:
        more: bool | None = None
        try:
            await anext(mutation.steps)
            more = True
        except StopAsyncIteration:
            more = False
        finally:
            if more is None:
                # Deposed or stopped in the middle of it.
                mutation.abandon()
        if more:
            self._queue.put_back(mutation)

    def _put_internal(self, name: str, steps: AsyncGenerator[None, None], *, gives_way: bool = False) -> None:
        work = Mutation(name=name, steps=steps, abandon=nobody_waits, caller=("", name), gives_way=gives_way)
        self._queue.put_urgent(work)

    def _watch_brokers(self) -> Coroutine[Any, Any, None]:
        changes = changed_children(self._store, paths.BROKER_IDS, self._context.clock)
        return _watch(self._log, paths.BROKER_IDS, changes, lambda names: self._queue.put(BrokersChanged(names)))

    def _watch_topics(self) -> Coroutine[Any, Any, None]:
        def changed(children: Children) -> None:
            self._queue.put(TopicsChanged(names=frozenset(children.names)))

        return _watch(self._log, paths.TOPICS, self._store.watch_children(paths.TOPICS), changed)

    def _watch_orders(self, folder: str) -> Coroutine[Any, Any, None]:
        def changed(children: Children) -> None:
            if children.names:
                self._put_internal("partitions by hand", self._orders_by_hand.look())

        return _watch(self._log, folder, self._store.watch_children(folder), changed)

    # What clients and brokers ask for.

    @property
    def reassignments(self) -> PartitionReassignments:
        """Partitions on their way to other brokers."""
        return self._reassignments

    @property
    def forgetting(self) -> BrokerForgetting:
        """Brokers that never come back."""
        return self._forgetting

    @property
    def configs(self) -> ConfigCalls:
        """Settings of the cluster and of topics."""
        return self._configs


async def _watch(
    log: structlog.stdlib.BoundLogger, folder: str, changes: AsyncGenerator[T, None], changed: Callable[[T], None]
) -> None:
    try:
        async with aclosing(changes):
            async for change in changes:
                changed(change)
    except SessionExpired:
        log.info("watch ended with the session", folder=folder)
