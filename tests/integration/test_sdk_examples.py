"""The SDK as its docstrings show it, and as a service without asyncio uses it, against real brokers."""

import asyncio
from pathlib import Path

import pytest
from regnum_client import ConsumerSettings, OffsetOutOfRangeError, ProducerSettings, ResetPolicy, TopicPartition
from regnum_client.commands.logs.inspection import Totals, inspect_file
from regnum_client.sync import Admin, Consumer, Producer
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Role
from regnum_testing.sdk_examples import run_examples
from regnum_testing.sync_service import echo
from regnum_testing.waiting import DEADLINE_S

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SHORT = TopicPartition("short", 0)


def fall_off(bootstrap: str) -> tuple[int, list[int], list[int]]:
    """What three consumers see that want offset 5 of a log that begins at 60 and ends at 100.

    The offset that one is told of; offsets that one reads that goes on at the beginning; those of one that goes on at
    the end, after one more record.
    """
    with Admin(bootstrap) as admin, Producer(bootstrap, settings=ProducerSettings(batch_bytes=100)) as producer:
        admin.create_topic("short")
        for number in range(100):
            producer.send("short", b"%d" % number)
        producer.flush(timeout_s=DEADLINE_S)
        admin.delete_records({SHORT: 60})
        with Consumer(bootstrap) as consumer:
            consumer.assign("short", start=5)
            with pytest.raises(OffsetOutOfRangeError) as caught:
                consumer.read(timeout_s=DEADLINE_S)
        with Consumer(bootstrap, settings=ConsumerSettings(reset=ResetPolicy.EARLIEST)) as consumer:
            consumer.assign("short", start=5)
            from_the_beginning = [next(consumer).offset for _ in range(40)]
        with Consumer(bootstrap, settings=ConsumerSettings(reset=ResetPolicy.LATEST)) as consumer:
            consumer.assign("short", start=5)
            while consumer.position(SHORT) == 5:
                consumer.read(timeout_s=0.05)
            producer.send("short", b"100")
            from_the_end = [next(consumer).offset]
    return caught.value.offset, from_the_beginning, from_the_end


def records_in(segment: Path) -> int:
    """What `regnum logs inspect --records` finds in a segment that a broker wrote; none of it may be damaged."""
    totals = Totals(file=str(segment), size_bytes=segment.stat().st_size)
    rows = list(inspect_file(segment, with_records=True, totals=totals))
    assert totals.problems == 0, totals.sentence()
    assert totals.records == sum(row["kind"] == "record" for row in rows)
    return totals.records


async def test_examples_a_service_without_asyncio_and_a_log_that_begins_later(tmp_path: Path) -> None:
    """One cluster for all: to start it takes longer than the rest."""
    at_once = {Role.BROKER: ("--group-initial-rebalance-delay-ms", "0")}
    async with LocalCluster(
        tmp_path, brokers=1, elections=1, metadata=1, report=lambda _text: None, extra=at_once
    ) as cluster:
        bootstrap = ",".join(cluster.bootstrap)
        said = await asyncio.to_thread(run_examples, bootstrap)
        assert not said, "".join(said)
        lines = [f"line {number}" for number in range(1000)]
        assert await asyncio.to_thread(echo, bootstrap, "echoed", lines) == lines
        assert await asyncio.to_thread(fall_off, bootstrap) == (5, list(range(60, 100)), [100])
    found = [records_in(segment) for segment in tmp_path.glob("broker-1/replicas/*/*.log")]
    assert 101 in found, "those that were deleted are in the file still"
