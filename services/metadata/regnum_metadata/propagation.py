"""The image of this process and its way to the brokers it serves.

The controller publishes a change; it is applied to the image, serialised once when the first lane asks for it, and
each lane sends the same bytes to its broker. Which brokers have a lane follows from the image (who lives) and from the
list of metadata processes (who serves whom, see ``ownership``): it is settled when one of the two changes, for the
brokers that changed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, assert_never

import structlog
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, MetadataId
from regnum_model.nodes import Address
from regnum_model.picture_line import PictureVersion
from regnum_service.cancellation import end_task
from regnum_service.clock import Clock
from regnum_service.cluster_image.digest import ImageDigest
from regnum_service.cluster_image.feed import ClusterFeed
from regnum_service.cluster_image.held import HeldImage
from regnum_service.errors import RegnumError
from regnum_service.letting_go import values_gone
from regnum_service.name_order import NameOrder
from regnum_service.slices import slices
from regnum_service.supervisor import Spawn

from regnum_metadata.delivery import BrokerStream, ByteBudget, Patience
from regnum_metadata.differences import compared, named_by
from regnum_metadata.image import PARTITIONS_PER_STEP, Change, Image, TopicImage, Verdict
from regnum_metadata.intervals import Intervals, WantedFull, WantedInterval
from regnum_metadata.lane import BrokerLane, Receiver
from regnum_metadata.ownership import owner
from regnum_metadata.payload import Made, Payload, PayloadBuilder, question
from regnum_metadata.steps import in_steps, news_weight, topic_weight

BROKERS_PER_TURN: Final = 50
"""Brokers that are woken, or given a lane, between two turns of the event loop (safety rule S22)."""

MOST_OF: Final = 10
"""A change that names one topic in so many leaves a large part of the image before it to nobody."""


class Propagation:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        id: MetadataId,
        open_stream: Callable[[Receiver], BrokerStream],
        clock: Clock,
        spawn: Spawn,
        believes: Callable[[ControllerEpoch], Awaitable[bool]],
        shows: Callable[[ControllerEpoch], Awaitable[bool]],
        first_image: Callable[[], None] = lambda: None,
        budget: ByteBudget | None = None,
        patience: Patience | None = None,
        shares: bool = True,
    ) -> None:
        """A process without an image.

        Args:
            id: its id.
            open_stream: how a broker is reached.
            clock: source of time.
            spawn: starts a task.
            believes: whether an epoch that a controller shows may be true.
            shows: whether the store shows that epoch or a later one.
            first_image: called when there is an image.
            budget: bytes of large messages under way; None: as many as by default.
            patience: how long brokers are waited for; None: as long as by default.
            shares: whether brokers are sent the same bytes; only measurements say no.
        """
        self._id = id
        self._open_stream = open_stream
        self._clock = clock
        self._spawn = spawn
        self._believes = believes
        self._shows = shows
        self._first_image = first_image
        self._budget = ByteBudget() if budget is None else budget
        self._patience = Patience() if patience is None else patience
        self._builder = PayloadBuilder()
        self._image = Image()
        self.names: Final = NameOrder()
        """Names of the image's topics, in order."""
        self._shares = shares
        self._intervals = Intervals()
        self.feed: Final = ClusterFeed(lambda: self.held, self._intervals.line)
        """What clients that watch are told."""
        self.digest: Final = ImageDigest(lambda: self.held)
        """The image as a number."""
        self._receivers: dict[BrokerId, Receiver] = {}
        self._unsettled: set[BrokerId] = set()
        """Brokers that came, changed or went, and for which nobody has looked whether they are served here."""
        self._untold = False
        """Whether the image has moved and not every lane was woken."""
        self._highest = ControllerEpoch(0)
        self._processes: frozenset[MetadataId] = frozenset()
        self._lanes: dict[BrokerId, tuple[BrokerLane, asyncio.Task[None]]] = {}
        self._taking = asyncio.Lock()
        self._building = asyncio.Lock()
        self._settling = asyncio.Lock()
        self._moved = asyncio.Condition()
        self._ownership_decisions = 0
        self.stale_refusals = 0
        """Changes that brokers refused as made for an earlier life of theirs."""
        self._log = structlog.get_logger("propagation")

    @property
    def image(self) -> Image:
        """The image as of now."""
        return self._image

    @property
    def held(self) -> HeldImage:
        """The same, for those that compare it or watch it."""
        image, head = self._image, self._image.head
        return HeldImage(
            position=image.position,
            cluster_id=head.cluster_id,
            controller=head.controller,
            brokers=head.brokers,
            topics=image.topics,
        )

    @property
    def highest_epoch(self) -> ControllerEpoch:
        """Highest controller epoch seen."""
        return self._highest

    @property
    def payload_serialisations(self) -> int:
        """Payloads made so far; not a function of the number of brokers."""
        return self._builder.serialisations

    @property
    def payloads_made(self) -> Mapping[str, Made]:
        """The same by kind, with their sizes."""
        return self._builder.made

    @property
    def payload_bytes_sent(self) -> int:
        """Bytes of payloads that the streams of brokers have taken."""
        return self._budget.sent

    @property
    def ownership_decisions(self) -> int:
        """How often it was decided which process serves a broker."""
        return self._ownership_decisions

    @property
    def lanes(self) -> tuple[BrokerLane, ...]:
        """The brokers that this process serves, by id."""
        # One copy: the thread that shows metrics asks too.
        return tuple(lane for _, (lane, _) in sorted(self._lanes.copy().items()))

    async def admit(self, epoch: ControllerEpoch) -> None:
        """Refuse a controller that has been replaced or cannot be; remember a newer one. Raises RegnumError."""
        if epoch > self._highest and not await self._believes(epoch):
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST,
                f"controller epoch {epoch} is far above the one in the store; whoever sent it is no controller",
            )
        self._check(epoch)

    def _check(self, epoch: ControllerEpoch) -> None:
        """Refuse a controller that has been replaced; remember a newer one. Raises RegnumError."""
        if epoch < self._highest:
            raise RegnumError(
                errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH,
                f"controller epoch {epoch} is past; {self._highest} has been seen: resign",
                metadata={"controller_epoch": str(self._highest)},
            )
        self._highest = epoch

    async def take(self, change: Change) -> None:
        """Take a change of the controller, unless it is known or does not join on. Raises RegnumError."""
        async with self._taking:
            self._check(change.controller_epoch)
            match self._image.judge(change):
                case Verdict.APPLIES:
                    await self._apply(change)
                case Verdict.KNOWN:
                    # The call that brought it may have been cut off before everybody was served.
                    await self._serve()
                case Verdict.GAP:
                    self._log.info("change does not join on", from_version=change.from_version, has=self._image.version)
                case Verdict.STALE:
                    raise AssertionError("an image is never of a later epoch than the highest seen")
                case other:
                    assert_never(other)

    async def _apply(self, change: Change) -> None:
        before = self._image
        retired: list[Mapping[str, TopicImage]] = [before.topics]
        image = await in_steps(before.with_change(change))
        news = None
        if not change.is_full:
            news = await in_steps(named_by(change, before))
        elif before.version:
            retired.append(image.topics)
            image, news = await in_steps(compared(before, image, change.traceparent))
        if change.is_full:
            self._log.info(
                "full image",
                controller_epoch=image.controller_epoch,
                version=image.version,
                topics=len(image.topics),
                topics_changed=None if news is None else len(news.topics) + len(news.deleted),
            )
        # Nobody sees one without the other: there is no await between them.
        self._image = image
        if change.is_full:
            self.names.forget()
        else:
            self.names.note(topic.name for topic in change.topics)
        if news is None or (change.is_full and image.controller_epoch == before.controller_epoch):
            # Numbers of this epoch in between may have had what is in neither image.
            self._intervals.restarted(image.position)
            self.feed.replaced()
            self.digest.forget()
        else:
            base = None if change.base is None else change.base.number
            self._intervals.extended(image.position, news, base=base)
            self.feed.extended(news, base=base)
            self.digest.changed(news)
        if not before.version:
            self._first_image()
        brokers_before, before = before.head.brokers, image
        self._untold = True
        if image.head.brokers is not brokers_before:
            self._unsettled.update(self._changed_receivers())
        await self._serve()
        await self.progressed()
        if change.is_full or len(change.topics) * MOST_OF >= len(image.topics):
            # After any other change most of what was before is still there.
            names = [] if news is None else [news.topics]
            news = None
            await values_gone(retired, weigh=topic_weight, size=PARTITIONS_PER_STEP)
            await values_gone(names, weigh=news_weight, size=PARTITIONS_PER_STEP)

    async def processes_are(self, processes: frozenset[MetadataId]) -> None:
        """These metadata processes live now; brokers move accordingly."""
        if processes != self._processes:
            self._log.info("metadata processes", live=sorted(processes))
            self._processes = processes
            self._unsettled.update(self._receivers)
            await self._settle()

    def _changed_receivers(self) -> Collection[BrokerId]:
        """Take up who lives; the brokers that came, changed or went."""
        before = self._receivers
        self._receivers = {receiver.id: receiver for receiver in map(_receiver, self._image.head.brokers)}
        changed = {id for id, receiver in self._receivers.items() if before.get(id) != receiver}
        return changed.union(id for id in before if id not in self._receivers)

    async def _serve(self) -> None:
        """Let every broker have what is new; what a cancellation leaves is done by the next call."""
        await self._settle()
        if self._untold:
            await self._wake_all()
            self._untold = False

    async def _settle(self) -> None:
        """Give lanes to those of the unsettled brokers that are served here, and to no others."""
        async with self._settling:
            added: list[BrokerId] = []
            async for part in slices(sorted(self._unsettled), BROKERS_PER_TURN):
                # As things are now, whatever they were when this began.
                self._unsettled.difference_update(part)
                added.extend(id for id in part if self._settled(id))
            if added:
                self._log.info("serving brokers", count=len(self._lanes), new=len(added), first=added[0])

    def _settled(self, id: BrokerId) -> bool:
        """Whether the broker was given a lane."""
        receiver = self._receivers.get(id)
        self._ownership_decisions += 1
        mine = receiver is not None and owner(id, self._processes) == self._id
        present = self._lanes.get(id)
        if present is not None and (not mine or present[0].receiver != receiver):
            del self._lanes[id]
            end_task(present[1])
            present = None
        if receiver is None or not mine or present is not None:
            return False
        lane = BrokerLane(
            receiver,
            source=self,
            open_stream=self._open_stream,
            budget=self._budget,
            patience=self._patience,
            clock=self._clock,
        )
        lane.wake()
        self._lanes[id] = (lane, self._spawn(f"metadata-to-broker-{id}", lane.run()))
        return True

    async def _wake_all(self) -> None:
        async for part in slices(tuple(self._lanes.values()), BROKERS_PER_TURN):
            for lane, _ in part:
                lane.wake()

    async def reached(self, epoch: ControllerEpoch, version: int, wait_s: float) -> None:
        """Return when every broker served here has a version, when the epoch is over, or after that time."""
        waited_for: list[BrokerLane] = []

        def holds() -> bool:
            if self._image.controller_epoch != epoch or self._highest > epoch:
                return self._highest > epoch
            if self._image.version < version:
                return False
            # The last one that was not there yet: all others are looked at when it is, not at each answer.
            while waited_for and not self._waits(waited_for[-1], version):
                waited_for.pop()
            if not waited_for:
                waited_for.extend(lane for lane, _ in self._lanes.values() if self._waits(lane, version))
            return not waited_for

        try:
            async with asyncio.timeout(wait_s), self._moved:
                await self._moved.wait_for(holds)
        except TimeoutError:
            return

    def _waits(self, lane: BrokerLane, version: int) -> bool:
        present = self._lanes.get(lane.receiver.id)
        return present is not None and present[0] is lane and lane.acknowledged < version

    # What lanes ask for (Source).

    @property
    def head(self) -> PictureVersion:
        """Version of the image."""
        return self._image.position

    @property
    def inter_broker_protocol(self) -> int:
        """How processes of the cluster talk to one another."""
        return self._image.head.inter_broker_protocol

    def refused_as_stale(self) -> None:
        """A broker refused what was made for an earlier life of its own."""
        self.stale_refusals += 1

    def question(self) -> Payload:
        """Changes nothing; the answer says the broker's version."""
        return question(self._image)

    async def next_for(self, receiver: Receiver, position: PictureVersion) -> Payload | None:
        """What a broker needs next; it is made once, whoever needs it."""
        answer = self._intervals.next_for(receiver.epoch, position, self._image.head.max_broker_epoch)
        if not isinstance(answer, WantedInterval | WantedFull):
            return answer
        if not self._shares:
            return await self._made_for_one(answer)
        async with self._building:
            while True:
                # Another lane may have had it made meanwhile; a later change may have outdated it.
                again = self._intervals.next_for(receiver.epoch, position, self._image.head.max_broker_epoch)
                match again:
                    case WantedInterval():
                        steps = self._builder.interval(self._image, again.news, again.start, again.last)
                    case WantedFull():
                        steps = self._builder.full(self._image)
                    case _:
                        return again
                self._intervals.made(await in_steps(steps))

    async def _made_for_one(self, wanted: WantedInterval | WantedFull) -> Payload:
        """A payload that nobody else is sent."""
        builder = PayloadBuilder(self._builder.made)
        if isinstance(wanted, WantedInterval):
            return await in_steps(builder.interval(self._image, wanted.news, wanted.start, wanted.last))
        return await in_steps(builder.full(self._image))

    async def seen(self, epoch: ControllerEpoch) -> None:
        """A broker claims to know a later controller epoch; where the store shows it, earlier ones are refused."""
        if epoch > self._highest and await self._shows(epoch):
            self._highest = max(self._highest, epoch)

    async def progressed(self) -> None:
        """A broker acknowledged something, or there is something to acknowledge."""
        async with self._moved:
            self._moved.notify_all()


def _receiver(broker: Any) -> Receiver:
    return Receiver(
        id=BrokerId(broker.id),
        epoch=BrokerEpoch(broker.epoch),
        internal=Address(host=broker.internal.host, port=broker.internal.port),
    )
