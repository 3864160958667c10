"""Clients that are asked to wait: they wait as long as they are told, lose nothing, and send the same again."""

from collections.abc import Callable

import pytest
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_client import Consumer, Producer, ProducerSettings
from regnum_client.cluster.throttles import SPREAD, THROTTLE_S_MAX, Throttles
from regnum_client.errors import DeliveryTimeoutError
from regnum_model.ids import BrokerId
from regnum_records.header import iterate
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import within

CLOCK = SystemClock()
WAIT_S = 0.15
ONE, TWO = BrokerId(1), BrokerId(2)


def throttled(retry_ms: int | None = round(WAIT_S * 1000)) -> RegnumError:
    return RegnumError(errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, "come again", retry_after_ms=retry_ms)


class Requests:
    """Produce requests as they come; some are refused."""

    def __init__(self, refuses: Callable[[int], bool]) -> None:
        self.refuses = refuses
        self.at_s: list[float] = []
        self.sequences: list[int] = []

    async def __call__(self, _broker: object, request: log_pb2.ProduceRequest) -> None:
        self.at_s.append(CLOCK.monotonic())
        self.sequences.extend(
            header.base_sequence for part in request.partitions for _, header in iterate(part.record_batch)
        )
        if self.refuses(len(self.at_s)):
            raise throttled()


async def test_a_producer_waits_as_told_and_sends_the_same_batch_with_the_same_numbers() -> None:
    async with FakeCluster() as cluster:
        cluster.create("orders", partitions=1)
        cluster.before_produce = requests = Requests(lambda count: count in (2, 3))
        async with Producer(cluster.bootstrap, settings=ProducerSettings(linger_ms=0)) as producer:
            await within(await producer.send("orders", b"0", partition=0))
            await within(await producer.send("orders", b"1", partition=0))
            assert producer.batches_throttled == 2
            assert 2 * WAIT_S <= producer.throttle_time_s <= 2 * WAIT_S * (1 + SPREAD) + 1e-9
        assert requests.sequences == [0, 1, 1, 1]
        assert requests.at_s[2] - requests.at_s[1] >= WAIT_S
        assert requests.at_s[3] - requests.at_s[2] >= WAIT_S
        assert cluster.values("orders", 0) == [b"0", b"1"]


async def test_batches_behind_a_throttled_one_keep_their_order() -> None:
    async with FakeCluster() as cluster:
        cluster.create("orders", partitions=1)
        cluster.before_produce = Requests(lambda count: count % 3 == 2)
        settings = ProducerSettings(linger_ms=0, batch_bytes=100)
        async with Producer(cluster.bootstrap, settings=settings) as producer:
            sent = [await producer.send("orders", b"%03d" % number, partition=0) for number in range(30)]
            for future in sent:
                await within(future)
        assert cluster.values("orders", 0) == [b"%03d" % number for number in range(30)]


async def test_a_batch_that_is_throttled_for_too_long_fails_by_its_time_and_was_not_written() -> None:
    async with FakeCluster() as cluster:
        cluster.create("orders", partitions=1)
        cluster.before_produce = requests = Requests(lambda _: True)
        settings = ProducerSettings(linger_ms=0, delivery_timeout_s=1.0)
        async with Producer(cluster.bootstrap, settings=settings) as producer:
            sent = await producer.send("orders", b"0", partition=0)
            with pytest.raises(DeliveryTimeoutError) as caught:
                await within(sent)
        assert "come again" in str(caught.value)
        assert not caught.value.maybe_written
        assert len(requests.at_s) <= 1.2 / WAIT_S
        assert cluster.values("orders", 0) == []


async def test_the_throttle_time_of_an_answer_holds_the_next_request_back() -> None:
    async with FakeCluster(brokers=1) as cluster:
        cluster.create("orders", partitions=1)
        cluster.before_produce = requests = Requests(lambda _: False)
        cluster.brokers[1].throttles.append(300)
        async with Producer(cluster.bootstrap, settings=ProducerSettings(linger_ms=0)) as producer:
            await within(await producer.send("orders", b"0", partition=0))
            await within(await producer.send("orders", b"1", partition=0))
            assert producer.batches_throttled == 0
            assert producer.throttle_time_s == pytest.approx(0.3)
        assert requests.at_s[1] - requests.at_s[0] >= 0.3


async def test_a_consumer_waits_as_told_and_skips_nothing() -> None:
    async with FakeCluster(brokers=1) as cluster:
        cluster.create("orders", partitions=1)
        async with Producer(cluster.bootstrap) as producer:
            for number in range(3):
                await within(await producer.send("orders", b"%d" % number, partition=0))
        refusals = cluster.brokers[1].fetch_refusals
        refusals.extend([throttled(), throttled()])
        began_s = CLOCK.monotonic()
        async with Consumer(cluster.bootstrap) as consumer:
            await consumer.assign("orders")
            values = [(await within(anext(consumer))).value for _ in range(3)]
        assert values == [b"0", b"1", b"2"]
        assert CLOCK.monotonic() - began_s >= 2 * WAIT_S
        assert not refusals


@pytest.mark.parametrize("told_ms", [None, 0, -5])
def test_a_refusal_without_a_time_is_waited_for_a_little(told_ms: int | None) -> None:
    throttles = Throttles()
    throttles.refused(ONE, throttled(told_ms), now_s=10.0, chance=0.0)
    assert throttles.until_s(ONE) == pytest.approx(10.05)
    assert throttles.until_s(TWO) == float("-inf")


def test_other_errors_are_none_of_its_business() -> None:
    throttles = Throttles()
    error = RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "late", retry_after_ms=500)
    throttles.refused(ONE, error, now_s=10.0, chance=0.0)
    assert throttles.until_s(ONE) == float("-inf")


def test_a_shorter_time_does_not_shorten_a_longer_one_and_none_is_for_ever() -> None:
    throttles = Throttles()
    throttles.answered(ONE, 5_000, now_s=10.0)
    throttles.answered(ONE, 1_000, now_s=10.0)
    throttles.answered(ONE, -7, now_s=10.0)
    assert throttles.until_s(ONE) == 15.0
    assert throttles.endings_s(10.0) == [15.0]
    assert throttles.endings_s(15.0) == []
    throttles.answered(ONE, 2**31 - 1, now_s=10.0)
    assert throttles.until_s(ONE) == 10.0 + THROTTLE_S_MAX
