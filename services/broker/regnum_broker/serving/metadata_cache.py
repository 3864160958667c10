"""What the broker knows of the cluster: brokers, controller, topics. Fed by UpdateMetadata, read by clients.

A change covers an interval of versions and carries absolute values (safety rule S17): it is applied when it begins at
or below the own version and ends above it. Changes that merge never skip anything, and a gap is answered with the own
version, so that the sender goes on from there. The first change of a reign may join on to the reign before: it is
applied where that one had come no further than the new controller knew. Everywhere else a reign begins with a full
picture. What a replaced controller sent is refused to the last moment, also when it was complete before the next one
was heard of.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from immutables import Map, MapMutation
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.ids import BrokerId, ControllerEpoch, PartitionKey
from regnum_model.picture_line import NO_PICTURE, PictureVersion
from regnum_service.cluster_image.digest import ImageDigest
from regnum_service.cluster_image.feed import ClusterFeed
from regnum_service.cluster_image.held import HeldImage, to_wire
from regnum_service.cluster_image.news import NamedChanges
from regnum_service.errors import Code, RegnumError
from regnum_service.letting_go import values_gone
from regnum_service.name_order import NameOrder
from regnum_service.slices import Turns
from regnum_telemetry import conventions, tracing

from regnum_broker.cluster.fence import Fence

SLICE: Final = 2_000
"""Topics and partitions applied before the event loop gets a turn (safety rule S22)."""

VERSION_MAX: Final = 2**31 - 1
"""Largest version within one controller epoch: the epoch stands above it in what clients see."""

PARTS_MAX: Final = 100_000
"""Parts of one change, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic as clients see it."""

    name: str
    topic_id: str
    partitions: Map[int, types_pb2.PartitionState]
    """States by number."""


def _nobody_leads(_topic: types_pb2.TopicState) -> None:
    """Where nobody wants to hear of other leaders."""


class MetadataCache:
    """The picture and its version. Belongs to the event loop."""

    def __init__(
        self,
        fence: Fence,
        learn_listeners: Callable[[Sequence[types_pb2.Broker]], None],
        learn_leaders: Callable[[types_pb2.TopicState], None] = _nobody_leads,
    ) -> None:
        """Only assigns.

        Args:
            fence: which controllers are heard.
            learn_listeners: takes brokers that came or changed.
            learn_leaders: takes changed partitions of a topic, when the picture has them.
        """
        self._fence: Final = fence
        self._learn_listeners: Final = learn_listeners
        self._learn_leaders: Final = learn_leaders
        self._applying: Final = asyncio.Lock()
        self._position: PictureVersion = NO_PICTURE
        """Under a new controller epoch the old picture stays until that controller's came, and so does its version."""
        self.cluster_id = ""
        """Id of the cluster; empty before the first picture."""
        self.controller: types_pb2.Controller = types_pb2.Controller(id=-1)
        """The active controller as the newest picture names it."""
        self.brokers: tuple[types_pb2.Broker, ...] = ()
        """Live brokers by id."""
        self.topics: Map[str, TopicView] = Map()
        """Topics by name."""
        self.names_by_id: Map[str, str] = Map()
        """Names of the same topics by their ids."""
        self.names: Final = NameOrder()
        """The names, in order."""
        self.feed: Final = ClusterFeed(lambda: self.held)
        """What clients that watch are told."""
        self._moved = asyncio.Event()
        self.digest: Final = ImageDigest(lambda: self.held)
        """The picture as a number; what the controller ordered here since is no part of it."""

    async def until(self, condition: Callable[[], bool], within_s: float) -> bool:
        """Return whether that has become true of the picture in time; looked at with every change of it."""
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    await self._moved.wait()
        except TimeoutError:
            # The picture may have moved in the very turn of the loop in which the time was over.
            return condition()
        return True

    @property
    def version(self) -> int:
        """Version of the picture, for clients: controller epoch and change number grow together."""
        return to_wire(self._position)

    @property
    def held(self) -> HeldImage:
        """The picture, for those that compare it or watch it."""
        return HeldImage(
            position=self._position,
            cluster_id=self.cluster_id,
            controller=self.controller,
            brokers=self.brokers,
            topics=self.topics,
        )

    @property
    def position(self) -> PictureVersion:
        """Version of the picture and the controller epoch that it is of. Any thread."""
        return self._position

    def knows(self, topic: str, partition: int) -> bool:
        """Whether a partition exists as far as this broker has heard."""
        view = self.topics.get(topic)
        return view is not None and partition in view.partitions

    def naming(self) -> Callable[[str, PartitionKey], bool] | None:
        """Whether this picture, and no later one, names a partition under its topic id; None: there is none yet."""
        if self._position == NO_PICTURE:
            return None
        topics = self.topics

        def names(topic: str, key: PartitionKey) -> bool:
            view = topics.get(topic)
            return view is not None and view.topic_id == key.topic_id and key.partition in view.partitions

        return names

    async def take(
        self, request: control_pb2.UpdateMetadataRequest, parts: list[control_pb2.UpdateMetadataRequest]
    ) -> control_pb2.UpdateMetadataResponse | None:
        """Take one message of a change; one answer for each change, None for all messages but one.

        Args:
            request: the message.
            parts: messages that came before it on the same stream; kept by the stream, filled and emptied here.
        """
        if request.parts:
            parts.clear()
        elif not parts:
            # Of a change that was refused at its first message.
            return None
        parts.append(request)
        head = parts[0]
        refusal = await self._refusal(head)
        if refusal is not None:
            parts.clear()
            return self._answer(refusal)
        if len(parts) < head.parts:
            return None
        change = tuple(parts)
        parts.clear()
        async with self._applying:
            began_unix_nano, before = tracing.now_unix_nano(), self._position
            code = await self._apply(change)
            # A repeat is no news, and a broker that has just started is no part of what went on before.
            if head.traceparent and before != NO_PICTURE and self._position > before:
                self._record(head, began_unix_nano)
            return self._answer(code)

    @staticmethod
    def _record(head: control_pb2.UpdateMetadataRequest, began_unix_nano: int) -> None:
        tracing.between(
            conventions.METADATA_APPLIED,
            began_unix_nano,
            tracing.now_unix_nano(),
            parent=head.traceparent,
            attributes={
                conventions.METADATA_VERSION: head.to_version,
                conventions.CONTROLLER_EPOCH: head.controller_epoch,
            },
        )

    async def _refusal(self, request: control_pb2.UpdateMetadataRequest) -> Code | None:
        try:
            await self._fence.admit_controller(ControllerEpoch(request.controller_epoch))
        except RegnumError as error:
            return error.code
        identity = self._fence.identity
        meant_for = request.broker_epoch or request.max_broker_epoch
        if identity is not None and meant_for < identity.broker_epoch:
            # Made before this broker registered (safety rule S18, defect D21): by its own epoch, or by the highest of
            # all, which are of one snapshot. A higher one is taken: the sender may hear of a registration first.
            return errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH
        if not 1 <= request.parts <= PARTS_MAX or not _is_possible(request):
            return errors_pb2.ERROR_CODE_INVALID_REQUEST
        return None

    async def _apply(self, parts: Sequence[control_pb2.UpdateMetadataRequest]) -> Code:
        head = parts[0]
        to = PictureVersion(ControllerEpoch(head.controller_epoch), head.to_version)
        if to.epoch < self._position.epoch:
            return errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH
        if to.epoch == self._position.epoch and to <= self._position:
            return errors_pb2.ERROR_CODE_NONE
        if not _joins(head, self._position):
            return errors_pb2.ERROR_CODE_INVALID_REQUEST
        # Built beside the present picture, so that readers between two turns see one or the other.
        topics = (Map[str, TopicView]() if head.from_version == 0 else self.topics).mutate()
        names_by_id = (Map[str, str]() if head.from_version == 0 else self.names_by_id).mutate()
        turns = Turns(SLICE)
        named = NamedChanges()
        for part in parts:
            for topic in part.topics:
                await turns.took(1 + len(topic.partitions))
                _merge(topics, names_by_id, topic)
                if head.from_version:
                    named.add(topic)
        if to.epoch < self._fence.controller_epoch:
            # A newer controller has spoken meanwhile.
            return errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH
        retired: list[Mapping[str, TopicView]] = [] if head.from_version else [self.topics]
        retired_names: list[Mapping[str, str]] = [] if head.from_version else [self.names_by_id]
        self.topics, self.names_by_id = topics.finish(), names_by_id.finish()
        if head.from_version:
            self.names.note(topic.name for part in parts for topic in part.topics)
        else:
            self.names.forget()
        brokers_before, self.brokers = self.brokers, self._brokers_after(head)
        self.controller = head.controller
        self.cluster_id = head.cluster_id
        self._position = to
        self._moved.set()
        self._moved = asyncio.Event()
        if head.from_version:
            news = named.news(_ids_named(head, brokers_before), head.traceparent)
            self.feed.extended(news, base=head.base_version if head.base_epoch else None)
            self.digest.changed(news)
        else:
            self.feed.replaced()
            self.digest.forget()
        self._learn_listeners(head.brokers)
        await self._tell_of_leaders(parts)
        # What a full picture replaces is nobody's any more, all of it.
        await values_gone(retired_names, weigh=lambda _: 1, size=SLICE)
        await values_gone(retired, weigh=lambda view: 2 + len(view.partitions), size=SLICE)
        return errors_pb2.ERROR_CODE_NONE

    async def _tell_of_leaders(self, parts: Sequence[control_pb2.UpdateMetadataRequest]) -> None:
        """Not of a full picture: it comes with a reign, and so does the full set of orders."""
        turns = Turns(SLICE)
        for part in parts:
            for topic in part.topics if parts[0].from_version else ():
                await turns.took(1 + len(topic.partitions))
                self._learn_leaders(topic)

    def _brokers_after(self, head: control_pb2.UpdateMetadataRequest) -> tuple[types_pb2.Broker, ...]:
        if not (head.all_brokers or head.brokers or head.removed_brokers):
            return self.brokers
        brokers = {} if head.all_brokers else {broker.id: broker for broker in self.brokers}
        brokers.update((broker.id, broker) for broker in head.brokers)
        for id in head.removed_brokers:
            brokers.pop(id, None)
        return tuple(brokers[id] for id in sorted(brokers))

    def _answer(self, code: Code) -> control_pb2.UpdateMetadataResponse:
        return control_pb2.UpdateMetadataResponse(
            controller_epoch=self._fence.controller_epoch,
            version=self._position.number,
            version_epoch=self._position.epoch,
            error_code=code,
        )


