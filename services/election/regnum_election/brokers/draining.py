"""Brokers that are being drained: live, and given no new replicas (``/admin/draining/<broker id>``).

Goals: a broker that is emptied stays empty while topics are created, partitions added and moved; it is known to every
controller; it costs nothing for each topic, and one node for each broker that is drained.

Algorithm: the controller alone writes the nodes, under its fence, and reads them once when its reign begins. What
places replicas leaves these brokers out; what a person names for new replicas is refused. A mark stays over restarts of
the broker, until somebody takes it back or the broker is forgotten.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum.types.v1 import events_pb2 as words
from regnum_coordination.errors import NodeExists, NoNode
from regnum_coordination.port import Create, Delete, Operation, Refused
from regnum_model import paths
from regnum_model.ids import BrokerEpoch, BrokerId
from regnum_service.errors import RegnumError
from regnum_telemetry import tracing

from regnum_election.history.events import Reason
from regnum_election.reign.request_queue import RequestQueue
from regnum_election.state.context import ControllerContext

ROUNDS_MAX: Final = 5
"""Rounds against people who write the same node."""

MARK: Final = b'{"version":1}'
"""Content of the node: that it stands is what counts."""


class BrokerDraining:
    """Marks of one reign."""

    def __init__(self, context: ControllerContext, requests: RequestQueue) -> None:
        """Only assigns."""
        self._context: Final = context
        self._requests: Final = requests

    async def drain(self, broker: BrokerId, *, undo: bool, validate_only: bool, who: str, wait_s: float) -> bool:
        """Mark a broker, or take its mark back; whether that changes anything. It may be repeated.

        Raises:
            RegnumError: INVALID_REQUEST when nobody knows the broker.
        """
        result: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        begun = False
        traceparent = tracing.current()

        async def steps() -> AsyncGenerator[None, None]:
            nonlocal begun
            picture = self._context.picture
            known = broker in picture.brokers or broker in picture.assigned or broker in picture.draining
            if not known:
                raise RegnumError(
                    errors_pb2.ERROR_CODE_INVALID_REQUEST,
                    f"broker {broker} is not registered, and no partition is assigned to it; see `regnum brokers list`",
                )
            changes = (broker in picture.draining) is undo
            if changes and not validate_only:
                begun = True
                await self._write(broker, undo=undo)
                kind = words.EVENT_KIND_BROKER_DRAINING_ENDED if undo else words.EVENT_KIND_BROKER_DRAINING
                live = picture.brokers.get(broker)
                epoch = BrokerEpoch(0) if live is None else live.epoch
                asked = Reason(words.EVENT_CAUSE_UNSPECIFIED).asked_by(who, traceparent)
                self._context.events.broker(kind, broker, epoch, asked)
                self._context.log.warning("broker draining", broker=broker, undone=undo, who=who)
            if not result.done():
                result.set_result(changes)
            yield

        self._requests.submit("drain broker", steps(), result, begun=lambda: begun)
        return await self._requests.answer(result, wait_s)

    async def _write(self, broker: BrokerId, *, undo: bool) -> None:
        context, path = self._context, paths.draining(broker)
        for _ in range(ROUNDS_MAX):
            node = (await context.store.read_many((path,))).get(path)
            if (node is None) is undo:
                break
            operation: Operation = Create(path, MARK) if node is None else Delete(path, node.stat.version)
            (outcome,) = await context.store.write_batch([(operation,)])
            if not isinstance(outcome, Refused):
                break
            if not undo and isinstance(outcome.error, NoNode):
                # The folder, of a store that no election process of this release has started with.
                await context.store.write_batch([(Create(paths.DRAINING, b""),)])
            elif isinstance(outcome.error, NodeExists | NoNode):
                break
        else:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST, f"{path} is changed by others all the time; try again"
            )
        take_mark(context, broker, undo=undo)


def take_mark(context: ControllerContext, broker: BrokerId, *, undo: bool) -> None:
    """The picture says what the store says."""
    draining = context.picture.draining
    context.picture = replace(context.picture, draining=draining - {broker} if undo else draining | {broker})


async def take_up_draining(context: ControllerContext) -> None:
    """At the beginning of a reign: the marks come into the picture."""
    names = await context.store.names(paths.DRAINING)
    marked = frozenset(BrokerId(id) for id in map(paths.id_named, names) if id is not None)
    context.picture = replace(context.picture, draining=marked)
