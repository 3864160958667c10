"""What the broker knows of the cluster: brokers, controller, topics. Fed by UpdateMetadata, read by clients.

A change covers an interval of versions and carries absolute values (safety rule S17): it is applied when it begins at
or below the own version and ends above it. Changes that merge never skip anything, and a gap is answered with the own
version, so that the sender goes on from there. Versions count within one controller epoch; under a new one the first
change must be a full picture.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from regnum.broker.v1 import control_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.ids import ControllerEpoch
from regnum_service.errors import Code, RegnumError
from regnum_telemetry import conventions, tracing

from regnum_broker.fence import Fence

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
    partitions: Mapping[int, types_pb2.PartitionState]
    """States by number."""


class MetadataCache:
    """The picture and its version. Belongs to the event loop."""

    def __init__(self, fence: Fence, learn_listeners: Callable[[Sequence[types_pb2.Broker]], None]) -> None:
        self._fence: Final = fence
        self._learn_listeners: Final = learn_listeners
        self._applying: Final = asyncio.Lock()
        self._epoch = ControllerEpoch(0)
        self._version = 0
        self._shown = 0
        """Under a new controller epoch the old picture stays until a full one came, and so does its version."""
        self.cluster_id = ""
        """Id of the cluster; empty before the first picture."""
        self.controller: types_pb2.Controller = types_pb2.Controller(id=-1)
        """The active controller as the newest picture names it."""
        self.brokers: tuple[types_pb2.Broker, ...] = ()
        """Live brokers by id."""
        self.topics: Mapping[str, TopicView] = {}
        """Topics by name."""

    @property
    def version(self) -> int:
        """Version of the picture, for clients: controller epoch and change number grow together."""
        return self._shown

    def knows(self, topic: str, partition: int) -> bool:
        """Whether a partition exists as far as this broker has heard."""
        view = self.topics.get(topic)
        return view is not None and partition in view.partitions

    async def take(
        self, request: control_pb2.UpdateMetadataRequest, parts: list[control_pb2.UpdateMetadataRequest]
    ) -> control_pb2.UpdateMetadataResponse | None:
        """Take one part of a change; the answer to its last part, None before that.

        Args:
            request: the part.
            parts: parts that came before it on the same stream; kept by the stream, filled and emptied here.
        """
        refusal = await self._refusal(request)
        if refusal is not None:
            parts.clear()
            return self._answer(refusal)
        if request.part == 0:
            parts.clear()
        if request.part != len(parts) or (parts and not _belong_together(parts[0], request)):
            parts.clear()
            return self._answer(errors_pb2.ERROR_CODE_INVALID_REQUEST)
        parts.append(request)
        if len(parts) < request.parts:
            return None
        change = tuple(parts)
        parts.clear()
        async with self._applying:
            began_unix_nano, before = tracing.now_unix_nano(), self.version
            code = await self._apply(change)
            # A repeat is no news, and a broker that has just started is no part of what went on before.
            if change[0].traceparent and before and self.version > before:
                self._record(change[0], began_unix_nano)
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
        if identity is not None and request.max_broker_epoch < identity.broker_epoch:
            # Made before this broker registered (safety rule S18, defect D21).
            return errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH
        if not 0 <= request.part < request.parts <= PARTS_MAX or not 1 <= request.to_version <= VERSION_MAX:
            return errors_pb2.ERROR_CODE_INVALID_REQUEST
        return None

    async def _apply(self, parts: Sequence[control_pb2.UpdateMetadataRequest]) -> Code:
        head = parts[0]
        epoch = ControllerEpoch(head.controller_epoch)
        own = self._version if epoch == self._epoch else 0
        full = head.from_version == 0
        if epoch < self._epoch:
            return errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH
        if own >= head.to_version:
            return errors_pb2.ERROR_CODE_NONE
        if not full and not (own and head.from_version <= own):
            if epoch != self._epoch:
                self._epoch, self._version = epoch, 0
            return errors_pb2.ERROR_CODE_INVALID_REQUEST
        # Built beside the present picture, so that readers between two slices see one or the other.
        topics = {} if full else dict(self.topics)
        count = 0
        for part in parts:
            for topic in part.topics:
                count += 1 + len(topic.partitions)
                if count > SLICE:
                    count = 0
                    await asyncio.sleep(0)
                _merge(topics, topic)
        self.topics = topics
        self.brokers = tuple(sorted(head.brokers, key=lambda broker: broker.id))
        self.controller = head.controller
        self.cluster_id = head.cluster_id
        self._epoch, self._version = epoch, head.to_version
        self._shown = (epoch << 32) + head.to_version
        self._learn_listeners(head.brokers)
        return errors_pb2.ERROR_CODE_NONE

    def _answer(self, code: Code) -> control_pb2.UpdateMetadataResponse:
        known = self._fence.controller_epoch == self._epoch
        return control_pb2.UpdateMetadataResponse(
            controller_epoch=self._fence.controller_epoch, version=self._version if known else 0, error_code=code
        )


def _belong_together(first: control_pb2.UpdateMetadataRequest, next_: control_pb2.UpdateMetadataRequest) -> bool:
    return (first.controller_epoch, first.from_version, first.to_version, first.parts) == (
        next_.controller_epoch,
        next_.from_version,
        next_.to_version,
        next_.parts,
    )


def _merge(topics: dict[str, TopicView], change: types_pb2.TopicState) -> None:
    present = topics.get(change.name)
    if change.deleted:
        # Of an earlier life of the name: the present one stays.
        if present is not None and change.topic_id in {present.topic_id, ""}:
            del topics[change.name]
        return
    partitions = {state.partition: state for state in change.partitions}
    if present is not None and present.topic_id == change.topic_id:
        partitions = {**present.partitions, **partitions}
    topics[change.name] = TopicView(name=change.name, topic_id=change.topic_id, partitions=partitions)
