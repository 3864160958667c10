"""Aimed schedules, each the way to a loss that one or more mutants open (``mutants``). The product is clean in all.

Most go one way: the last acknowledged records are on two brokers, both killed; a third must not lead, or has them.
"""

import errno
from collections.abc import Awaitable, Callable
from typing import Final

from regnum_client import Admin, QuotaAlteration, QuotaEntity
from regnum_coordination.port import Create, Delete
from regnum_metadata.delivery import Patience
from regnum_model import paths
from regnum_model.quotas import QUOTA_ACTIVE
from regnum_service.errors import RegnumError

from regnum_testing.simulation.judging.judge import of_quota
from regnum_testing.simulation.load import LIMITED, MOVES, RESIZED, STAYS
from regnum_testing.simulation.schedules import leading
from regnum_testing.simulation.schedules.scene import ELECTIONS, STATE, Scene

Story = Callable[[Scene], Awaitable[None]]

METADATA: Final = "metadata-1"
QUOTA = ("quota-1", "quota-2")
FETCH: Final = "FetchReplica"
LAG_S: Final = 14.0  # longer than a follower may lag


async def _left_alone(scene: Scene, name: str, *others: str) -> None:
    """Only one broker is up for a while: if it may lead, it does. Then links are whole, and the others come back."""
    scene.kill(*others)
    scene.cluster.stores.heal()
    scene.cluster.forget_faults()
    await scene.start(name)
    await scene.sleep(4.0)
    scene.cluster.heal()
    await scene.start(*others)
    await scene.sleep(1.0)


async def _left_alone_to_a_new_reign(scene: Scene, name: str, *others: str) -> None:
    """The same; it has been registered for long when an election process reads the state as it was before."""
    scene.cluster.heal()
    await scene.start(name)
    await scene.sleep(9.0)
    await scene.start(*ELECTIONS)
    await _left_alone(scene, name, *others)


async def a_follower_loses_power(scene: Scene) -> None:
    """What it had not synced is gone; it comes back before those that have all (T1, T2, T5)."""
    leader, second, third = scene.assigned()
    await scene.more(40)
    scene.kill(second, power=True)
    scene.kill(leader, third)
    await _left_alone(scene, second, leader, third)


async def a_follower_loses_power_between_reigns(scene: Scene) -> None:
    """The same, while no election process is there."""
    leader, second, third = scene.assigned()
    await scene.more(40)
    scene.kill(*ELECTIONS, leader, third)
    scene.kill(second, power=True)
    await _left_alone_to_a_new_reign(scene, second, leader, third)


async def a_volume_goes_back(scene: Scene) -> None:
    """A copy of a volume that was stopped in order is put back (T8)."""
    leader, second, third = scene.assigned()
    await scene.more(10)
    scene.cluster.stop(second)
    await scene.ended(second)
    scene.cluster.copy_volume(second)
    await scene.start(second)
    await scene.in_sync(leader, second, third)
    await scene.more(20)
    scene.kill(second, goes_back=True)
    scene.kill(leader, third)
    await _left_alone(scene, second, leader, third)


async def a_disk_fails_once_away_from_the_store(scene: Scene) -> None:
    """A write fails, and of what the kernel had not written before a part is dropped; the store cannot be told."""
    leader, second, third = scene.assigned()
    await scene.more(5)
    await scene.written_down(second)
    await scene.more(8)
    scene.cluster.cut_from_store(second)
    scene.cluster.fail_once(second)
    await scene.until(lambda: scene.cluster.disks[second].has_refused, each_s=0.0002)
    scene.kill(*ELECTIONS, leader, third)
    await scene.sleep(0.01)
    scene.kill(second)
    await _left_alone_to_a_new_reign(scene, second, leader, third)


