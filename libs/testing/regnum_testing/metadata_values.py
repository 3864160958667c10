"""Short ways to write changes, and brokers that take metadata as real ones do: for tests of the metadata service."""

from collections.abc import Generator, Iterable, Sequence
from typing import TypeVar

from regnum.broker.v1 import control_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_metadata.image import Change, Head, Image
from regnum_model.ids import ControllerEpoch
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
    epoch: int = 1,
) -> Change:
    """A change as the controller of that epoch published it."""
    live = tuple(brokers)
    return Change(
        controller_epoch=ControllerEpoch(epoch),
        from_version=from_version,
        to_version=to_version,
        head=Head(
            controller_id=7,
            controller=types_pb2.Controller(id=7, epoch=epoch),
            cluster_id="cluster",
            max_broker_epoch=max((item.epoch for item in live), default=0),
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
    """A broker's side of UpdateMetadata: its own epochs and version, and the bytes it was sent. A BrokerStream."""

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.controller_epoch = 0
        self.version = 0
        self.known_under = 0
        self.leaders: dict[str, dict[int, int]] = {}
        self.taken: list[Sequence[bytes]] = []
        self.down = False
        self.closed = False

    async def update_metadata(self, parts: Sequence[bytes]) -> control_pb2.UpdateMetadataResponse:
        """Take a change or refuse it."""
        if self.down:
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "down")
        messages = [control_pb2.UpdateMetadataRequest.FromString(part) for part in parts]
        head = messages[0]
        if head.controller_epoch < self.controller_epoch:
            return self._answer(errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH)
        self.controller_epoch = head.controller_epoch
        if head.max_broker_epoch < self.epoch:
            return self._answer(errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH)
        own = self.version if self.known_under == head.controller_epoch else 0
        if own >= head.to_version:
            return self._answer(errors_pb2.ERROR_CODE_NONE)
        if head.from_version and not (own and head.from_version <= own):
            return self._answer(errors_pb2.ERROR_CODE_INVALID_REQUEST)
        if head.from_version == 0:
            self.leaders = {}
        for message in messages:
            for item in message.topics:
                if item.deleted:
                    self.leaders.pop(item.name, None)
                else:
                    known = self.leaders.setdefault(item.name, {})
                    known.update((state.partition, state.leader) for state in item.partitions)
        self.known_under, self.version = head.controller_epoch, head.to_version
        self.taken.append(parts)
        return self._answer(errors_pb2.ERROR_CODE_NONE)

    def _answer(self, code: errors_pb2.ErrorCode.ValueType) -> control_pb2.UpdateMetadataResponse:
        version = self.version if self.known_under == self.controller_epoch else 0
        return control_pb2.UpdateMetadataResponse(
            controller_epoch=self.controller_epoch, version=version, error_code=code
        )

    async def close(self) -> None:
        """Hang up."""
        self.closed = True
