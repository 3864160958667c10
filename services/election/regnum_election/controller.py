"""The controller: a single writer that takes an event, decides, writes, applies and dispatches.

One object for each reign. Everything that changes the cluster runs in its one task, event after event, so nothing has
to be locked; what clients ask for is queued and answered through futures. It stops acting while its session is not
confirmed (safety rule S8) and ends with DeposedError as soon as a write is fenced or somebody shows a later epoch
(safety rule S7).
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final, TypeVar, assert_never

import structlog
from regnum.types.v1 import errors_pb2
from regnum_coordination.errors import SessionExpired
from regnum_coordination.port import Store
from regnum_model import paths
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, MetadataId, PartitionKey, TopicId
from regnum_model.nodes import Address
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_election.broker_changes import controlled_shutdown, fence_broker, look_at_brokers, take_up_isrs
from regnum_election.cluster import Broker, Cluster
from regnum_election.context import ControllerContext
from regnum_election.dispatch import ControlChannel, Dispatch, Spawn
from regnum_election.events import (
    BrokerDead,
    BrokersChanged,
    Event,
    EventQueue,
    IsrsWritten,
    Mutation,
    QueueFullError,
    ReplicasDeleted,
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
from regnum_election.orders import OrderBook
from regnum_election.producer_ids import next_block
from regnum_election.publication import Announcer
from regnum_election.reign import DeposedError, Reign
from regnum_election.startup import take_office
from regnum_election.topic_adoption import TopicAdopter
from regnum_election.topic_creation import Created, Creation, CreationOutcome, create_topics
from regnum_election.topic_deletion import DeletionCall, DeletionOutcome, TopicDeleter
from regnum_election.topic_requests import DeletionRequest, Rejection, TopicRequest
from regnum_election.writing import FencedStore

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
        open_metadata: Callable[[Address], PropagationChannel],
        metadata_detector: DeathDetector | None,
        picture_changed: Callable[[Cluster], None],
        clock: Clock,
        chance: random.Random,
        spawn: Spawn,
        min_insync_replicas: int,
        balance_interval_s: float,
    ) -> None:
        self._reign = reign
        self._store = store
        self._picture_changed = picture_changed
        self._spawn = spawn
        self._balance_interval_s = balance_interval_s
        self._queue = EventQueue()
        self._log = structlog.get_logger("controller").bind(epoch=reign.epoch)
        self._metadata = MetadataPublisher(
            epoch=reign.epoch,
            announcer=Announcer(reign, cluster_id=cluster_id, client_listener=client_listener),
            open_channel=open_metadata,
            detector=metadata_detector,
            listener=self,
            clock=clock,
            spawn=spawn,
        )
        self._dispatch = Dispatch(
            book=OrderBook(reign, min_insync_replicas=min_insync_replicas),
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
            min_insync_replicas=min_insync_replicas,
            defer=self._put_internal,
        )
        self._deleter = TopicDeleter(self._context)
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
    def queue(self) -> EventQueue:
        """Where events are put; on the controller's loop only."""
        return self._queue

    async def wait_ready(self) -> None:
        """Return when the reign has begun: everything is read, settled, and being told."""
        await self._ready.wait()

    async def run(self) -> None:
        """Reign. Ends by raising DeposedError."""
        watches = [
            self._spawn("watch-brokers", self._watch_brokers()),
            self._spawn("watch-topics", self._watch_topics()),
            self._spawn("leader-balance", self._balance()),
        ]
        try:
            await take_office(self._context, self._adopter)
            watches.append(self._spawn("watch-metadata", self._metadata.follow(self._store, self._context.store)))
            self._picture_changed(self._context.picture)
            self._put_internal("resume deletions", self._deleter.resume(tuple(self._context.deletions)))
            self._ready.set()
            while True:
                event = await self._queue.take()
                await self._context.store.until_connected()
                await self._handle(event)
        finally:
            for watch in watches:
                watch.cancel()
            await self._dispatch.close()
            await self._metadata.close()
            for mutation in self._queue.drain():
                mutation.abandon()
                await mutation.steps.aclose()
            self._context.let_go()

    async def _handle(self, event: Event) -> None:
        context = self._context
        brokers_before = context.picture.brokers
        match event:
            case BrokersChanged():
                await look_at_brokers(context)
            case BrokerDead():
                await fence_broker(context, event)
            case TopicsChanged(names=names):
                self._put_internal("hand-written topics", self._adopter.look(names))
            case IsrsWritten(keys=keys):
                await take_up_isrs(context, keys)
            case ReplicasDeleted(broker=broker, topic_id=topic_id, succeeded=succeeded):
                await self._deleter.answered(broker, topic_id, succeeded=succeeded)
            case Superseded(seen=seen):
                if seen > self._reign.epoch:
                    raise DeposedError(f"a broker has seen controller epoch {seen}", seen=seen)
            case Mutation():
                await self._step(event)
            case _:
                assert_never(event)
        if context.picture.brokers is not brokers_before:
            self._picture_changed(context.picture)

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

    async def _watch_brokers(self) -> None:
        try:
            async with aclosing(self._store.watch_children(paths.BROKER_IDS)) as changes:
                async for _ in changes:
                    self._queue.put(BrokersChanged())
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
        self._queue.put(BrokersChanged())

    def replicas_deleted(self, broker: BrokerId, topic_id: TopicId, *, succeeded: bool) -> None:
        """A broker answered an order to delete."""
        self._queue.put(ReplicasDeleted(broker=broker, topic_id=topic_id, succeeded=succeeded))

    def metadata_process_dead(self, id: MetadataId, creation_id: int) -> None:
        """A metadata process is proved dead."""
        self._put_internal("metadata process dead", remove_dead_process(self._context.store, id, creation_id))

    # What clients and brokers ask for.

    async def create_topics(
        self, requests: Sequence[TopicRequest], *, validate_only: bool, wait_s: float
    ) -> tuple[CreationOutcome, ...]:
        """Create topics and wait until they are led, at most ``wait_s``. Raises RegnumError.

        A topic that is written and not led everywhere by then is in the answer as created; ``unled`` says which.
        """
        result: asyncio.Future[tuple[CreationOutcome, ...]] = asyncio.get_running_loop().create_future()
        creation = Creation(requests=requests, validate_only=validate_only, result=result)
        steps = create_topics(self._context, creation)
        deadline_s = self._context.clock.monotonic() + wait_s
        try:
            outcomes = await self._answer("create topics", steps, result, lambda: creation.begun, wait_s)
            left_s = max(deadline_s - self._context.clock.monotonic(), 0.0)
            await self._wait_led(creation.keys, left_s)
            unled = {key.topic_id for key in creation.keys if not self._dispatch.is_led(key)}
            return tuple(_still_creating(outcome, unled) for outcome in outcomes)
        finally:
            self._dispatch.forget(creation.keys)

    async def _wait_led(self, keys: Sequence[PartitionKey], left_s: float) -> None:
        try:
            async with asyncio.timeout(left_s):
                await self._dispatch.led(keys)
                if keys:
                    # A courtesy to the caller's next request; the leaders know already.
                    await self._metadata.everywhere(self._metadata.version, METADATA_PATIENCE_S)
        except TimeoutError:
            return

    async def delete_topics(self, requests: Sequence[DeletionRequest], *, wait_s: float) -> tuple[DeletionOutcome, ...]:
        """Delete topics and wait until their names are free, at most ``wait_s``. Raises RegnumError."""
        result: asyncio.Future[tuple[DeletionOutcome, ...]] = asyncio.get_running_loop().create_future()
        call = DeletionCall(requests=requests, result=result)
        steps = self._deleter.delete_topics(call)
        return await self._answer("delete topics", steps, result, lambda: call.begun, wait_s)

    async def controlled_shutdown(self, broker: BrokerId, epoch: BrokerEpoch, *, wait_s: float) -> int:
        """Move leadership away from a broker; returns how many partitions it still leads. Raises RegnumError."""
        result: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def steps() -> AsyncGenerator[None, None]:
            error = self._broker_error(broker, epoch)
            if error is not None:
                raise error
            remaining = await controlled_shutdown(self._context, broker)
            if not result.done():
                result.set_result(remaining)
            return
            yield

        return await self._answer("controlled shutdown", steps(), result, lambda: True, wait_s, urgent=True)

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

        return await self._answer("allocate producer ids", steps(), result, lambda: False, wait_s, urgent=True)

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

    async def _answer(
        self,
        name: str,
        steps: AsyncGenerator[None, None],
        result: "asyncio.Future[T]",
        begun: Callable[[], bool],
        wait_s: float,
        *,
        urgent: bool = False,
    ) -> T:
        def abandon() -> None:
            if not result.done():
                result.set_exception(_cut_off(begun=begun()))

        mutation = Mutation(name=name, steps=_answering(steps, result), abandon=abandon)
        if urgent:
            self._queue.put_urgent(mutation)
        else:
            try:
                self._queue.put_mutation(mutation)
            except QueueFullError:
                await steps.aclose()
                raise RegnumError(
                    errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
                    "too many requests wait for the controller; try again later",
                    retry_after_ms=1_000,
                ) from None
        try:
            async with asyncio.timeout(wait_s):
                return await result
        except TimeoutError:
            raise RegnumError(
                errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
                "the controller is still at work on it; look at the topics before sending it again",
            ) from None


METADATA_PATIENCE_S: Final = 0.5
"""How long an answer waits for metadata to reach every broker."""


async def _answering(steps: AsyncGenerator[None, None], result: "asyncio.Future[T]") -> AsyncGenerator[None, None]:
    """The steps; an error that is meant for the caller reaches the caller and not the controller."""
    async with aclosing(steps):
        try:
            async for _ in steps:
                yield
        except RegnumError as error:
            if not result.done():
                result.set_exception(error)


def _cut_off(*, begun: bool) -> RegnumError:
    if begun:
        return RegnumError(
            errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
            "the controller changed while it was at work on it; look at the topics before sending it again",
        )
    return RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "the controller changed; ask the new one")


def _still_creating(outcome: CreationOutcome, unled: set[TopicId]) -> CreationOutcome:
    match outcome:
        case Created(topic_id=id) if id in unled:
            return Rejection(
                code=errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
                message=f"topic id {id} is still being created: not every partition is led yet; describe it later",
            )
        case _:
            return outcome


def _nobody_waits() -> None:
    """Internal work has no caller."""