async def a_disk_fails_for_good_and_works_again(scene: Scene) -> None:
    """It takes no note of its failure; the store does."""
    leader, second, third = scene.assigned()
    await scene.more(5)
    await scene.written_down(second)
    await scene.more(8)
    scene.cluster.spoil_disk(second, errno.EROFS)
    await scene.until(lambda: scene.cluster.disks[second].has_refused, each_s=0.0002)
    scene.kill(*ELECTIONS, leader, third)
    await scene.ended(second)
    scene.cluster.mend_disk(second)
    await _left_alone_to_a_new_reign(scene, second, leader, third)


async def an_outsider_is_alone(scene: Scene) -> None:
    """A replica that left the ISR is all that is up."""
    leader, second, third = scene.assigned()
    scene.kill(third)
    await scene.in_sync(leader, second)
    await scene.more(10)
    scene.kill(leader, second)
    await _left_alone(scene, third, leader, second)


async def complete_copies_come_back(scene: Scene) -> None:
    """Two are killed one after the other, and the third one is wiped (T7)."""
    leader, second, third = scene.assigned()
    await scene.more(10)
    scene.kill(second)
    await scene.in_sync(leader, third)
    scene.kill(third)
    await scene.in_sync(leader)
    scene.kill(leader, goes_back=True)
    await scene.start(second, third, leader)


async def the_last_of_the_isr_goes_on(scene: Scene) -> None:
    """A leader is left alone with records that no follower has, and dies; an eligible replica leads."""
    leader, second, third = scene.assigned()
    scene.kill(third)
    await scene.in_sync(leader, second)
    scene.part(leader, second)
    await scene.sleep(0.5)
    scene.kill(second)
    await scene.in_sync(leader)
    await scene.sleep(1.0)
    await _left_alone(scene, second, leader)


async def _joins_without_records(scene: Scene, leader: str, second: str, third: str) -> None:
    """The third one comes back; what it asks for does not arrive. If it joins all the same, it is left alone."""
    scene.cluster.spawn(scene.start(third))
    await scene.called(third, leader, FETCH)
    await scene.until(lambda: third in scene.followers(leader), within_s=3.0, each_s=0.0002)
    scene.cluster.cut(leader, third)
    if await scene.until(lambda: scene.id(third) in scene.state().isr, within_s=3.0):
        await _left_alone(scene, third, leader, second)


async def a_follower_comes_back(scene: Scene) -> None:
    """It lacks what was acknowledged while it was away, and asks for it."""
    leader, second, third = scene.assigned()
    scene.kill(third)
    await scene.in_sync(leader, second)
    await scene.more(20)
    await _joins_without_records(scene, leader, second, third)


async def a_follower_comes_back_to_a_new_leader(scene: Scene) -> None:
    """The same; the leader has started anew, with a high watermark from before."""
    leader, second, third = scene.assigned()
    await scene.more(10)
    scene.kill(third)
    await scene.in_sync(leader, second)
    await scene.more(12)
    scene.kill(leader, second)
    await scene.start(second)
    await scene.until(lambda: f"broker-{scene.state().leader}" == second)
    await _joins_without_records(scene, second, leader, third)


async def a_joining_is_late(scene: Scene) -> None:
    """The write that takes a follower into the ISR gets no answer, and happens after the follower has died (S1)."""
    leader, second, third = scene.assigned()
    scene.kill(third)
    await scene.in_sync(leader, second)
    await scene.more(5)
    held = scene.cluster.stores.server.hold_write(touching=STATE)
    scene.cluster.spawn(scene.start(third))
    if not await scene.until(held.arrived.is_set):
        return
    # No controller sees that it died, and it is registered until its session ends.
    for name in ELECTIONS:
        scene.cluster.pause(name)
    scene.kill(third)
    await scene.sleep(0.5)
    held.commit()
    await scene.more(5, within_s=1.5)
    scene.kill(leader, second)
    await scene.start(third)
    await scene.sleep(0.5)
    for name in ELECTIONS:
        scene.cluster.go_on(name)
    await _left_alone(scene, third, leader, second)


