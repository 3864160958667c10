"""The controller: a single writer that takes an event, decides, writes, applies and dispatches.

One object for each reign. Everything that changes the cluster runs in its one task, event after event, so nothing has
to be locked; what clients ask for is queued and answered through futures. It stops acting while its session is not
confirmed (safety rule S8) and ends with DeposedError as soon as a write is fenced or somebody shows a later epoch
(safety rule S7).
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, assert_never

import structlog
from regnum.types.v1 import errors_pb2
from regnum_coordination.errors import SessionExpired
from regnum_coordination.port import Store
from regnum_coordination.recipes.changed_children import changed_children
from regnum_model import paths
from regnum_model.bucket import Limit
from regnum_model.epochs import is_plausible
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, MetadataId, PartitionKey, TopicId
from regnum_model.nodes import Address
from regnum_model.quotas import QuotaEntity
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_election.broker_changes import fence_broker, look_at_brokers, take_up_isrs
from regnum_election.broker_forgetting import BrokerForgetting
from regnum_election.cluster import Broker, Cluster
from regnum_election.config_book import ConfigBook
from regnum_election.config_calls import ConfigCalls
from regnum_election.context import ControllerContext
from regnum_election.controlled_shutdown import controlled_shutdown
from regnum_election.desk import Desk, beside
from regnum_election.dispatch import ControlChannel, Dispatch, Spawn
from regnum_election.events import (
    BrokerDead,
    BrokersChanged,
    Event,
    EventQueue,
    IsrsWritten,
    LeaderCutOff,
    Mutation,
    QueueFullError,
    ReplicasDeleted,
    ReplicasOffline,
    ReplicasUsable,
    Superseded,
    TopicsChanged,
)
from regnum_election.leader_balance import balance_leaders
from regnum_election.metadata_processes import (
    DeathDetector,
    MetadataPublisher,
    PropagationChannel,
    remove_dead_process,
)
from regnum_election.offline_replicas import take_back, take_offline
from regnum_election.orders import OrderBook
from regnum_election.producer_ids import next_block
from regnum_election.publication import Announcer, Base
from regnum_election.quota_changes import EntityChange
from regnum_election.quota_process import QuotaChannel
from regnum_election.quotas import Quotas
from regnum_election.recovery_calls import PartitionRecoveries
from regnum_election.reign import DeposedError, Reign
from regnum_election.rejection import Rejection
from regnum_election.relieving import Relieving
from regnum_election.standby.picture import Followed
from regnum_election.standby.sender import StandbyPublisher
from regnum_election.standby.succession import take_over
from regnum_election.startup import take_office
from regnum_election.topic_adoption import TopicAdopter
from regnum_election.topic_calls import TopicCalls
from regnum_election.topic_deletion import TopicDeleter
from regnum_election.unfinished import UNFINISHED_INTERVAL_S, finish_partitions
from regnum_election.unverified import Unverified
from regnum_election.writing import FencedStore

CORRECTIONS_INTERVAL_S: Final = 5.0
"""Pause between two looks at what only a person can repair."""


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
        open_metadata: Callable[[Address], PropagationChannel],
        metadata_detector: DeathDetector | None,
        open_quota: Callable[[Address], QuotaChannel],
        quota_stand_in: Limit | None,
        picture_changed: Callable[[Cluster], None],
        clock: Clock,
        chance: random.Random,
        spawn: Spawn,
        config_seeds: Mapping[str, int],
        balance_interval_s: float,
        corrections_interval_s: float = CORRECTIONS_INTERVAL_S,
        followed: Followed | None = None,
    ) -> None:
        self._reign = reign
        self._store = store
        self._picture_changed = picture_changed
        self._spawn = spawn
        self._balance_interval_s = balance_interval_s
        self._corrections_interval_s = corrections_interval_s
        self.looks_for_corrections = 0
        """How often it was looked whether a person has corrected what was damaged."""
        self.looks_for_settings = 0
        """How often it was looked whether a person has changed settings."""
        self._queue = EventQueue()
        self._in_hand: Event | None = None
        """Taken from the queue, and not done."""
        self._log = structlog.get_logger("controller").bind(epoch=reign.epoch)
        self._followed = followed
        base = None if followed is None else Base(epoch=followed.epoch, version=followed.version)
        unverified = Unverified()
        self._metadata = MetadataPublisher(
            epoch=reign.epoch,
            announcer=Announcer(reign, cluster_id=cluster_id, client_listener=client_listener),
            open_channel=open_metadata,
            detector=metadata_detector,
            listener=self,
            clock=clock,
            spawn=spawn,
            base=base,
        )
        self._standbys = StandbyPublisher(epoch=reign.epoch, journal=self._metadata.journal, clock=clock)
        self._metadata.tell_of_publications(self._standbys.wake)
        self._dispatch = Dispatch(
            book=OrderBook(reign, unverified),
            open_channel=open_channel,
            listener=self,
            clock=clock,
            spawn=spawn,
        )
        self._context = ControllerContext(
            reign=reign,
            store=FencedStore(store, reign, clock),
            dispatch=self._dispatch,
            metadata=self._metadata,
            clock=clock,
            chance=chance,
            defer=self._put_internal,
            unverified=unverified,
        )
        self._relieving = Relieving(self._context)
        self._deleter = TopicDeleter(self._context)
        self._desk = Desk(self._queue)
        self._quotas = Quotas(
            reign,
            self._context.store,
            open_channel=open_quota,
            stand_in_limit=quota_stand_in,
            clock=clock,
            spawn=spawn,
        )
        self._topics = TopicCalls(
            self._context, deleter=self._deleter, desk=self._desk, admissions=self._quotas.admissions
        )
        self._recoveries = PartitionRecoveries(self._context, self._desk)
        self._forgetting = BrokerForgetting(self._context, self._deleter, self._desk)
        self._config_book = ConfigBook(self._context, seeds=config_seeds)
        self._configs = ConfigCalls(self._context, self._config_book, self._desk)
        self._adopter = TopicAdopter(self._context, self._deleter)
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
            self._spawn("leader-balance", self._balance()),
            self._spawn("corrections", self._look_for_corrections()),
            self._spawn("unfinished", self._finish_partitions()),
            self._spawn("watch-metadata", self._metadata.follow(self._store, self._context.store)),
        ]
        self._quotas.start(self._store)
        try:
            await self._begin()
            # Not before: its first answer lists every topic, which on some stores costs what lies below them.
            watches.append(self._spawn("watch-topics", self._watch_topics()))
            self._ready.set()
            while True:
                event = self._in_hand = await self._queue.take()
                await self._context.store.until_connected()
                await self._handle(event)
                self._in_hand = None
                # A step that waited for nothing has held the loop; the next one must not go on with it (rule S22).
                await asyncio.sleep(0)
        finally:
            self._desk.close()
            self._standbys.close()
            for watch in watches:
                watch.cancel()
            await self._quotas.close()
            await self._dispatch.close()
            await self._metadata.close()
            # What was taken and not begun when the session ended has a caller as well.
            in_hand = (self._in_hand,) if isinstance(self._in_hand, Mutation) else ()
            for mutation in (*in_hand, *self._queue.drain()):
                mutation.abandon()
                await mutation.steps.aclose()
            self._context.let_go()

    async def _begin(self) -> None:
        """Take office, with the predecessor's picture or without one."""
        context, followed = self._context, self._followed
        self._followed = None

        def brokers_known() -> None:
            # Their lifelines need not wait until everything is read.
            self._picture_changed(context.picture)

        if followed is None:
            await take_office(context, self._adopter, self._config_book, brokers_known=brokers_known)
            self._resume_deletions()
            return
        verification = await take_over(context, self._adopter, self._config_book, followed, brokers_known=brokers_known)
        self._put_internal("verification", self._after_verification(verification))

    async def _after_verification(self, verification: AsyncGenerator[None, None]) -> AsyncGenerator[None, None]:
        async with aclosing(verification):
            async for _ in verification:
                yield
        # Behind it: full sets are more urgent than the names of deleted topics.
        self._resume_deletions()

    def _resume_deletions(self) -> None:
        self._put_internal("resume deletions", self._deleter.resume(tuple(self._context.deletions)))

    async def _handle(self, event: Event) -> None:
        context = self._context
        brokers_before = context.picture.brokers
        match event:
            case BrokersChanged(names=names):
                await look_at_brokers(context, names)
            case BrokerDead():
                await fence_broker(context, event)
            case LeaderCutOff():
                await self._relieving.take(event)
            case TopicsChanged(names=names):
                self._put_internal("hand-written topics", self._adopter.look(names))
            case IsrsWritten() | ReplicasOffline() | ReplicasUsable() | ReplicasDeleted():
                await self._handle_report(event)
            case Superseded(seen=seen):
                self._superseded(seen)
            case Mutation():
                await self._step(event)
            case _:
                assert_never(event)
        if context.picture.brokers is not brokers_before:
            self._picture_changed(context.picture)

    async def _handle_report(self, event: IsrsWritten | ReplicasOffline | ReplicasUsable | ReplicasDeleted) -> None:
        """What a broker says of its replicas."""
        match event:
            case IsrsWritten(reports=reports):
                await take_up_isrs(self._context, reports)
            case ReplicasOffline():
                await take_offline(self._context, event)
            case ReplicasUsable():
                await take_back(self._context, event)
            case ReplicasDeleted(broker=broker, topics=topics):
                await self._deleter.answered(broker, topics)
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

    def _put_internal(self, name: str, steps: AsyncGenerator[None, None]) -> None:
        self._queue.put_urgent(Mutation(name=name, steps=steps, abandon=_nobody_waits))

    async def _balance(self) -> None:
        while True:
            await self._context.clock.sleep(self._balance_interval_s)
            steps = balance_leaders(self._context)
            try:
                self._queue.put_mutation(Mutation(name="leader balance", steps=steps, abandon=_nobody_waits))
            except QueueFullError:
                await steps.aclose()

    async def _finish_partitions(self) -> None:
        free = asyncio.Event()
        free.set()
        while True:
            await self._context.clock.sleep(UNFINISHED_INTERVAL_S)
            if self._context.unfinished and free.is_set():
                free.clear()
                self._put_internal("unfinished partitions", finish_partitions(self._context, free.set))

    async def _look_for_corrections(self) -> None:
        await self._ready.wait()
        while True:
            await self._context.clock.sleep(self._corrections_interval_s)
            await self._look_for_settings()
            if self._adopter.has_damage:
                self._put_internal("corrections by hand", self._adopter.look_again())
                self.looks_for_corrections += 1
            if self._adopter.is_in_doubt:
                self._put_internal("topic nodes made anew", self._adopter.compare())
            if self._deleter.is_stuck:
                self._put_internal("deletions that were held up", self._deleter.try_again())

    async def _look_for_settings(self) -> None:
        try:
            steps = await self._config_book.look()
        except DeposedError as error:
            # The reign's own task finds out by itself.
            self._log.info("settings not read", reason=str(error))
            return
        if steps is not None:
            self._put_internal("settings by hand", steps)
        self.looks_for_settings += 1

    async def _watch_brokers(self) -> None:
        try:
            async with aclosing(changed_children(self._store, paths.BROKER_IDS, self._context.clock)) as changes:
                async for names in changes:
                    self._queue.put(BrokersChanged(names))
        except SessionExpired:
            self._log.info("watch ended with the session", folder=paths.BROKER_IDS)

    async def _watch_topics(self) -> None:
        try:
            async with aclosing(self._store.watch_children(paths.TOPICS)) as changes:
                async for children in changes:
                    self._queue.put(TopicsChanged(names=frozenset(children.names)))
        except SessionExpired:
            self._log.info("watch ended with the session", folder=paths.TOPICS)

    # What dispatch hears (DispatchListener).

    def superseded(self, seen: ControllerEpoch) -> None:
        """A broker knows a later controller epoch."""
        # Whoever refuses us has seen a later epoch, even if the refusal does not name it.
        self._queue.put(Superseded(seen=max(seen, ControllerEpoch(self._reign.epoch + 1))))

    def broker_outdated(self, broker: BrokerId) -> None:
        """A broker says that it has registered anew."""
        self._log.info("broker has a later epoch", broker=broker)
        self._queue.put(BrokersChanged(frozenset({str(broker)})))

    def replicas_deleted(self, broker: BrokerId, topics: tuple[tuple[TopicId, bool], ...]) -> None:
        """A broker answered orders to delete."""
        self._queue.put(ReplicasDeleted(broker=broker, topics=topics))

    def replicas_offline(self, broker: BrokerId, epoch: BrokerEpoch, keys: frozenset[PartitionKey]) -> None:
        """A broker refused replicas because it cannot use them."""
        self._queue.put(ReplicasOffline(broker=broker, epoch=epoch, keys=keys))

    def replicas_usable(self, broker: BrokerId, epoch: BrokerEpoch, keys: frozenset[PartitionKey]) -> None:
        """A broker took up replicas that it could not use before."""
        self._queue.put(ReplicasUsable(broker=broker, epoch=epoch, keys=keys))

    def metadata_process_dead(self, id: MetadataId, creation_id: int) -> None:
        """A metadata process is proved dead."""
        self._put_internal("metadata process dead", remove_dead_process(self._context.store, id, creation_id))

    # What clients and brokers ask for.

    @property
    def topics(self) -> TopicCalls:
        """Creation and deletion of topics."""
        return self._topics

    @property
    def recoveries(self) -> PartitionRecoveries:
        """Partitions that nobody may lead."""
        return self._recoveries

    @property
    def forgetting(self) -> BrokerForgetting:
        """Brokers that never come back."""
        return self._forgetting

    @property
    def configs(self) -> ConfigCalls:
        """Settings of the cluster and of topics."""
        return self._configs

    @property
    def quotas(self) -> Quotas:
        """Quotas and who judges by them."""
        return self._quotas

    async def alter_client_quotas(
        self, changes: Sequence[EntityChange | Rejection], *, validate_only: bool, wait_s: float
    ) -> tuple[Rejection | None, ...]:
        """Change quotas, each entity on its own; None for each that is done. Raises RegnumError."""
        altering = self._quotas.book.alter(changes, validate_only=validate_only)
        return await beside(altering, wait_s, late="not all quotas are changed; describe them before trying again")

    async def describe_client_quotas(
        self, entity: QuotaEntity | None, *, wait_s: float
    ) -> tuple[tuple[QuotaEntity, Mapping[str, float]], ...]:
        """What quotas are set, sorted; of one entity or of all. Raises RegnumError."""
        return await beside(self._quotas.book.describe(entity), wait_s, late="the store does not answer; try again")

    async def controlled_shutdown(self, broker: BrokerId, epoch: BrokerEpoch, *, wait_s: float) -> int:
        """Move leadership away from a broker; returns how many partitions it still leads. Raises RegnumError."""
        result: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        begun = False

        def check() -> None:
            nonlocal begun
            error = self._broker_error(broker, epoch)
            if error is not None:
                raise error
            begun = True

        def done(remaining: int) -> None:
            if not result.done():
                result.set_result(remaining)

        steps = controlled_shutdown(self._context, broker, check=check, done=done)
        self._desk.submit("controlled shutdown", steps, result, begun=lambda: begun, urgent=True)
        return await self._desk.answer(result, wait_s)

    async def allocate_producer_ids(self, broker: BrokerId, epoch: BrokerEpoch, *, wait_s: float) -> tuple[int, int]:
        """A block of producer ids: first and count. Raises RegnumError."""
        result: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()

        async def steps() -> AsyncGenerator[None, None]:
            error = self._broker_error(broker, epoch)
            if error is not None:
                raise error
            block = await next_block(self._context.store)
            if not result.done():
                result.set_result(block)
            return
            yield

        self._desk.submit("allocate producer ids", steps(), result, begun=lambda: False, urgent=True)
        return await self._desk.answer(result, wait_s)

    def _broker_error(self, broker: BrokerId, epoch: BrokerEpoch) -> RegnumError | None:
        known = self._context.picture.brokers.get(broker)
        if known is not None and known.epoch == epoch:
            return None
        if known is None or epoch > known.epoch:
            return RegnumError(
                errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
                f"broker {broker} at epoch {epoch} is not known yet; try again",
            )
        return RegnumError(
            errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH, f"broker {broker} has registered again, at epoch {known.epoch}"
        )


def _nobody_waits() -> None:
    """Internal work has no caller."""
