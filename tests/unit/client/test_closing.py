"""Closing a client: it ends, and all that waits for it, whoever is cancelled meanwhile and however often."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from regnum.broker.v1 import log_pb2
from regnum_client import Admin, BackgroundTaskError, ClientClosedError, Consumer, ConsumerSettings, Producer
from regnum_model.nodes import Address
from regnum_service.channel import Channels
from regnum_service.errors import RegnumError
from regnum_testing.fake_broker import FakeBroker
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import until, within


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """One that acknowledges nothing."""
    held = asyncio.Event()

    async def hold(_broker: FakeBroker, _request: log_pb2.ProduceRequest) -> None:
        await held.wait()

    async with FakeCluster(brokers=1) as running:
        running.create("t")
        running.before_produce = hold
        yield running
        held.set()


async def cancelled_at_every_await(closing: "asyncio.Task[None]") -> None:
    """As scopes of anyio do; time-outs and task groups that are nested do it twice."""
    await asyncio.sleep(0)
    while not closing.done():
        closing.cancel()
        await asyncio.sleep(0)
    assert closing.cancelled()


def all_is_closed(channels: Channels, before: "set[asyncio.Task[object]]") -> bool:
    with pytest.raises(RegnumError, match="calls nobody"):
        channels.get(Address(host="127.0.0.1", port=1))
    left = {task.get_name() for task in asyncio.all_tasks() - before if not task.done()}
    return not {name for name in left if name.startswith(("client-", "producer-", "consumer-", "fetch-", "group-"))}


async def test_a_producer_whose_close_is_cancelled_leaves_nobody_waiting(cluster: FakeCluster) -> None:
    before, channels = asyncio.all_tasks(), Channels()
    producer = Producer(cluster.bootstrap, channels=channels)
    await producer.start()
    record = await producer.send("t", b"x")
    await cancelled_at_every_await(asyncio.create_task(producer.close()))
    await within(producer.close())
    assert record.done()
    assert isinstance(record.exception(), ClientClosedError)
    assert all_is_closed(channels, before)
    with pytest.raises(ClientClosedError):
        await producer.send("t", b"y")


@pytest.mark.parametrize("group_id", [None, "g"])
async def test_a_consumer_whose_close_is_cancelled_leaves_no_reader_waiting(
    cluster: FakeCluster, group_id: str | None
) -> None:
    before, channels = asyncio.all_tasks(), Channels()
    settings = ConsumerSettings(commit_timeout_s=1_000.0)
    consumer = Consumer(cluster.bootstrap, topics=["t"], group_id=group_id, channels=channels, settings=settings)
    await consumer.start()
    reading = asyncio.create_task(anext(consumer))
    await until(lambda: cluster.calls["Fetch"] > 0, "it reads")
    if group_id is not None:
        cluster.groups.held["LeaveGroup"] = asyncio.Event()
    await cancelled_at_every_await(asyncio.create_task(consumer.close()))
    await within(consumer.close())
    with pytest.raises(ClientClosedError):
        await within(reading)
    assert all_is_closed(channels, before)
    if group_id is not None:
        cluster.groups.held["LeaveGroup"].set()


async def test_an_admin_client_whose_close_is_cancelled_is_closed(cluster: FakeCluster) -> None:
    before, channels = asyncio.all_tasks(), Channels()
    admin = Admin(cluster.bootstrap, channels=channels)
    await admin.start()
    await cancelled_at_every_await(asyncio.create_task(admin.close()))
    await within(admin.close())
    assert all_is_closed(channels, before)


async def test_of_two_who_close_a_producer_neither_goes_before_it_is_closed(cluster: FakeCluster) -> None:
    producer = Producer(cluster.bootstrap)
    await producer.start()
    record = await producer.send("t", b"x")
    patient = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    await within(producer.close(wait_s=0.05))
    assert isinstance(record.exception(), ClientClosedError)
    await within(patient)


async def test_a_client_that_is_closed_before_it_is_open_can_be_opened(cluster: FakeCluster) -> None:
    opened = []
    for client in (Producer(cluster.bootstrap), Consumer(cluster.bootstrap), Admin(cluster.bootstrap)):
        await client.close()
        await within(client.start())
        opened.append(type(client))
        await within(client.close())
        await within(client.close())
    assert opened == [Producer, Consumer, Admin]


async def test_a_program_ends_while_a_client_is_being_closed(cluster: FakeCluster) -> None:
    """asyncio.run cancels the closing itself then, in the middle."""
    records: list[asyncio.Future[object]] = []

    async def main() -> None:
        producer = Producer(cluster.bootstrap)
        await producer.start()
        records.append(await producer.send("t", b"x"))  # type: ignore[arg-type]
        await cancelled_at_every_await(asyncio.create_task(producer.close()))

    await within(asyncio.to_thread(lambda: asyncio.run(main())))
    assert isinstance(records[0].exception(), RegnumError)


async def asks_in_vain(cluster: FakeCluster, consumer: Consumer) -> "list[asyncio.Task[object]]":
    """Who waits for a topic of the question under way, for one of the next question, and for a picture of everything.

    Of each an answer is waited for that does not come.
    """
    for broker in cluster.brokers.values():
        await broker.freeze()
    asked = cluster.calls["GetMetadata"]
    first = asyncio.create_task(consumer.partitions_of("u", wait_s=1_000.0))
    await until(lambda: cluster.calls["GetMetadata"] > asked, "it is asked about")
    second = asyncio.create_task(consumer.partitions_of("v", wait_s=1_000.0))
    third = asyncio.create_task(consumer.subscribe(pattern="w.*"))
    await asyncio.sleep(0)
    return [first, second, third]


async def test_what_waits_for_an_answer_hears_at_once_that_the_client_is_closed(cluster: FakeCluster) -> None:
    async with Consumer(cluster.bootstrap, settings=ConsumerSettings(topic_wait_s=1_000.0)) as consumer:
        waiting = await asks_in_vain(cluster, consumer)
    answers = await within(asyncio.gather(*waiting, return_exceptions=True))
    assert [type(answer) for answer in answers] == [ClientClosedError] * 3


async def test_what_waits_for_an_answer_hears_that_nobody_asks_any_more(cluster: FakeCluster) -> None:
    async with Consumer(cluster.bootstrap, settings=ConsumerSettings(topic_wait_s=1_000.0)) as consumer:
        waiting = await asks_in_vain(cluster, consumer)
        (asking,) = [task for task in asyncio.all_tasks() if task.get_name() == "client-metadata"]
        asking.cancel()
        answers = await within(asyncio.gather(*waiting, return_exceptions=True))
    assert [type(answer) for answer in answers] == [BackgroundTaskError] * 3
