"""The SDK without asyncio: the same promises, for threads, forks and Ctrl-C."""

import asyncio
import inspect
import os
import random
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import Any, TypeVar

import pytest
import regnum_client
from regnum.types.v1 import errors_pb2
from regnum_client import (
    ClientClosedError,
    ConsumedRecord,
    ConsumerSettings,
    ProducerSettings,
    RecordMetadata,
    TopicPartition,
)
from regnum_client.sync import Admin, Consumer, Producer
from regnum_client.sync.bridge import Blocking, Bridge, Iterating, OnLoop
from regnum_client.sync.loop_thread import SHARED
from regnum_client.sync.producer import _Door
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.errors import RegnumError
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

T = TypeVar("T")
P0 = TopicPartition("t", 0)
FAST = ConsumerSettings(fetch_wait_ms=50)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("t", partitions=2)
        yield running
    # A thread that a failed test has left would be everybody's.
    assert not [thread.name for thread in threading.enumerate() if thread.name == "regnum-client-sync"]


async def beside(work: Callable[[], T]) -> T:
    """Run what blocks in a thread, as the cluster needs this one."""
    return await asyncio.wait_for(asyncio.to_thread(work), DEADLINE_S)


def write(cluster: FakeCluster, partition: int, count: int) -> None:
    log = cluster.partitions["t", partition]
    for first in range(0, count, 10):
        records = [NewRecord(value=b"%d" % number) for number in range(first, min(first + 10, count))]
        log.append(build_batch(records, timestamp_ms=1000))


def public(kind: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("front", "behind"),
    [(Admin, regnum_client.Admin), (Consumer, regnum_client.Consumer), (Producer, regnum_client.Producer)],
)
def test_nothing_of_the_async_classes_is_missing(front: type, behind: type) -> None:
    here, there = public(front), public(behind)
    assert there.keys() - here.keys() == set()
    assert here.keys() - there.keys() <= {"bridge", "settle"}
    for name, method in here.items():
        if isinstance(method, Blocking | OnLoop | Iterating):
            assert method.__wrapped__ is there[name]
            assert inspect.iscoroutinefunction(there[name]) == isinstance(method, Blocking), name
            assert inspect.isasyncgenfunction(inspect.unwrap(there[name])) == isinstance(method, Iterating), name


async def test_records_go_and_come_in_order(cluster: FakeCluster) -> None:
    def work() -> list[int]:
        with Producer(cluster.bootstrap) as producer:
            assert producer.check_topic("t") == 2
            sent = [producer.send("t", b"%d" % number, partition=0) for number in range(3000)]
            assert [delivery.result(timeout=DEADLINE_S).offset for delivery in sent] == list(range(3000))
            assert producer.batches_split == 0
        with Consumer(cluster.bootstrap, settings=FAST) as consumer:
            consumer.assign("t")
            assert consumer.assignment == {P0, TopicPartition("t", 1)}
            found: list[ConsumedRecord] = []
            for record in consumer:
                found.append(record)
                if len(found) == 3000:
                    break
            assert consumer.position(P0) == 3000
            assert consumer.read(timeout_s=0.05) == []
            return [record.offset for record in found]

    assert await beside(work) == list(range(3000))
    assert cluster.values("t") == [b"%d" % number for number in range(3000)]


async def test_records_of_many_threads_each_in_its_order(cluster: FakeCluster) -> None:
    def work() -> None:
        with Producer(cluster.bootstrap, settings=ProducerSettings(buffer_bytes=40_000)) as producer:

            def send(name: int) -> None:
                for number in range(400):
                    producer.send("t", b"%d:%d" % (name, number), partition=0)

            threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            producer.flush()
            assert len(cluster.values("t")) == 1600

    await beside(work)
    for name in range(4):
        mine = [value for value in cluster.values("t") if value is not None and value.startswith(b"%d:" % name)]
        assert mine == [b"%d:%d" % (name, number) for number in range(400)]


class CountingBridge(Bridge[regnum_client.Producer]):
    """Counts how often the loop is woken for nothing that is waited for."""

    told = 0

    def tell(self, action: Callable[[], object]) -> None:
        self.told += 1
        super().tell(action)


