"""Controllers for brokers of a ``BrokerWorld``, as far as lifelines go."""

from regnum_election.brokers.lifeline_thread import LifelineThread
from regnum_election.reign.events import AwaitsInSync
from regnum_election.reign.events import CatchingUp as Said
from regnum_model import paths
from regnum_model.ids import BrokerEpoch, ControllerEpoch, ElectionId
from regnum_model.nodes import Address, ControllerNode, ElectionNode
from regnum_service.clock import SystemClock
from regnum_service.loop_lag import LoopLag
from regnum_service.supervisor import Supervisor

from regnum_testing.broker_world import BrokerWorld


class Controllers:
    """Controllers as far as their lifelines go, one after another."""

    def __init__(self, world: BrokerWorld) -> None:
        self._world = world
        self._supervisor = Supervisor("test")
        self.asked: list[AwaitsInSync] = []
        """What brokers asked of the last one."""
        self.thread: LifelineThread | None = None
        self.epoch = ControllerEpoch(0)

    async def next(self) -> None:
        """Another one begins its reign; the one before is gone."""
        await self.end()
        self.epoch = ControllerEpoch(self.epoch + 1)
        asked: list[AwaitsInSync] = []
        self.asked, clock = asked, SystemClock()

        def heard(_epoch: ControllerEpoch, said: object) -> None:
            if isinstance(said, AwaitsInSync) and said.open:
                asked.append(said)

        self.thread = LifelineThread(
            Address(host="127.0.0.1", port=0),
            clock=clock,
            supervisor=self._supervisor,
            main_lag=LoopLag(clock),
            session_connected=lambda: True,
            session_timeout_s=6.0,
            report=heard,
            fences=False,
            election_id=str(self.epoch),
        )
        lifeline = await self.thread.start()
        self.thread.begin(self.epoch, elected_at=BrokerEpoch(0))
        await announce(self._world, self.epoch, lifeline)

    async def end(self) -> None:
        """The last one goes."""
        if self.thread is not None:
            await self.thread.stop()

    def count(self, id: int, awaited: int, replicas: int) -> None:
        """Tell a broker that asked."""
        assert self.thread is not None
        (asked,) = (one for one in self.asked if one.broker == id)
        said = Said(broker=asked.broker, epoch=asked.epoch, replicas=replicas, awaited=awaited)
        self.thread.tell(self.epoch, said)


async def announce(world: BrokerWorld, id: int, lifeline: Address) -> None:
    """This is the controller from now on."""
    listeners = {"client": lifeline, "internal": lifeline, "lifeline": lifeline}
    node = ElectionNode(incarnation=f"{id}", listeners=listeners).encode()
    await world.store.create(paths.election_id(ElectionId(id)), node)
    content = ControllerNode(election_id=ElectionId(id), timestamp="0").encode()
    stat = await world.store.exists(paths.CONTROLLER)
    if stat is None:
        await world.store.create(paths.CONTROLLER, content)
    else:
        await world.store.set(paths.CONTROLLER, content, version=stat.version)
