"""How long the judge waits after the last fault, and for what."""

import pytest
from regnum_testing.simulation.load import STAYS
from regnum_testing.simulation.run import CALM_S, forked
from regnum_testing.simulation.schedules.scene import Scene


@pytest.mark.timeout(120)
@pytest.mark.parametrize("is_known", [True, False])
def test_a_replica_that_a_volume_brings_back_is_waited_for_until_its_broker_has_deleted_it_and_no_other(
    is_known: bool,
) -> None:
    async def a_moved_replica_comes_back_with_its_volume(scene: Scene) -> None:
        leader, second, third = scene.assigned()
        await scene.more(10)
        scene.cluster.copy_volume(third)
        kept = [scene.id(leader), scene.id(second)]
        await scene.administer(lambda admin: admin.alter_partition_reassignments({(STAYS, 0): kept}))
        await scene.until(lambda: scene.replica(third) is None)
        await scene.sleep(5.0)
        scene.kill(third, goes_back=True)
        if not is_known:
            # As if the broker had never deleted it.
            scene.cluster.disks[third].brought_back.clear()
        await scene.start(third)
        await scene.until(lambda: scene.replica(third) is not None)

    outcome = forked(1, schedule=a_moved_replica_comes_back_with_its_volume)
    assert outcome.acknowledged > 10
    if is_known:
        assert outcome.found == []
        assert outcome.calm_s > CALM_S, "no order is about it, so it was there for longer"
    else:
        assert "has the replicas ['broker-1', 'broker-2', 'broker-3'] and not" in outcome.found[0]
        assert outcome.calm_s < CALM_S + 2.0
