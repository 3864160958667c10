"""A partition that nobody writes to, beside one that is written to all the time, over a change of leader."""

import asyncio
from pathlib import Path

import pytest
from regnum_client import Admin, Consumer, Producer, ProducerSettings, TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_local.demo.workload import read_everything
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_testing.under_load import until

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(240)]

CLOCK = SystemClock()
BUSY, QUIET = TopicPartition("t", 0), TopicPartition("t", 1)
QUIET_RECORDS = 20


class Traffic:
    """Writes to the busy partition without a pause that would let a fetch come back empty."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.acknowledged = 0

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            delivery = await self._producer.send(BUSY.topic, b"busy", partition=BUSY.partition)
            delivery.add_done_callback(self._told)
            # Traffic, not a wait.
            await CLOCK.sleep(0.005)

    def _told(self, delivery: "asyncio.Future[object]") -> None:
        if not delivery.cancelled() and delivery.exception() is None:
            self.acknowledged += 1

    async def goes_on_for(self, records: int) -> None:
        """Return when so many more are acknowledged."""
        wanted = self.acknowledged + records

        async def reached() -> bool:
            return self.acknowledged >= wanted

        await until(reached, within_s=60.0)


async def test_what_was_acknowledged_is_seen_at_once_by_whoever_asks_the_only_replica_left(tmp_path: Path) -> None:
    """One fetch session carries both, and its answers are never empty: the watermark of the quiet one rides along.

    The replica that is left cannot move the high watermark itself, below min.insync.replicas: what it does not know to
    be committed stays invisible, and its end of the log is too low.
    """
    both = {BUSY.partition: (1, 2, 3), QUIET.partition: (1, 2, 3)}
    async with (
        LocalCluster(tmp_path, brokers=3, elections=1, metadata=1, report=lambda _text: None) as cluster,
        Admin(cluster.bootstrap) as admin,
        # The leader alone answers for these, so the stream goes on whatever becomes of the followers.
        Producer(cluster.bootstrap, settings=ProducerSettings(acks=1, linger_ms=0)) as busy,
        Producer(cluster.bootstrap) as quiet,
    ):
        await admin.create_topic(BUSY.topic, partitions=0, assignment=both)
        traffic = Traffic(busy)
        writing = asyncio.create_task(traffic.run(), name="traffic")
        try:
            await traffic.goes_on_for(200)
            # In one batch: the next one would bring the watermark of the one before along.
            values = [str(number).encode() for number in range(QUIET_RECORDS)]
            await asyncio.gather(*[await quiet.send(QUIET.topic, value, partition=QUIET.partition) for value in values])
            await traffic.goes_on_for(200)
            await asyncio.gather(cluster.kill("broker-1"), cluster.kill("broker-2"))

            async def the_third_leads() -> bool:
                try:
                    topic = await admin.describe_topic(QUIET.topic)
                except RegnumError:
                    return False
                return topic.partitions[QUIET.partition].leader == 3

            await until(the_third_leads, within_s=60.0)
            async with Consumer(cluster.bootstrap) as consumer:
                assert (await consumer.end_offsets([QUIET]))[QUIET] == QUIET_RECORDS
            logs = await read_everything(cluster.bootstrap, [QUIET])
        finally:
            writing.cancel()
            await asyncio.wait({writing})
    assert [number for _, number in logs[QUIET]] == list(range(QUIET_RECORDS))
