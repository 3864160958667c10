"""A store whose calls are timed does what the store does."""

import inspect

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import BadVersion, NodeExists, NoNode, SessionExpired
from regnum_coordination.forwarding import ForwardingStore
from regnum_coordination.port import Check, Create, Refused, Set, Store, Written
from regnum_service.measured_store import MeasuredStore
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.clock import FakeClock


def outcomes(metrics: Metrics) -> dict[tuple[str, ...], int]:
    """Calls by operation and outcome."""
    (reading,) = [one for one in metrics.read() if one.instrument is instruments.STORE_CALLS]
    return {labels: sum(one.counts) for labels, one in reading.histograms}


async def test_calls_are_counted_by_operation_and_outcome_and_answered_as_before() -> None:
    server, metrics = MemoryServer(), Metrics()
    store = MeasuredStore(MemoryStore(server), FakeClock(), metrics)
    await store.create("/a", b"1")
    with pytest.raises(NodeExists):
        await store.create("/a", b"2")
    assert (await store.get("/a")).data == b"1"
    with pytest.raises(NoNode):
        await store.get("/b")
    assert [node and node.data for node in await store.get_many(["/a", "/b"])] == [b"1", None]
    with pytest.raises(BadVersion):
        await store.set("/a", b"3", version=7)
    await store.set("/a", b"3", version=0)
    assert (await store.exists("/a")) is not None
    assert "a" in (await store.children("/")).names
    await store.multi([Check("/a"), Create("/c", b"")])
    written, refused = await store.write_batch([(Set("/a", b"4", 1),), (Set("/a", b"5", 77),)])
    assert isinstance(written, Written)
    assert isinstance(refused, Refused)
    await store.delete("/c", version=None)
    assert outcomes(metrics) == {
        ("create", "ok"): 1,
        ("create", "NodeExists"): 1,
        ("get", "ok"): 1,
        ("get", "NoNode"): 1,
        ("get_many", "ok"): 1,
        ("set", "BadVersion"): 1,
        ("set", "ok"): 1,
        ("exists", "ok"): 1,
        ("children", "ok"): 1,
        ("multi", "ok"): 1,
        ("write_batch", "ok"): 1,
        ("delete", "ok"): 1,
    }
    server.expire(store.session_id)
    with pytest.raises(SessionExpired):
        await store.get("/a")
    assert outcomes(metrics)["get", "SessionExpired"] == 1
    await store.wait_lost()


async def test_the_time_is_that_of_the_call() -> None:
    clock, metrics = FakeClock(), Metrics()

    class Slow(MemoryStore):
        """A store whose answers take a quarter of a second."""

        async def get_many(self, paths, *, current=False):  # type: ignore[no-untyped-def]
            clock.skip(0.25)
            return await super().get_many(paths, current=current)

    await MeasuredStore(Slow(MemoryServer()), clock, metrics).get_many(["/a"])
    (reading,) = [one for one in metrics.read() if one.instrument is instruments.STORE_CALLS]
    assert reading.histograms[0][1].total == pytest.approx(0.25)


def test_every_method_of_the_port_is_passed_on_and_none_is_inherited() -> None:
    """A method with a body in the port would otherwise bypass what a driver makes of it."""
    public = {name for name, _ in inspect.getmembers(Store) if not name.startswith("_")}
    assert public <= set(vars(ForwardingStore))
