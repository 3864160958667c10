"""A broker's file system loses power under load: really, on ext4, with what its journal has afterwards.

The same in simulation, on a disk that forgets, by the thousand: ``python -m regnum_testing.simulation``.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from regnum_client import Admin, Producer, TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_local.demo.workload import read_everything
from regnum_testing.losing_filesystem import (
    WITH_LOG,
    WITHOUT_LOG,
    CannotMountError,
    LosingFilesystem,
    losing_filesystem,
)
from regnum_testing.under_load import until

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(300)]

RECORDS = 400


async def write(cluster: LocalCluster, numbers: range) -> None:
    async with Producer(cluster.bootstrap) as producer:
        sent = [await producer.send("t", b"%d" % number, partition=0) for number in numbers]
        for delivery in sent:
            await delivery


def log_id_of(broker: Path) -> str:
    return str(json.loads((broker / "meta.json").read_text(encoding="utf-8"))["log_id"])


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[LosingFilesystem]:
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        with losing_filesystem(disk) as mounted:
            yield mounted
    except CannotMountError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("flushes", [WITH_LOG, WITHOUT_LOG])
async def test_what_was_acknowledged_survives_and_what_lost_it_leads_nothing_alone(
    tmp_path: Path, filesystem: LosingFilesystem, flushes: int
) -> None:
    place = tmp_path / "cluster"
    place.mkdir()
    (place / "broker-1").symlink_to(filesystem.folder)
    async with (
        LocalCluster(place, brokers=3, elections=1, metadata=1, report=lambda _text: None) as cluster,
        Admin(cluster.bootstrap) as admin,
    ):

        async def isr_is(*ids: int) -> None:
            async def is_it() -> bool:
                return set((await admin.describe_topic("t")).partitions[0].isr) == set(ids)

            await until(is_it, within_s=90.0)

        await admin.create_topic("t", partitions=0, assignment={0: [1, 2, 3]})
        await isr_is(1, 2, 3)
        await write(cluster, range(RECORDS))
        before = log_id_of(place / "broker-1")
        filesystem.lose_power(flushes=flushes)
        # The broker learns by its next write that its disk is gone, and ends; the others acknowledge.
        await write(cluster, range(RECORDS, 2 * RECORDS))
        await isr_is(2, 3)
        await cluster.kill("broker-1")
        filesystem.mount_again()
        await cluster.kill("broker-2")
        await cluster.kill("broker-3")
        await cluster.restart("broker-1")
        await cluster.wait_healthy("broker-1")
        assert log_id_of(place / "broker-1") != before
        assert (await admin.describe_topic("t")).partitions[0].leader == -1
        for name in ("broker-2", "broker-3"):
            await cluster.restart(name)
            await cluster.wait_healthy(name)
        await isr_is(1, 2, 3)
        key = TopicPartition("t", 0)
        logs = await read_everything(cluster.bootstrap, [key])
        assert [number for _, number in logs[key]] == list(range(2 * RECORDS))