async def test_the_loop_is_woken_once_for_many_records(cluster: FakeCluster) -> None:
    """A hop between threads for each record would be most of its cost."""

    def work() -> int:
        bridge = CountingBridge("producer", lambda: regnum_client.Producer(cluster.bootstrap))
        door = _Door(bridge)
        bridge.open()
        bridge.wait(bridge.client.check_topic("t"))
        held = threading.Event()
        bridge.tell(lambda: held.wait(DEADLINE_S))
        sent = [door.put(partial(bridge.client.send, "t", b"%d" % number), 3) for number in range(400)]
        held.set()
        for delivery in sent:
            delivery.result(timeout=DEADLINE_S)
        bridge.close(lambda client: client.close())
        return bridge.told

    assert await beside(work) == 2, "the one that held it, and the first record"


async def test_what_send_meets_ends_its_future_and_nobody_elses(cluster: FakeCluster) -> None:
    def work() -> None:
        with Producer(cluster.bootstrap) as producer:
            bad, good = producer.send("no name", b"1"), producer.send("t", b"2")
            with pytest.raises(RegnumError) as caught:
                bad.result(timeout=DEADLINE_S)
            assert caught.value.code == errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION
            assert good.result(timeout=DEADLINE_S).topic == "t"
            assert not good.cancel()

    await beside(work)


async def test_a_flush_ends_in_its_time_and_the_records_go_on(cluster: FakeCluster) -> None:
    for broker in cluster.brokers.values():
        await broker.freeze()
    reached = asyncio.Event()
    here = asyncio.get_running_loop()

    def work() -> None:
        producer = Producer(cluster.bootstrap)
        for broker in cluster.brokers.values():
            here.call_soon_threadsafe(broker.frozen.clear)
            here.call_soon_threadsafe(broker.thawed.set)
        with producer:
            producer.check_topic("t")
            for broker in cluster.brokers.values():
                here.call_soon_threadsafe(broker.thawed.clear)
                here.call_soon_threadsafe(broker.frozen.set)
            # One turn of the brokers' loop: what was asked of it before has happened.
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), here).result()
            delivery = producer.send("t", b"1", partition=0)
            with pytest.raises(TimeoutError):
                producer.flush(timeout_s=0.2)
            with pytest.raises(FutureTimeoutError):
                delivery.result(timeout=0.01)
            for broker in cluster.brokers.values():
                here.call_soon_threadsafe(broker.frozen.clear)
                here.call_soon_threadsafe(broker.thawed.set)
            assert delivery.result(timeout=DEADLINE_S).offset == 0
        here.call_soon_threadsafe(reached.set)

    await beside(work)
    await reached.wait()


async def test_a_producer_that_is_closed_in_failure_waits_a_moment_and_tells_every_record(
    cluster: FakeCluster,
) -> None:
    async def never(*_: object) -> None:
        await asyncio.sleep(DEADLINE_S)

    deliveries: list[Future[RecordMetadata]] = []

    def work() -> None:
        with Producer(cluster.bootstrap, settings=ProducerSettings(buffer_bytes=2000)) as producer:
            producer.check_topic("t")
            cluster.before_produce = never
            deliveries.extend(producer.send("t", bytes(500)) for _ in range(20))
            raise KeyError

    with pytest.raises(KeyError):
        await beside(work)
    assert {type(delivery.exception(timeout=DEADLINE_S)) for delivery in deliveries} == {ClientClosedError}


async def test_senders_that_wait_for_room_hear_that_the_producer_was_closed(cluster: FakeCluster) -> None:
    async def never(*_: object) -> None:
        await asyncio.sleep(DEADLINE_S)

    refused: list[BaseException] = []

    def work() -> None:
        producer = Producer(cluster.bootstrap, settings=ProducerSettings(buffer_bytes=1000))
        producer.start()
        producer.check_topic("t")
        cluster.before_produce = never

        def send() -> None:
            try:
                while True:
                    producer.send("t", bytes(500))
            except RegnumError as error:
                refused.append(error)

        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        while not producer._door._is_full:
            time.sleep(0.005)
        producer.close(wait_s=0.1)
        for thread in threads:
            thread.join()

    await beside(work)
    assert [type(error) for error in refused] == [ClientClosedError] * 3


