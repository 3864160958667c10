"""Steps of a producer at which a test may have it wait."""

from pathlib import Path

import pytest
from regnum_client import Producer, ProducerSettings
from regnum_service.failpoints.trigger import FailpointTrigger
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import within


class Steps:
    """What a producer did, and where it waited."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.told: list[str] = []
        self.trigger = FailpointTrigger(file, sleep=self._sleep)

    async def _sleep(self, _seconds: float) -> None:
        self.told.append("waited")

    async def _produce(self, _broker: object, _request: object) -> None:
        self.told.append("produced")

    async def run(self, failpoint: str) -> list[str]:
        """Two records, one after the other, to a cluster of its own."""
        self.file.write_text(f"action=delay ms=50 {failpoint}")
        async with FakeCluster() as cluster:
            cluster.create("orders", partitions=1)
            cluster.before_produce = self._produce
            settings = ProducerSettings(linger_ms=0)
            async with Producer(cluster.bootstrap, settings=settings, failpoints=self.trigger) as producer:
                self.told.append("started")
                for _ in range(2):
                    await within(await producer.send("orders", b"a", partition=0))
                    self.told.append("acknowledged")
        return self.told


@pytest.fixture
def steps(tmp_path: Path) -> Steps:
    return Steps(tmp_path / "failpoint")


ONE = ["produced", "acknowledged"]


@pytest.mark.parametrize(
    ("failpoint", "told"),
    [
        ("when=before step=learn", ["waited", "started", *ONE, *ONE]),
        ("when=before step=connect times=all", ["started", "waited", *ONE, *ONE]),
        ("when=before step=send times=all topic=orders", ["started", "waited", *ONE, "waited", *ONE]),
        ("when=before step=send n=2", ["started", *ONE, "waited", *ONE]),
        ("when=after step=send", ["started", "produced", "waited", "acknowledged", *ONE]),
        ("when=before step=send times=all topic=other", ["started", *ONE, *ONE]),
    ],
)
async def test_a_producer_waits_where_it_is_told_to(steps: Steps, failpoint: str, told: list[str]) -> None:
    assert await steps.run(failpoint) == told
