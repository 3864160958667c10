"""Short ways to write changes, and brokers that take metadata as real ones do: for tests of the metadata service."""

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeVar

from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_metadata.delivery import SMALL_BYTES
from regnum_metadata.image import Change, Head, Image
from regnum_model.ids import BrokerId, ControllerEpoch
from regnum_model.picture_line import PictureVersion
from regnum_service.errors import RegnumError

T = TypeVar("T")


def done(steps: Generator[None, None, T]) -> T:
    """Carry out steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


def broker(id: int, *, epoch: int | None = None) -> types_pb2.Broker:
    """A live broker; epoch ``id`` unless said otherwise."""
    return types_pb2.Broker(
        id=id,
        epoch=id if epoch is None else epoch,
        client=types_pb2.Endpoint(host="127.0.0.1", port=10_000 + id),
        internal=types_pb2.Endpoint(host="127.0.0.1", port=20_000 + id),
    )


def topic(name: str, *leaders: int, id: str | None = None, first: int = 0) -> types_pb2.TopicState:
    """A topic whose partitions, from ``first`` on, have these leaders."""
    return types_pb2.TopicState(
        name=name,
        topic_id=id or f"id-{name}",
        partitions=[
            types_pb2.PartitionState(partition=number, leader=leader) for number, leader in enumerate(leaders, first)
        ],
    )


def gone(name: str, *, id: str | None = None) -> types_pb2.TopicState:
    """A topic that was deleted."""
    return types_pb2.TopicState(name=name, topic_id=id or f"id-{name}", deleted=True)


def change(
    from_version: int,
    to_version: int,
    *topics: types_pb2.TopicState,
    brokers: Iterable[types_pb2.Broker] = (),
    gone: Iterable[int] = (),
    epoch: int = 1,
    base: tuple[int, int] | None = None,
    newest: int | None = None,
) -> Change:
    """A change as the controller of that epoch published it.

    Args:
        from_version: where it begins; 0: a full image.
        to_version: where it ends.
        topics: what it says of topics.
        brokers: brokers that it names; all there are in a full image and in one with a base.
        gone: ids of brokers that are gone.
        epoch: controller epoch.
        base: epoch and last version of the reign before that it joins on to.
        newest: highest broker epoch; None: that of the brokers named.
    """
    live = tuple(brokers)
    return Change(
        controller_epoch=ControllerEpoch(epoch),
        from_version=from_version,
        to_version=to_version,
        base=None if base is None else PictureVersion(ControllerEpoch(base[0]), base[1]),
        all_brokers=from_version == 0 or base is not None,
        removed_brokers=frozenset(BrokerId(id) for id in gone),
        head=Head(
            controller_id=7,
            controller=types_pb2.Controller(id=7, epoch=epoch),
            cluster_id="cluster",
            max_broker_epoch=max((item.epoch for item in live), default=0) if newest is None else newest,
            brokers=live,
        ),
        topics=topics,
    )


def image(*changes: Change) -> Image:
    """The image after these changes."""
    result = Image()
    for one in changes:
        result = done(result.with_change(one))
    return result


def leaders(of: Image) -> dict[str, dict[int, int]]:
    """Leaders by topic and partition."""
    return {
        name: {number: state.leader for number, state in sorted(item.partitions.items())}
        for name, item in of.topics.items()
    }


class ReceivingBroker:
    """A broker's side of UpdateMetadata: its own epochs and version, and the bytes it was sent. A BrokerStream.

    It may be told to be ``down`` (refuses), ``silent`` (takes everything and answers nothing), ``stuck`` (takes no
    large message) or to give ``lies`` for answers.
    """

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.controller_epoch = 0
        self.version = 0
        self.known_under = 0
        self.leaders: dict[str, dict[int, int]] = {}
        self.brokers: dict[int, int] = {}
        """Broker epochs by id."""
        self.taken: list[Sequence[bytes]] = []
        """Changes that were news."""
        self.sent_bytes = 0
        self.abandoned = 0
        """How often it was given up."""
        self.down = False
        self.silent = False
        self.stuck = False
        self.lies: Callable[[control_pb2.UpdateMetadataRequest], control_pb2.UpdateMetadataResponse] | None = None
        self.closed = False
        self._parts: list[bytes] = []
        self._heard = asyncio.Event()

    def recover(self) -> None:
        """Answer again, whatever was the matter."""
        self.down = self.silent = self.stuck = False
        self.lies = None
        self._heard.set()

    def forget(self) -> None:
        """Hold nothing of what it was sent and has not answered."""
        self._parts.clear()

    async def send(self, part: bytes) -> None:
        """Take a message or refuse it."""
        if self.down:
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "down")
        while self.stuck and len(part) > SMALL_BYTES:
            self._heard.clear()
            await self._heard.wait()
        self.sent_bytes += len(part)
        self._parts.append(part)

    async def answer(self) -> control_pb2.UpdateMetadataResponse:
        """Apply or refuse the messages that came."""
        while self.silent:
            self._heard.clear()
            await self._heard.wait()
        parts, self._parts = tuple(self._parts), []
        messages = [control_pb2.UpdateMetadataRequest.FromString(part) for part in parts]
        head = messages[0]
        assert head.parts == len(messages), (head.parts, len(messages))
        assert not any(message.parts for message in messages[1:])
        if self.lies is not None:
            return self.lies(head)
        return self._answer(self._take(messages, parts))

    def abandon(self) -> None:
        """The stream broke."""
        self.abandoned += 1
        self._parts = []

    def _take(
        self, messages: Sequence[control_pb2.UpdateMetadataRequest], parts: Sequence[bytes]
    ) -> errors_pb2.ErrorCode.ValueType:
        head = messages[0]
        if head.controller_epoch < self.controller_epoch:
            return errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH
        self.controller_epoch = head.controller_epoch
        if head.max_broker_epoch < self.epoch:
            return errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH
        if self.known_under == head.controller_epoch and self.version >= head.to_version:
            return errors_pb2.ERROR_CODE_NONE
        if not self._joins(head):
            return errors_pb2.ERROR_CODE_INVALID_REQUEST
        if head.from_version == 0:
            self.leaders = {}
        self._learn(item for message in messages for item in message.topics)
        if head.all_brokers:
            self.brokers = {}
        self.brokers.update((item.id, item.epoch) for item in head.brokers)
        for id in head.removed_brokers:
            self.brokers.pop(id, None)
        self.known_under, self.version = head.controller_epoch, head.to_version
        self.taken.append(parts)
        return errors_pb2.ERROR_CODE_NONE

    def _learn(self, topics: Iterable[types_pb2.TopicState]) -> None:
        for item in topics:
            if item.deleted:
                self.leaders.pop(item.name, None)
            else:
                known = self.leaders.setdefault(item.name, {})
                known.update((state.partition, state.leader) for state in item.partitions)

    def _joins(self, head: control_pb2.UpdateMetadataRequest) -> bool:
        if head.from_version == 0:
            return True
        if head.base_epoch:
            return self.known_under == head.base_epoch and head.from_version <= self.version <= head.base_version
        return self.known_under == head.controller_epoch and head.from_version <= self.version

    def _answer(self, code: errors_pb2.ErrorCode.ValueType) -> control_pb2.UpdateMetadataResponse:
        return control_pb2.UpdateMetadataResponse(
            controller_epoch=self.controller_epoch,
            version=self.version,
            version_epoch=self.known_under,
            error_code=code,
        )

    async def close(self) -> None:
        """Hang up."""
        self.closed = True
