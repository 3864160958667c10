"""Steps of a broker at which a test may have it wait: each is reached when it is taken, and only with a file."""

from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
from regnum_broker.failpoints.serving import FailpointInterceptor
from regnum_broker.failpoints.storage import FailpointStorage
from regnum_service.clock import SystemClock
from regnum_service.failpoints.trigger import FailpointTrigger
from regnum_telemetry import conventions
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import BrokerWorld
from regnum_testing.log_directories import ReopenedDirectory
from regnum_testing.waiting import eventually


class Details(NamedTuple):
    """grpc.HandlerCallDetails, as far as it is looked at."""

    method: str
    invocation_metadata: tuple[()] = ()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "failpoint"


async def test_each_step_is_reached_when_it_is_taken(tmp_path: Path, file: Path) -> None:
    world = BrokerWorld(tmp_path, more={"failpoint-file": file})
    await world.begin()
    await world.start(1, 2)

    async def reached() -> bool:
        return not file.exists()

    async def elect() -> None:
        await world.elect(1, [1, 2], epoch=elected.pop(0))

    async def produce() -> None:
        await world.produce(1, batch_of(b"a"))

    async def show() -> None:
        await world.show(1)

    elected = [0, 1, 2]
    try:
        await elect()
        for point, take in (
            ("receive", elect),
            ("journal", elect),
            ("append", produce),
            ("replicate topic=t", produce),
            ("metadata", show),
        ):
            file.write_text(f"action=delay ms=1 when=before step={point}")
            await take()
            await eventually(reached, what=point)
        file.write_text("action=delay ms=1 when=before step=replicate topic=other")
        await produce()
        assert file.exists(), "records of another topic"
    finally:
        file.unlink(missing_ok=True)
        await world.close()


async def test_only_what_producers_send_reaches_the_step_of_an_append(tmp_path: Path, file: Path) -> None:
    directory = ReopenedDirectory(tmp_path / "log").open()
    storage = FailpointStorage(directory, FailpointTrigger(file), clock=SystemClock())
    storage.start()
    file.write_text("action=delay ms=1 when=before step=append")
    try:
        await (await storage.write_later(lambda: None, size_bytes=5, replicated=True))
        await (await storage.write_later(lambda: None))
        assert file.exists()
        await (await storage.write_later(lambda: None, size_bytes=5))
        assert not file.exists()
    finally:
        await storage.close(clean=True)


async def test_an_order_waits_before_all_that_a_listener_does_with_it(file: Path) -> None:
    told: list[str] = []

    async def sleep(_seconds: float) -> None:
        told.append("waited")

    async def go_on(details: grpc.HandlerCallDetails) -> None:
        told.append(details.method)

    interceptor = FailpointInterceptor(FailpointTrigger(file, sleep=sleep))
    file.write_text("action=delay ms=200 when=before step=receive")
    for method in ("/other", f"/{conventions.LEADER_AND_ISR}"):
        await interceptor.intercept_service(go_on, Details(method))
    assert told == ["/other", "waited", f"/{conventions.LEADER_AND_ISR}"]


async def test_without_a_file_nothing_is_wrapped(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path)
    await world.begin()
    await world.start(1)
    storage = world.brokers[1].broker._storage  # type: ignore[index]
    await world.close()
    assert storage is not None
    assert not isinstance(storage, FailpointStorage)
