"""Safety rule S22 with a real ZooKeeper: thousands of answers and watches come from kazoo's thread at once."""

import asyncio
from contextlib import aclosing

import pytest
from regnum_coordination import open_store
from regnum_coordination.port import Check, Create, Refused, Set, Written
from regnum_testing.held_loop import HeldLoop, run_measured
from regnum_testing.waiting import within
from regnum_testing.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.alone

NODES = 6000


def test_many_answers_do_not_hold_the_loop(zookeeper_server: ZooKeeperServer) -> None:
    async def scenario(held: HeldLoop) -> None:
        url = f"zookeeper://{zookeeper_server.endpoint}/held"
        store = await open_store(url, session_timeout_s=30.0, operation_timeout_s=30.0)
        await store.create("/fence", b"")
        await store.create("/d", b"")
        paths = [f"/d/{number}" for number in range(NODES)]
        with held.measuring("creations"):
            created = await store.write_batch([(Create(path, b"." * 200),) for path in paths])
        assert all(isinstance(outcome, Written) for outcome in created)
        for path in paths[::50]:
            await store.set(path, b"moved", version=0)
        with held.measuring("conflicts"):
            changed = await store.write_batch(
                [(Check("/d", 0), Set(path, b"." * 200, 0)) for path in paths], fence=Check("/fence", 0)
            )
        refused = {index for index, outcome in enumerate(changed) if isinstance(outcome, Refused)}
        assert refused == set(range(0, NODES, 50))
        with held.measuring("reads"):
            nodes = await store.get_many(paths, current=True)
        assert len(nodes) == NODES
        watches = [store.watch_node(path) for path in paths[:400]]
        await within(asyncio.gather(*(anext(watch) for watch in watches)), 60)
        with held.measuring("watches"):
            await store.write_batch([(Set(path, b"", 1),) for path in paths[:400]])
            await within(asyncio.gather(*(anext(watch) for watch in watches)), 60)
        for watch in watches:
            async with aclosing(watch):
                pass
        await store.close()

    run_measured(scenario).assert_free()
