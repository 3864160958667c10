"""A process says in its spans which cluster it is of, as soon as the store says it."""

import asyncio

from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_model import paths
from regnum_service.traces import CLUSTER_ID_INTERVAL_S, name_cluster
from regnum_testing.clock import FakeClock
from regnum_testing.span_recorder import recorded_spans
from regnum_testing.waiting import within


async def test_it_waits_until_the_first_controller_has_made_one() -> None:
    store, clock = MemoryStore(MemoryServer()), FakeClock()
    with recorded_spans() as recorder:
        naming = asyncio.create_task(name_cluster(store, clock))
        await clock.advance(CLUSTER_ID_INTERVAL_S / 2)
        assert recorder.clusters == []
        await store.create(paths.CLUSTER_ID, b"C", make_parents=True)
        await clock.advance(CLUSTER_ID_INTERVAL_S)
        await within(naming)
        assert recorder.clusters == ["C"]


async def test_a_session_that_is_over_leaves_it_to_the_next() -> None:
    server = MemoryServer()
    store = MemoryStore(server)
    server.expire(store.session_id)
    with recorded_spans() as recorder:
        await within(name_cluster(store, FakeClock()))
    assert recorder.clusters == []
