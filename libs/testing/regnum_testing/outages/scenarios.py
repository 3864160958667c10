"""What is done to a cluster, each by its name; what was taken away is given back after it was judged."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from regnum_client import TopicPartition
from regnum_client.admin.admin import Admin
from regnum_client.admin.leaders.elections import ElectionType
from regnum_local.cluster import LocalCluster
from regnum_local.demo.scenes import Leadership, Stage
from regnum_local.plan import Role
from regnum_telemetry import conventions as names

FROZEN_S: Final = 6.0
"""How long a broker stands still: longer than it takes to be fenced."""
CONTROLLER_FROZEN_S: Final = 8.0
"""The same of a controller."""
STORE_FROZEN_S: Final = 2.0
"""The same of the store: shorter than sessions are."""
SETTLED_S: Final = 3.0
"""So long a scenario goes on after what it did."""
BALANCE_S: Final = 3.0
"""Seconds between two rounds of the balance, in this cluster."""
SECONDS_MAX: Final = 60.0
"""What is waited for comes in this time."""


@dataclass(slots=True, kw_only=True)
class Scene:
    """The cluster, and the means to hurt it."""

    cluster: LocalCluster
    """Its processes."""
    stage: Stage
    """Looks at it."""
    admin: Admin
    """Asks it for planned moves."""
    busy: TopicPartition
    """A partition that is written to."""
    begun: Callable[[], None]
    """Called at the moment from which acknowledgements are judged."""
    store: str
    """Process name of the store."""

    async def leader(self) -> str:
        """Process name of the leader of the busy partition."""
        return f"broker-{(await self.stage.look()).leaders[self.busy]}"

    async def controller(self) -> str:
        """Process name of the controller."""
        return f"election-{(await self.stage.look()).controller}"


async def kill(scene: Scene) -> list[str]:
    """Kill -9 of a leader."""
    leader = await scene.leader()
    scene.begun()
    await scene.cluster.kill(leader)
    await scene.stage.run_for(SETTLED_S)
    return [leader]


async def freeze(scene: Scene) -> list[str]:
    """SIGSTOP of a leader, and SIGCONT."""
    leader = await scene.leader()
    scene.begun()
    scene.cluster.pause(leader)
    await scene.stage.run_for(FROZEN_S)
    scene.cluster.resume(leader)
    await scene.stage.run_for(SETTLED_S)
    return []


async def both(scene: Scene) -> list[str]:
    """Kill -9 of a leader and of the controller at once."""
    leader, controller = await scene.leader(), await scene.controller()
    scene.begun()
    await scene.cluster.kill(leader)
    await scene.cluster.kill(controller)
    await scene.stage.run_for(2 * SETTLED_S)
    return [leader, controller]


async def controller_frozen(scene: Scene) -> list[str]:
    """SIGSTOP of the controller, and SIGCONT."""
    controller = await scene.controller()
    scene.begun()
    scene.cluster.pause(controller)
    await scene.stage.run_for(CONTROLLER_FROZEN_S)
    scene.cluster.resume(controller)
    await scene.stage.run_for(SETTLED_S)
    return []


async def store_frozen(scene: Scene) -> list[str]:
    """SIGSTOP of the store while a leader is killed, and SIGCONT."""
    leader = await scene.leader()
    scene.begun()
    scene.cluster.pause(scene.store)
    await scene.cluster.kill(leader)
    await scene.stage.run_for(STORE_FROZEN_S)
    scene.cluster.resume(scene.store)
    await scene.stage.run_for(2 * SETTLED_S)
    return [leader]


async def sigterm(scene: Scene) -> list[str]:
    """A leader is asked to end."""
    leader = await scene.leader()
    scene.begun()
    await scene.cluster.terminate(leader)
    await scene.stage.run_for(SETTLED_S)
    return [leader]


async def drain(scene: Scene) -> list[str]:
    """A broker is drained: all its replicas move elsewhere; undone afterwards."""
    before = await scene.stage.look()
    broker = before.leaders[scene.busy]
    led = before.led_by(broker)
    others = _others(scene, broker)
    scene.begun()
    await scene.admin.drain_broker(broker)
    await _moved(scene, dict.fromkeys(led, others), broker)
    await scene.admin.drain_broker(broker, undo=True)
    return []


async def balance(scene: Scene) -> list[str]:
    """A broker comes back, and gets the leaderships that are its own by preference."""
    leader = await scene.leader()
    before = await scene.stage.look()
    await scene.cluster.terminate(leader)
    await scene.cluster.restart(leader)
    await scene.cluster.wait_healthy(leader)
    scene.begun()

    async def back() -> bool:
        return (await scene.stage.look()).leaders == before.leaders

    await scene.stage.until("preferred leaders lead", back, within_s=SECONDS_MAX)
    await scene.stage.run_for(SETTLED_S)
    return []


async def election(scene: Scene) -> list[str]:
    """Preferred leaders are elected by request, after a broker was away."""
    leader = await scene.leader()
    await scene.cluster.terminate(leader)
    await scene.cluster.restart(leader)
    await scene.cluster.wait_healthy(leader)
    await scene.stage.all_in_sync(within_s=SECONDS_MAX)
    scene.begun()
    await scene.admin.elect_leaders(ElectionType.PREFERRED)
    await scene.stage.run_for(SETTLED_S)
    return []


async def resign(scene: Scene) -> list[str]:
    """The controller resigns."""
    scene.begun()
    await scene.admin.resign_controller()
    await scene.stage.run_for(SETTLED_S)
    return []


async def reassignment(scene: Scene) -> list[str]:
    """The leader of a partition leaves its replica list."""
    before = await scene.stage.look()
    broker = before.leaders[scene.busy]
    scene.begun()
    await _moved(scene, {scene.busy: _others(scene, broker)}, broker)
    return []


def _others(scene: Scene, broker: int) -> tuple[int, ...]:
    """Ids of all other brokers: as many as a partition has replicas."""
    return tuple(row.id for row in scene.cluster.status() if row.role is Role.BROKER and row.id != broker)


async def _moved(scene: Scene, targets: dict[TopicPartition, tuple[int, ...]], away: int) -> None:
    """Move partitions to other replicas and wait until they are led there; then move them back."""
    for to, gone in ((targets, True), ({one: (away, *of[1:]) for one, of in targets.items()}, False)):
        await scene.admin.alter_partition_reassignments({(one.topic, one.partition): of for one, of in to.items()})

        async def done(gone: bool = gone) -> bool:  # noqa: FBT001 - bound for each round
            open_now = await scene.admin.list_partition_reassignments()
            now: Leadership = await scene.stage.look()
            return not open_now and (not gone or all(now.leaders[one] != away for one in targets))

        await scene.stage.until("partitions are where they should be", done, within_s=SECONDS_MAX)
        await scene.stage.run_for(SETTLED_S)


SCENARIOS: Final[dict[str, tuple[Callable[[Scene], Awaitable[list[str]]], tuple[str, ...]]]] = {
    "kill": (kill, (names.KIND_BROKER_FAILURE,)),
    "freeze": (freeze, (names.KIND_BROKER_FAILURE,)),
    "both": (both, (names.KIND_BROKER_FAILURE, names.KIND_SUCCESSION)),
    "controller-frozen": (controller_frozen, (names.KIND_SUCCESSION,)),
    "store-frozen": (store_frozen, (names.KIND_BROKER_FAILURE,)),
    "sigterm": (sigterm, (names.KIND_CONTROLLED_SHUTDOWN,)),
    "drain": (drain, (names.KIND_REASSIGNMENT,)),
    "balance": (balance, (names.KIND_BALANCE,)),
    "election": (election, ()),
    "resign": (resign, (names.KIND_SUCCESSION,)),
    "reassignment": (reassignment, (names.KIND_REASSIGNMENT,)),
}
"""By name: what is done (it returns the processes that are away), and kinds of changes that have to be listed."""