async def a_joining_member_bounces(scene: Scene) -> None:
    """The write that takes it into the ISR happens after it was killed and has come back."""
    leader, second, third = scene.assigned()
    scene.kill(third)
    await scene.in_sync(leader, second)
    held = scene.cluster.stores.server.hold_write(touching=STATE)
    scene.cluster.spawn(scene.start(third))
    if not await scene.until(held.arrived.is_set):
        return
    scene.kill(third)
    await scene.start(third)
    await scene.sleep(0.05)
    held.commit()


async def a_joining_member_loses_power_unseen(scene: Scene) -> None:
    """Its leader is paused before it reads the registrations, and does not see that the connection is gone."""
    leader, second, third = scene.assigned()
    scene.kill(third)
    await scene.in_sync(leader, second)
    await scene.more(30)
    scene.cluster.spawn(scene.start(third))
    if not await scene.read(leader):
        return
    scene.cluster.pause(leader)
    scene.part(leader, third)
    scene.kill(third, power=True)
    await scene.start(third)
    await scene.sleep(0.2)
    scene.cluster.go_on(leader)
    if await scene.until(lambda: scene.id(third) in scene.state().isr, within_s=1.0):
        await _left_alone(scene, third, leader, second)


async def a_shrink_is_lost(scene: Scene) -> None:
    """The write that takes a follower out of the ISR never happens; the follower lives."""
    leader, second, third = scene.assigned()
    scene.part(third, leader, second)
    await scene.sent(leader, within_s=LAG_S)
    scene.cluster.stores.server.drop_write(times=20, touching=STATE)
    # The first client waits for its acknowledgements; high watermarks move by appends.
    scene.more_load()
    await scene.sleep(1.5)
    scene.kill(leader, second)
    await _left_alone(scene, third, leader, second)


async def a_tail_diverges(scene: Scene) -> None:
    """What one follower has beyond the other is cut when that leads; it is ahead of its high watermark then."""
    leader, second, third = scene.assigned()
    await scene.more(10)
    # A producer that waits for its acknowledgements appends nothing; another one goes on.
    scene.more_load()
    await scene.more(5)
    # The second one is given records, and what it has of them is not heard of.
    scene.cluster.cut(second, leader)
    end = scene.end(leader)
    await scene.until(lambda: scene.end(third) > scene.end(second) > end, within_s=3.0, each_s=0.0001)
    scene.cluster.cut(leader, second)
    scene.cluster.cut(leader, third)
    done = scene.acknowledged()
    scene.cluster.network.join(second, leader)
    await scene.until(lambda: scene.acknowledged() > done, within_s=2.0, each_s=0.0002)
    common = scene.end(second)
    # What the leader had said of its high watermark never arrives.
    scene.kill(leader)
    await scene.until(lambda: f"broker-{scene.state().leader}" == second)
    if await scene.until(lambda: 0 <= scene.end(third) < common, within_s=2.0, each_s=0.0001):
        scene.kill(second)
        await scene.sleep(4.5)
        await scene.start(second)
    scene.cluster.heal()
    await scene.start(leader)


async def an_isr_shrinks_and_grows(scene: Scene) -> None:
    """Brokers hear of what a leader wrote."""
    leader, second, third = scene.assigned()
    scene.part(third, leader, second)
    await scene.in_sync(leader, second, within_s=LAG_S)
    await scene.sleep(3.0)
    scene.history.problems += await scene.images()


async def a_change_of_metadata_is_lost(scene: Scene) -> None:
    """A broker does not hear of one topic, and hears of the next one (S17)."""
    third = scene.assigned()[-1]
    scene.part(third, METADATA)

    def made(topic: str) -> Callable[[Admin], Awaitable[object]]:
        return lambda admin: admin.create_topic(topic, partitions=1, replication_factor=3)

    await scene.administer(made("unheard"))
    # Until the sender has given the answer up.
    await scene.sleep(1.5 * Patience().answer_s)
    scene.cluster.heal()
    await scene.administer(made("heard"))
    await scene.sleep(5.0)
    scene.history.problems += await scene.images()