async def test_callbacks_may_send_and_must_not_wait(cluster: FakeCluster) -> None:
    heard: list[object] = []

    def work() -> None:
        with Producer(cluster.bootstrap) as producer:
            again: list[Future[RecordMetadata]] = []

            def sent(_delivery: Future[RecordMetadata]) -> None:
                again.append(producer.send("t", b"again", partition=0))
                try:
                    producer.flush()
                except RegnumError as error:
                    heard.append(error.message)

            delivery = producer.send("t", b"first", partition=0)
            delivery.add_done_callback(sent)
            delivery.result(timeout=DEADLINE_S)
            producer.flush()
            while not again:
                time.sleep(0.005)
            again[0].result(timeout=DEADLINE_S)

    await beside(work)
    assert cluster.values("t") == [b"first", b"again"]
    assert ["would wait for the thread that it runs on" in str(one) for one in heard] == [True]


async def test_positions_are_those_of_the_reader_and_not_of_what_was_fetched_for_it(cluster: FakeCluster) -> None:
    write(cluster, 0, 300)
    write(cluster, 1, 300)
    chance = random.Random(4)

    def work() -> None:
        with Consumer(cluster.bootstrap, settings=FAST) as consumer:
            consumer.assign("t")
            position = {0: 0, 1: 0}
            while sum(position.values()) < 600:
                match chance.randrange(5):
                    case 0:
                        records = [next(consumer)]
                    case 1:
                        records = consumer.read(records_max=7, timeout_s=1.0)
                    case 2:
                        batch = consumer.read_batch(timeout_s=1.0)
                        records = [] if batch is None else list(batch)
                    case 3:
                        which = TopicPartition("t", chance.randrange(2))
                        consumer.pause(which)
                        consumer.resume(which)
                        continue
                    case _:
                        which = TopicPartition("t", chance.randrange(2))
                        position[which.partition] = max(0, position[which.partition] - 3)
                        consumer.seek(which, position[which.partition])
                        continue
                for record in records:
                    assert record.offset == position[record.partition]
                    position[record.partition] += 1
                assert position == {number: consumer.position(TopicPartition("t", number)) for number in (0, 1)}

    await beside(work)


async def test_what_is_given_back_keeps_the_leader_epoch_before_it(cluster: FakeCluster) -> None:
    """Without, a commit says nothing of it, and nobody notices that the record before was lost."""
    cluster.elect("t", 0, 2)
    write(cluster, 0, 10)
    epoch = cluster.partitions["t", 0].leader_epoch

    def work() -> tuple[int, int | None]:
        with Consumer(cluster.bootstrap, settings=FAST) as consumer:
            consumer.assign("t")
            read = next(consumer)
            # What was read ahead goes back.
            consumer.pause(TopicPartition("t", 1))
            return read.offset, consumer.leader_epoch_before(TopicPartition("t", 0), 1)

    assert epoch > 0
    assert await beside(work) == (0, epoch)


async def test_an_iteration_that_is_given_up_loses_nothing(cluster: FakeCluster) -> None:
    """As Ctrl-C does it: the wait ends with an exception, at the moment when records come."""
    write(cluster, 0, 20)

    def work() -> list[int]:
        with Consumer(cluster.bootstrap, settings=FAST) as consumer:
            consumer.assign("t", partitions=[0])
            offsets = [next(consumer).offset]
            consumer.seek(P0, 1)

            async def fill_and_fail() -> None:
                await consumer._fill(5, DEADLINE_S)
                raise KeyboardInterrupt_

            with pytest.raises(KeyboardInterrupt_):
                consumer.bridge.wait(fill_and_fail())
            assert consumer.position(P0) == 1
            offsets += [next(consumer).offset for _ in range(19)]
            return offsets

    assert await beside(work) == list(range(20))


class KeyboardInterrupt_(Exception):  # noqa: N801, N818 - stands for one that would end the tests
    pass


async def test_batches_without_asyncio(cluster: FakeCluster) -> None:
    write(cluster, 0, 30)

    def work() -> list[int]:
        with Consumer(cluster.bootstrap, settings=FAST) as consumer:
            consumer.subscribe("t")
            assert consumer.partitions_of("t") == (P0, TopicPartition("t", 1))
            assert consumer.offsets_for_times({P0: 1}) == {P0: 0}
            offsets: list[int] = []
            for batch in consumer.batches():
                offsets += [record.offset for record in batch]
                if len(offsets) == 30:
                    break
            consumer.seek_to_end()
            consumer.pause(P0)
            assert consumer.paused == {P0}
            assert (consumer.position(P0), consumer.unread_bytes) == (30, 0)
            return offsets

    assert await beside(work) == list(range(30))


