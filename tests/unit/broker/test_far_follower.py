"""A follower that is far away: records go to it without waiting for what it says of earlier ones."""

import asyncio
from pathlib import Path

from regnum_model.ids import BrokerId
from regnum_model.nodes import Address
from regnum_testing.batches import batch_of, values_of
from regnum_testing.broker_world import BrokerWorld
from regnum_testing.far_away import FarAway
from regnum_testing.waiting import until, within

RECORDS = 20


async def test_records_that_come_one_after_another_do_not_wait_for_one_anothers_acknowledgements(
    tmp_path: Path,
) -> None:
    """With an answer for each request, half of them waited for two round trips."""
    world = BrokerWorld(tmp_path)
    await world.begin()
    await world.start(1, 2, 3)
    leader = Address.parse(world.brokers[BrokerId(1)].settings.internal_listen)
    try:
        async with FarAway(upstream_port=leader.port, delay_s=0) as far:
            world.ways[3, 1] = Address(host="127.0.0.1", port=far.port)
            await world.elect(1, [1, 2, 3], min_insync=2)
            await within(world.produce(1, batch_of(b"first")))
            log = world.brokers[BrokerId(3)].partition().log
            far.takes_requests.clear()
            sending: list[asyncio.Task[int]] = []

            async def produced(number: int) -> int:
                return (await world.produce(1, batch_of(b"%d" % number))).error_code

            for number in range(RECORDS):
                sending.append(asyncio.create_task(produced(number)))
                await until(lambda: log.log_end_offset == len(sending) + 1, what=f"record {number} at the follower")
            assert not any(one.done() for one in sending)
            far.takes_requests.set()
            assert await within(asyncio.gather(*sending)) == [0] * RECORDS
            stored = list(values_of(log.read(0, bytes_max=1 << 20)))
            assert stored == [b"first", *(b"%d" % number for number in range(RECORDS))]
            assert stored == list(values_of(world.brokers[BrokerId(1)].partition().log.read(0, bytes_max=1 << 20)))
    finally:
        await world.close()