async def a_reign_ends_before_its_write(scene: Scene) -> None:
    """A controller is paused when it writes; meanwhile a person removes ``/controller``, and another one reigns."""
    _, second, _ = scene.assigned()
    before = scene.reigns()
    scene.kill(second)
    await scene.sent(before)
    scene.cluster.pause(before)
    scene.by_hand((Delete(paths.CONTROLLER, None),))
    await scene.until(lambda: scene.reigns() not in {"", before}, each_s=0.0001)
    scene.cluster.go_on(before)
    await scene.sleep(1.0)


async def a_controller_hears_no_broker(scene: Scene) -> None:
    """It is cut off from all of them, and not from the store."""
    reigns = scene.reigns()
    await scene.more(3)
    scene.part(reigns, *scene.assigned())
    await scene.sleep(12.0)


async def a_person_writes_controller(scene: Scene) -> None:
    """What is in ``/controller`` names no process; no controller is there, and a leader is dead."""
    leader, *_ = scene.assigned()
    scene.kill(*ELECTIONS, leader)
    scene.cluster.stores.server.overwrite(paths.CONTROLLER, b"me")
    await scene.start(*ELECTIONS)
    await scene.sleep(8.0)


async def a_session_ends_before_its_write(scene: Scene) -> None:
    """A broker's registration is on its way when its session ends."""
    _, second, _ = scene.assigned()
    scene.kill(second)
    held = scene.cluster.stores.server.hold_write(touching=paths.broker_id(scene.id(second)))
    scene.cluster.spawn(scene.start(second))
    if await scene.until(held.arrived.is_set):
        scene.cluster.lose_session(second)
        held.commit()
        scene.kill(second)
        await scene.sleep(1.0)


async def a_number_is_given_again(scene: Scene) -> None:
    """A broker is forgotten while a partition is removed, and comes back as the leader of the next one (T10)."""
    *_, third = scene.assigned()
    number, id = 1, scene.id(third)
    others = [one for one in (1, 2, 3) if one != id]
    replicas = {0: [*others, id], 1: [id, *others]}
    await scene.administer(lambda admin: admin.create_topic(RESIZED, partitions=0, assignment=replicas))
    scene.load_to(RESIZED, 2)
    await scene.sleep(3.0)
    scene.load_to(RESIZED, 1)
    await scene.sleep(1.0)
    scene.kill(third)
    await scene.until(lambda: id not in scene.state().isr)
    await scene.remove(RESIZED, number)
    await scene.administer(lambda admin: admin.forget_broker(id))
    await scene.start(third)
    await scene.until(lambda: scene.holder(paths.broker_id(id)) == third)
    await scene.sleep(0.5)
    await scene.administer(lambda admin: admin.create_partitions(RESIZED, assignment={1: [id, *others]}))
    scene.load_to(RESIZED, 2)
    await scene.sleep(2.0)


async def the_store_goes_back(scene: Scene) -> None:
    """To before a partition moved and leaders changed; then all brokers start anew (T9). No log of it may go."""
    leader, second, third = scene.assigned()
    server = scene.cluster.stores.server
    home, away = scene.id(leader), scene.id(third)
    for name in (leader, second, third):
        scene.cluster.tell(name, "stray-grace-s", "2")
    scene.kill(leader, second, third)
    await scene.start(leader, second, third)
    await scene.administer(lambda admin: admin.create_topic(MOVES, partitions=0, assignment={0: [home]}))
    await scene.in_sync(leader, second, third)
    copy = server.snapshot()
    await scene.administer(lambda admin: admin.alter_partition_reassignments({(MOVES, 0): [away]}))
    await scene.until(lambda: scene.cluster.states()[MOVES, 0][0] == away)
    scene.load_to(MOVES, 1)
    scene.kill(leader)
    await scene.in_sync(second, third)
    await scene.start(leader)
    await scene.more(10)
    server.put_back(copy)
    await scene.sleep(5.0)
    scene.kill(leader, second, third)
    await scene.start(leader, second, third)
    await scene.sleep(12.0)
    for topic in (STAYS, MOVES):
        if lost := scene.nowhere(topic, 0):
            scene.history.problems.append(f"lost from every log: {len(lost)} records of {topic}, as {lost[:5]}")
    scene.over = True