async def test_administration_without_asyncio(cluster: FakeCluster) -> None:
    def work() -> None:
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topic("made", partitions=3).partitions == 3
            assert len(admin.describe_topic("made").partitions) == 3
            assert [topic.name for topic in admin.describe_topics()] == ["made", "t"]
            assert [one.name for page in admin.summarize_topics(limit=1) for one in page] == ["made", "t"]
            first = admin.describe_topics()
            assert next(first).name == "made"
            first.close()  # type: ignore[attr-defined]
            with pytest.raises(RegnumError):
                admin.describe_topic("nowhere")

    await beside(work)


async def test_all_clients_share_a_thread_that_ends_with_the_last(cluster: FakeCluster) -> None:
    def running() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "regnum-client-sync"]

    def work() -> None:
        with Producer(cluster.bootstrap) as producer:
            with Consumer(cluster.bootstrap), Admin(cluster.bootstrap) as admin:
                assert running() == ["regnum-client-sync"]
                admin.start()
            assert running() == ["regnum-client-sync"]
            producer.close()
            assert running() == []
            producer.close()
            with pytest.raises(ClientClosedError, match="`with`"):
                producer.send("t", b"late")
            with pytest.raises(ClientClosedError):
                admin.list_topics()

    await beside(work)


async def test_a_client_that_finds_no_cluster_leaves_no_thread() -> None:
    def work() -> None:
        for client in (
            Producer("127.0.0.1:1", settings=ProducerSettings(topic_wait_s=0.1)),
            Admin("127.0.0.1:1", timeout_s=0.1),
        ):
            with pytest.raises(RegnumError):
                client.start()
        assert SHARED._thread is None

    await beside(work)


FORK = """
import os, sys
from regnum_client import TopicPartition
from regnum_client.sync import Consumer, Producer
from regnum_client.sync.loop_thread import SHARED
from regnum_service.errors import RegnumError

def in_child(producer, consumer):
    position = lambda: consumer.position(TopicPartition("t", 0))
    for use in (lambda: producer.send("t", b"1"), position, consumer.start, consumer.read):
        try:
            use()
        except RegnumError as error:
            if "before a fork" not in error.message:
                return 2
        else:
            return 3
    producer.close()
    consumer.close()
    return 0 if SHARED._thread is None else 4

with Producer(sys.argv[1]) as producer, Consumer(sys.argv[1]) as consumer:
    consumer.assign("t")
    child = os.fork()
    if child == 0:
        status = 5
        try:
            status = in_child(producer, consumer)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert producer.send("t", b"1").result(timeout=60.0).topic == "t", "the parent goes on"
    sys.exit(os.waitstatus_to_exitcode(status))
"""


async def test_after_a_fork_the_parents_clients_are_refused_and_closed_quietly(cluster: FakeCluster) -> None:
    """In a process of its own: the child does nothing but Python, for what gRPC would do in it is anybody's guess."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FORK, cluster.bootstrap, env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"}
    )
    async with asyncio.timeout(DEADLINE_S):
        assert await process.wait() == 0


CTRL_C = """
import os, signal, sys, threading
from regnum_client.sync import Consumer
with Consumer(sys.argv[1]) as consumer:
    consumer.assign("t")
    print("reading", flush=True)
    try:
        next(consumer)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(len(consumer.read(records_max=1, timeout_s=60.0)), flush=True)
"""


async def test_ctrl_c_ends_a_wait_and_the_client_goes_on(cluster: FakeCluster) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CTRL_C, cluster.bootstrap, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        assert await process.stdout.readline() == b"reading\n"
        fetches = cluster.calls["Fetch"]
        await until(lambda: cluster.calls["Fetch"] >= fetches + 3, "it reads")
        process.send_signal(signal.SIGINT)
        assert await process.stdout.readline() == b"interrupted\n"
        write(cluster, 0, 1)
        assert await process.stdout.readline() == b"1\n"
        assert await process.wait() == 0