def _is_possible(head: control_pb2.UpdateMetadataRequest) -> bool:
    """Whether versions and bases fit together."""
    if not 1 <= head.to_version <= VERSION_MAX:
        return False
    if head.from_version == 0:
        return head.base_epoch == 0 and head.all_brokers
    if head.base_epoch == 0:
        return head.from_version > 0
    return (
        0 < head.base_epoch < head.controller_epoch and 0 < head.from_version <= head.base_version and head.all_brokers
    )


def _joins(head: control_pb2.UpdateMetadataRequest, own: PictureVersion) -> bool:
    """Whether a change that is news applies to the own version (safety rule S17)."""
    if head.from_version == 0:
        return True
    if head.base_epoch:
        return own.epoch == head.base_epoch and head.from_version <= own.number <= head.base_version
    return own.epoch == head.controller_epoch and head.from_version <= own.number


def _ids_named(head: control_pb2.UpdateMetadataRequest, before: Sequence[types_pb2.Broker]) -> Iterator[BrokerId]:
    """Brokers that came, changed or went, or may have."""
    yield from (BrokerId(broker.id) for broker in head.brokers)
    yield from map(BrokerId, head.removed_brokers)
    if head.all_brokers:
        yield from (BrokerId(broker.id) for broker in before)


def _merge(
    topics: MapMutation[str, TopicView], names_by_id: MapMutation[str, str], change: types_pb2.TopicState
) -> None:
    present = topics.get(change.name)
    if change.deleted:
        # Of an earlier life of the name: the present one stays.
        if present is not None and change.topic_id in {present.topic_id, ""}:
            del topics[change.name]
            names_by_id.pop(present.topic_id, None)
        return
    partitions = {state.partition: state for state in change.partitions if not state.removed}
    same = present is not None and present.topic_id == change.topic_id
    known = present.partitions if present is not None and same else Map[int, types_pb2.PartitionState]()
    if gone := [state.partition for state in change.partitions if state.removed and state.partition in known]:
        left = known.mutate()
        for number in gone:
            del left[number]
        known = left.finish()
    topics[change.name] = TopicView(name=change.name, topic_id=change.topic_id, partitions=known.update(partitions))
    if not same:
        if present is not None:
            names_by_id.pop(present.topic_id, None)
        names_by_id[change.topic_id] = change.name
