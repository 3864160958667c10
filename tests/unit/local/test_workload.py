"""The reader beside the load has time for what was acknowledged, and not for ever."""

import asyncio
from typing import Any

import pytest
from regnum_client import TopicPartition
from regnum_client.records import ConsumedRecord, RecordMetadata
from regnum_local.demo.workload import READ_S, Load, decode_number
from regnum_testing.clock import SkippingClock
from regnum_testing.suite.harm import HarmedError
from regnum_testing.under_load import kept
from regnum_testing.waiting import until, within

PLACE = TopicPartition("t", 0)


class Log:
    """One partition, as a producer and as a consumer of it."""

    def __init__(self) -> None:
        self.records: list[ConsumedRecord] = []
        self.hidden = True
        """Whether reads find nothing."""
        self.given = 0
        self.looks = 0
        """Reads that found nothing."""

    async def send(self, topic: str, value: bytes, *, partition: int) -> "asyncio.Future[RecordMetadata]":
        """Append and acknowledge."""
        offset = len(self.records)
        self.records.append(ConsumedRecord(topic, partition, offset, 0, None, value, ()))
        delivery: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        delivery.set_result(RecordMetadata(topic, partition, offset, 0))
        return delivery

    async def assign(self, topic: str, **_named: object) -> None:
        """There is no other."""

    async def read(self, **_named: object) -> list[ConsumedRecord]:
        """One more, if there is one to be seen."""
        await asyncio.sleep(0)
        if self.hidden or self.given == len(self.records):
            self.looks += 1
            return []
        self.given += 1
        return [self.records[self.given - 1]]


async def loaded(log: Any, clock: SkippingClock) -> Load:
    load = Load(producer=log, consumer=log, partitions=[PLACE], interval_s=0.0, clock=clock)
    await load.start()
    await until(lambda: load.acknowledged > 10)
    return load


async def test_the_reader_goes_on_until_it_has_all_that_was_acknowledged() -> None:
    log = Log()
    load = await loaded(log, SkippingClock())
    finishing = asyncio.create_task(load.finish())
    looks = log.looks
    await until(lambda: finishing.done() or log.looks > looks + 5)
    log.hidden = False
    await within(finishing)
    assert load.read == load.acknowledged
    found = [(one.offset, decode_number(one.value)) for one in log.records]
    assert load.consumed[PLACE] == found
    assert kept(load, {PLACE: found}).acknowledged == load.acknowledged
    with pytest.raises(HarmedError, match=f"lost=.{found[-1][1]},"):
        kept(load, {PLACE: found[:-1]})


async def test_what_it_is_never_given_is_left_to_the_judge() -> None:
    clock = SkippingClock()
    load = await loaded(Log(), clock)
    finishing = asyncio.create_task(load.finish())

    def ended() -> bool:
        clock.skipped_s += READ_S
        return finishing.done()

    await until(ended)
    await finishing
    log = [(one.offset, one.number) for one in load.histories[PLACE].acknowledged]
    verdict, reader = load.judged({PLACE: log})
    assert verdict.clean
    assert len(reader.lost) == load.acknowledged > 10
    with pytest.raises(HarmedError, match="the reader: "):
        kept(load, {PLACE: log})