async def a_state_is_lost(scene: Scene) -> None:
    """A person removes the node of a partition's state, another controller reigns, and it is put back (S14)."""
    store = scene.cluster.stores.server
    await scene.more(5)
    node = store.reading(current=True).get(STATE)
    assert node is not None, "the topic is there"
    scene.by_hand((Delete(STATE, None),))
    scene.kill(scene.reigns())
    await scene.sleep(8.0)
    if store.reading(current=True).get(STATE) is None:
        scene.by_hand((Create(STATE, node.data),))
    await scene.sleep(8.0)


async def an_answer_of_a_creation_is_lost(scene: Scene) -> None:
    """The controller is killed when the topic stands; the client asks the next one (S20)."""
    reigns = scene.reigns()

    async def create() -> None:
        try:
            await scene.administer(lambda admin: admin.create_topic("once", partitions=1, replication_factor=3))
        except RegnumError as error:
            scene.history.problems.append(f"S20: a mutation happened twice: {error}")

    created = scene.cluster.spawn(create())
    await scene.sent(reigns, paths.topic("once"))
    await scene.until(lambda: "once" in scene.cluster.topics(), each_s=0.0001)
    scene.kill(reigns)
    await created


async def quota_processes_die(scene: Scene) -> None:
    """First the active one, then both of them and the controller, under a client that takes all it gets (S21)."""
    rate, burst = 1.0, 5.0
    for name in QUOTA:
        await scene.cluster.start(name)
    limits = {"controller_mutation_rate": rate, "controller_mutation_burst": burst}
    quota = QuotaAlteration(entity=QuotaEntity(client_id=LIMITED), set=limits)
    await scene.administer(lambda admin: admin.alter_client_quotas([quota]))
    scene.mutate(24.0)
    await scene.sleep(7.0)
    active = scene.holder(QUOTA_ACTIVE)
    scene.kill(active)
    await scene.sleep(5.0)
    await scene.start(active)
    await scene.sleep(3.0)
    scene.kill(*QUOTA, scene.reigns())
    await scene.sleep(3.0)
    await scene.start(*QUOTA)
    await scene.sleep(7.0)
    assert len(scene.history.admitted) > burst, "the client gets what it may"
    scene.history.problems += of_quota(scene.history.admitted, rate=rate, burst=burst)


STORIES: Final[dict[str, Story]] = {
    story.__name__: story
    for story in (
        a_follower_loses_power,
        a_follower_loses_power_between_reigns,
        a_volume_goes_back,
        a_disk_fails_once_away_from_the_store,
        a_disk_fails_for_good_and_works_again,
        an_outsider_is_alone,
        complete_copies_come_back,
        the_last_of_the_isr_goes_on,
        a_follower_comes_back,
        a_follower_comes_back_to_a_new_leader,
        a_joining_is_late,
        a_joining_member_bounces,
        a_joining_member_loses_power_unseen,
        a_shrink_is_lost,
        a_tail_diverges,
        leading.a_leader_is_cut_off,
        leading.a_leaders_address_leads_elsewhere,
        an_isr_shrinks_and_grows,
        a_change_of_metadata_is_lost,
        leading.a_leader_bounces,
        leading.a_leader_bounces_unseen,
        leading.a_new_leader_bounces_unseen,
        leading.a_fetch_is_late,
        leading.a_leader_loses_power_and_is_back,
        a_reign_ends_before_its_write,
        a_controller_hears_no_broker,
        a_person_writes_controller,
        a_session_ends_before_its_write,
        a_number_is_given_again,
        the_store_goes_back,
        a_state_is_lost,
        an_answer_of_a_creation_is_lost,
        quota_processes_die,
    )
}  # by name
