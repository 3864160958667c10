"""Aimed schedules of ``stories`` that are about one leader after another."""

from typing import Final

from regnum_client.admin.leaders.elections import ElectionType
from regnum_model import paths

from regnum_testing.simulation.schedules.scene import ELECTIONS, Scene

STALE_S: Final = 4.0
"""Within so long after a new leader one whose orders go astray serves no more: 2 s of silence, and what looks at it."""


async def a_leader_is_cut_off(scene: Scene) -> None:
    """Clients alone reach it."""
    leader, *_ = scene.assigned()
    await scene.more(5)
    scene.cluster.cut_from_store(leader)
    scene.part(leader, *(name for name in scene.cluster.started if "-" in name and name != leader))
    await scene.sleep(22.0)


async def a_leaders_address_leads_elsewhere(scene: Scene) -> None:
    """Orders and fetches for it go to another broker; its session and its lifeline, which it opened itself, stay."""
    leader, second, _ = scene.assigned()
    await scene.more(5)
    epoch = scene.state().leader_epoch
    scene.cluster.lead_astray(leader, second)
    await scene.until(lambda: scene.state().leader_epoch > epoch)
    await scene.sleep(STALE_S)
    if await scene.until(lambda: scene.serves(leader), within_s=STALE_S):
        scene.history.problems.append(f"S8: {leader}, whose address leads elsewhere, serves on")
    await scene.more(5)


async def a_leader_bounces(scene: Scene) -> None:
    """It is back before its session ends."""
    leader, *_ = scene.assigned()
    await scene.more(5)
    scene.kill(leader)
    await scene.start(leader)
    await scene.more(10)


async def a_leader_bounces_unseen(scene: Scene) -> None:
    """It is back with all that it had, and no controller has seen it go."""
    leader, *_ = scene.assigned()
    await scene.more(5)
    await _bounces_unseen(scene, leader)
    await scene.sleep(4.0)


async def _bounces_unseen(scene: Scene, name: str, *, power: bool = False) -> None:
    for election in ELECTIONS:
        scene.cluster.pause(election)
    scene.kill(name, power=power)
    await scene.start(name)
    await scene.until(lambda: scene.holder(paths.broker_id(scene.id(name))) == name)
    await scene.sleep(0.5)
    for election in ELECTIONS:
        scene.cluster.go_on(election)


async def a_new_leader_bounces_unseen(scene: Scene) -> None:
    """The same, before anything is appended in its leader epoch: its log alone does not show that it led (S11)."""
    leader, second, _ = scene.assigned()
    await scene.more(5)
    scene.cluster.pause("load")
    epoch = scene.state().leader_epoch
    scene.kill(leader)
    await scene.until(lambda: scene.led(second, epoch + 1))
    await _bounces_unseen(scene, second)
    scene.cluster.go_on("load")
    await scene.sleep(2.0)
    await scene.start(leader)


async def a_leader_loses_power_and_is_back(scene: Scene) -> None:
    """No controller has seen it go; its last records are gone (T3)."""
    leader, *_ = scene.assigned()
    await scene.more(40)
    await _bounces_unseen(scene, leader, power=True)
    await scene.sleep(4.0)


async def a_fetch_is_late(scene: Scene) -> None:
    """What a follower said of its log arrives two leader epochs later; it has cut its log meanwhile.

    The first replica leads again because a person prefers it, cuts off what the second one led with, and dies.
    """
    first, *_ = scene.assigned()
    scene.kill(first)
    await scene.until(lambda: f"broker-{scene.state().leader}" not in {first, "broker--1"})
    second, _, third = scene.assigned()
    await scene.start(first)
    await scene.in_sync(first, second, third)
    await scene.more(5)
    scene.part(first, second)
    scene.cluster.cut(third, second)
    common = scene.end(third)
    await scene.until(lambda: scene.end(third) > common, each_s=0.0002)
    await scene.sleep(0.05)
    end = scene.end(third)
    await scene.administer(lambda admin: admin.elect_leaders(ElectionType.PREFERRED))
    if not await scene.until(lambda: scene.end(third) < end, within_s=2.0, each_s=0.0001):
        return
    scene.cluster.pause(third)
    scene.kill(first)
    if not await scene.until(lambda: f"broker-{scene.state().leader}" == second, within_s=1.5):
        return
    await scene.sleep(0.1)
    done = scene.acknowledged()
    scene.cluster.network.join(third, second)
    await scene.until(lambda: scene.acknowledged() > done, within_s=0.5, each_s=0.0002)
    scene.kill(second)
    scene.cluster.heal()
    scene.cluster.go_on(third)
    await scene.sleep(4.0)
    await scene.start(first, second)
