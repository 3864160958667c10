"""Whether the store holds an earlier state than it did: one broker's proof is enough (trace T9).

Goals: from the proof on no partition gets another leader and no log is deleted by the store's word, whichever process
reigns; what leads goes on leading.

Algorithm: the proof is a node. It is written in one transaction with ``/controller_epoch``, whose version fences every
write of the present reign, and ``/controller`` goes with it: whoever reigns next reads the node before anything else.
The node stays until a person has the tree treated as a restored one, which takes that every process is stopped.
"""

from contextlib import aclosing
from typing import Final

import structlog
from regnum.types.v1 import errors_pb2
from regnum_coordination.errors import ConnectionLoss, NodeFailure, SessionExpired
from regnum_coordination.port import Create, Delete, Operation, Set, Store
from regnum_coordination.recipes.resolve import Resolver
from regnum_coordination.timing import Backoff
from regnum_model import paths
from regnum_model.ids import BrokerId
from regnum_model.nodes.lives import WentBackNode
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError, StartRefusedError

from regnum_broker.cluster.sessions import Sessions

ADVICE: Final = (
    "the store was put back to an earlier state, so its word moves no leader and deletes no log; see `regnum restore"
    " --in-place`"
)
"""What is wrong, and what to do."""


class WentBack:
    """One for the life of the broker. Belongs to the event loop."""

    def __init__(self, broker: BrokerId, *, sessions: Sessions, clock: Clock) -> None:
        """Only assigns."""
        self._broker: Final = broker
        self._sessions: Final = sessions
        self._clock: Final = clock
        self.stands = False
        """Whether the store is known to have gone back."""
        self._log: Final = structlog.get_logger("went back")

    async def run(self) -> None:
        """Follow the node for ever; a task of the supervisor.

        Raises:
            StartRefusedError: the store was restored meanwhile, which takes that every process is stopped.
        """
        seen = False
        while True:
            store = await self._sessions.wait_store()
            try:
                async with aclosing(store.watch_node(paths.WENT_BACK)) as states:
                    async for node in states:
                        if node is not None:
                            seen = True
                            self.note()
                        elif seen:
                            raise StartRefusedError(
                                "the store was restored while this broker ran; what it leads is for others now. Start "
                                "it anew: a restore is for when every process is stopped"
                            )
            except SessionExpired:
                pass
            await store.wait_lost()
            await self._clock.sleep(0)

    def note(self) -> None:
        """The node stands: somebody has proved it."""
        if not self.stands:
            self._log.critical("the store went back", reason=ADVICE)
        self.stands = True

    def refuse_orders(self) -> None:
        """Raise RegnumError while orders rest on a state that went back."""
        if self.stands:
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, f"no order is carried out: {ADVICE}")

    async def tell(self, store: Store, proof: str) -> None:
        """Prove it to all. Raises SessionExpired."""
        self._log.critical("the store went back", proof=proof)
        self.note()
        node = WentBackNode(broker=self._broker, proof=proof, at_ms=self._clock.wall_ms())
        resolver, attempts = Resolver(store, self._clock), 0
        while True:
            try:
                mark, epoch, controller = await store.get_many(
                    [paths.WENT_BACK, paths.CONTROLLER_EPOCH, paths.CONTROLLER], current=True
                )
                if mark is not None:
                    return
                operations: list[Operation] = [Create(paths.WENT_BACK, node.encode())]
                if epoch is not None:
                    operations.append(Set(paths.CONTROLLER_EPOCH, epoch.data, epoch.stat.version))
                if controller is not None:
                    operations.append(Delete(paths.CONTROLLER, controller.stat.version))
                await resolver.multi(operations)
            except (NodeFailure, ConnectionLoss):
                attempts += 1
                await self._clock.sleep(Backoff().pause_s(attempts))
            else:
                return
