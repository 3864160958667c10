"""What a client waits for and gives up: its task goes on, however often and however late that is."""

import asyncio

import pytest
from regnum_client import Consumer, ConsumerSettings, ResetPolicy, TopicPartition
from regnum_client.tasks import Abandonable, AbandonedError
from regnum_testing.batches import batch_of
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import DEADLINE_S, until, within


async def waits_for(answer: Abandonable, awaited: "asyncio.Future[str]", goes_on: asyncio.Event) -> str:
    try:
        came = await answer.answer(awaited)
    except AbandonedError:
        came = "given up"
    await goes_on.wait()
    return came


async def test_it_may_be_given_up_any_number_of_times() -> None:
    answer, goes_on = Abandonable(), asyncio.Event()
    waiting = asyncio.create_task(waits_for(answer, asyncio.Future(), goes_on))
    await asyncio.sleep(0)
    for _ in range(3):
        answer.give_up()
    await asyncio.sleep(0)
    answer.give_up()
    goes_on.set()
    assert await within(waiting) == "given up"
    assert answer.given_up


async def test_a_task_that_goes_on_with_the_answer_is_left_alone() -> None:
    answer, goes_on, came = Abandonable(), asyncio.Event(), asyncio.Future[str]()
    waiting = asyncio.create_task(waits_for(answer, came, goes_on))
    await asyncio.sleep(0)
    came.set_result("here")
    for _ in range(3):
        await asyncio.sleep(0)
    answer.give_up()
    goes_on.set()
    assert await within(waiting) == "here"
    assert not answer.given_up


@pytest.mark.parametrize("given_up", [False, True])
async def test_a_task_that_is_cancelled_by_others_ends(given_up: bool) -> None:
    answer = Abandonable()
    waiting = asyncio.create_task(waits_for(answer, asyncio.Future(), asyncio.Event()))
    await asyncio.sleep(0)
    if given_up:
        answer.give_up()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_consumer_that_looks_for_an_offset_after_an_answer_reads_on_when_the_leader_changes() -> None:
    async with FakeCluster() as cluster:
        cluster.create("t")
        partition = cluster.partitions["t", 0]
        partition.log_start = 100
        partition.end_questions_refused = 1_000_000
        async with Consumer(cluster.bootstrap, settings=ConsumerSettings(reset=ResetPolicy.LATEST)) as consumer:
            await consumer.assign("t", start=5)
            await until(lambda: cluster.calls["ListOffsets"] > 1)
            cluster.elect("t", 0, 2)
            asked = cluster.calls["GetMetadata"]
            await until(lambda: cluster.calls["GetMetadata"] > asked + 1)
            partition.end_questions_refused = 0
            await until(lambda: consumer.position(TopicPartition("t", 0)) == partition.end)
            partition.append(batch_of(b"v"))
            records = await within(consumer.read(timeout_s=DEADLINE_S))
            assert [record.value for record in records] == [b"v"]
