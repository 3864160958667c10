"""The event log in processes: why a leader is where it is, told by whoever is controller by then."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from regnum_client import Admin, ClusterEvent, EventCause, EventFilter, EventKind
from regnum_local.cluster import LocalCluster
from regnum_testing.waiting import DEADLINE_S, eventually

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

TOPIC = "explained"
COMMAND = "import sys; from regnum_client.command import main; sys.exit(main())"


@pytest.mark.full
async def test_the_next_controller_tells_what_the_killed_one_decided(cluster: LocalCluster) -> None:
    decided, told = await _told_by_the_next(cluster)
    assert decided in told, "word for word"


@pytest.mark.full
@pytest.mark.timeout(240)
async def test_on_zookeeper_the_next_controller_tells_it_too_and_explain_shows_it(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, coordination="zookeeper", report=lambda _line: None) as cluster:
        decided, told = await _told_by_the_next(cluster)
        assert decided in told, "word for word"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", COMMAND, "explain", f"{TOPIC}/0", "-o", "json"),
            *("--bootstrap", ",".join(map(str, cluster.bootstrap)), "--timeout", "20"),
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(DEADLINE_S):
            out, _ = await process.communicate()
        assert process.returncode == 0
        shown = json.loads(out)
        assert shown["events"]
        assert any("decided it in controller epoch" in sentence for sentence in shown["why"]), shown["why"]


async def _told_by_the_next(cluster: LocalCluster) -> tuple[ClusterEvent, Sequence[ClusterEvent]]:
    """What the killed controller decided, and what its successor tells of that partition."""
    async with Admin(cluster.bootstrap, timeout_s=DEADLINE_S) as admin:
        await admin.create_topic(TOPIC, partitions=3, replication_factor=3)
        chosen = EventFilter(topic=TOPIC, partition=0)
        before = (await admin.describe_topic(TOPIC)).partitions[0]
        reigning = await admin.describe_cluster()
        assert reigning.controller is not None
        old = reigning.controller.id
        await cluster.kill(f"broker-{before.leader}")

        async def moved() -> ClusterEvent | None:
            for event in await admin.last_events(chosen, limit=10):
                if event.before is not None and event.before.leader == before.leader and event.after is not None:
                    return event if event.after.leader != before.leader else None
            return None

        async def has_moved() -> bool:
            return await moved() is not None

        await eventually(has_moved, what="the death is written down")
        decided = await moved()
        assert decided is not None
        assert (decided.controller, decided.kind) == (old, EventKind.LEADER_ELECTED)
        assert decided.cause in {EventCause.LIFELINE_BROKEN, EventCause.REGISTRATION_CHANGED, EventCause.SILENCE}
        assert decided.after is not None
        assert decided.after.leader_epoch > before.leader_epoch
        (fence,) = await admin.last_events(
            EventFilter(broker=before.leader, kinds=frozenset({EventKind.BROKER_FENCED, EventKind.BROKER_GONE})),
            limit=1,
        )
        assert fence.broker == before.leader

        # Standbys are a moment behind; a killed controller's last moment nobody else has.
        newest = decided.position
        page = await admin.describe_events(limit=1)
        assert page.on_disk
        assert page.events[0].position >= newest
        await _standbys_have(cluster, old)
        await cluster.kill(f"election-{old}")

        async def succeeded() -> bool:
            (last,) = await admin.last_events(EventFilter(kinds=frozenset({EventKind.CONTROLLER_ELECTED})), limit=1)
            return last.controller != old

        await eventually(succeeded, what="another one reigns, and says so")
        # Whose picture was a moment behind its log finds the same change in the store, and says so besides.
        told = await admin.last_events(chosen, limit=10)

        # It goes on: a new reign, larger epochs, and the one that was killed comes back as a standby.
        await cluster.restart(f"election-{old}")
        await cluster.restart(f"broker-{before.leader}")
        await cluster.wait_healthy(f"broker-{before.leader}")
        registered = EventFilter(broker=before.leader, kinds=frozenset({EventKind.BROKER_REGISTERED}))

        async def is_back() -> bool:
            found = await admin.last_events(registered, limit=1)
            return bool(found) and found[0].position > decided.position

        await eventually(is_back, what="the registration is written down by the new controller")
        return decided, told


async def _standbys_have(cluster: LocalCluster, controller: int) -> None:
    """Their logs are as long as the controller's: nobody else is asked what they hold."""
    folders = {id: cluster.data_dir.glob(f"**/election-{id}-events") for id in (1, 2, 3)}
    found = {id: next(iter(paths)) for id, paths in folders.items()}

    async def have() -> bool:
        sizes = {id: sum(file.stat().st_size for file in folder.rglob("*.events")) for id, folder in found.items()}
        return all(size >= sizes[controller] for size in sizes.values())

    await eventually(have, what="standbys have followed")
