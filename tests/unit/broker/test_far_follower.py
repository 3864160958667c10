"""A follower that is far away: acknowledgements wait for the way there and back, and for no other record's."""

import asyncio
import time
from pathlib import Path
from statistics import median

import pytest
from regnum_model.ids import BrokerId
from regnum_model.nodes import Address
from regnum_testing.batches import batch_of, values_of
from regnum_testing.broker_world import BrokerWorld
from regnum_testing.far_away import FarAway
from regnum_testing.waiting import within

DELAY_S = 0.2
EVERY_S = 0.02
RECORDS = 60


@pytest.mark.alone
async def test_records_that_come_one_after_another_do_not_wait_for_one_anothers_acknowledgements(
    tmp_path: Path,
) -> None:
    """With an answer for each request, half of them waited for two round trips."""
    world = BrokerWorld(tmp_path)
    await world.begin()
    await world.start(1, 2, 3)
    leader = Address.parse(world.brokers[BrokerId(1)].settings.internal_listen)
    try:
        async with FarAway(upstream_port=leader.port, delay_s=DELAY_S) as far:
            world.ways[3, 1] = Address(host="127.0.0.1", port=far.port)
            await world.elect(1, [1, 2, 3], min_insync=2)
            await within(world.produce(1, batch_of(b"first")))

            async def produced(number: int) -> float:
                began_s = time.monotonic()
                result = await world.produce(1, batch_of(b"%d" % number))
                assert not result.error_code
                return time.monotonic() - began_s

            alone_s = min([await within(produced(number)) for number in (0, 1)])
            assert alone_s >= 2 * DELAY_S
            sending: list[asyncio.Task[float]] = []
            for number in range(2, RECORDS):
                sending.append(asyncio.create_task(produced(number)))
                await asyncio.sleep(EVERY_S)
            took_s = await within(asyncio.gather(*sending))
            assert median(took_s) <= 1.25 * alone_s
            log = world.brokers[BrokerId(3)].partition().log
            stored = list(values_of(log.read(0, bytes_max=1 << 20)))
            assert stored == list(values_of(world.brokers[BrokerId(1)].partition().log.read(0, bytes_max=1 << 20)))
            assert len(stored) == RECORDS + 1
    finally:
        await world.close()
