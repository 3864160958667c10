"""Every background task of a client is killed once: every call raises from then on, nothing waits, close ends.

What is killed is found in the source: a task that somebody adds is in no scenario here, and a test says so.
"""

import ast
import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event

import pytest
import regnum_client
from regnum_client import Admin, BackgroundTaskError, Consumer, ConsumerSettings, Producer, RebalanceListener
from regnum_client.sync import Producer as SyncProducer
from regnum_client.sync.loop_thread import SHARED
from regnum_client.tasks import Tasks, together
from regnum_testing.fake_broker import FakeBroker
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.producing import producer_to
from regnum_testing.waiting import until, within

SDK = Path(regnum_client.__file__).parent
STARTERS = {"start", "start_question"}
FORBIDDEN = {"create_task", "ensure_future", "TaskGroup"}

Client = Producer | Consumer | Admin
Use = Callable[[], Awaitable[object]]
"""A call that needs the task."""


def sources() -> Iterator[tuple[Path, ast.AST]]:
    """The SDK, without the programs that use it."""
    for file in sorted(SDK.rglob("*.py")):
        text = file.read_text()
        mentioned = any(f"{word}(" in text for word in (*STARTERS, *FORBIDDEN, "gather"))
        if mentioned and "commands" not in file.parts and file != SDK / "tasks.py":
            yield file, ast.parse(text)


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Calls, and the last part of what is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute | ast.Name):
                yield (called.attr if isinstance(called, ast.Attribute) else called.id), node


def started() -> set[str]:
    """Names of the tasks that the SDK starts, up to where they differ."""
    found = set()
    for _, tree in sources():
        for name, call in calls(tree):
            if name in STARTERS and ast.unparse(call.func).endswith((f"tasks.{name}", f"parts.{name}")):
                first = call.args[0]
                part = first.values[0] if isinstance(first, ast.JoinedStr) else first
                assert isinstance(part, ast.Constant), ast.unparse(call)
                found.add(str(part.value))
    return found


def test_tasks_are_made_in_one_place() -> None:
    elsewhere = []
    for file, tree in sources():
        for name, call in calls(tree):
            collects = any(keyword.arg == "return_exceptions" for keyword in call.keywords)
            if name in FORBIDDEN or (name == "gather" and not collects):
                elsewhere.append(f"{file.relative_to(SDK)}: {ast.unparse(call)}")
    assert elsewhere == []


def test_every_task_is_killed_here() -> None:
    assert started() == set(SCENARIOS) | {"sync-producer-door", "sync-producer-carry"}


@asynccontextmanager
async def sending(cluster: FakeCluster) -> AsyncIterator[tuple[Client, Use]]:
    """A producer of which a record is on its way."""
    held = asyncio.Event()
    producer = producer_to(cluster)
    await producer.start()
    await (await producer.send("t", b"first"))

    async def hold(_broker: FakeBroker, _request: object) -> None:
        await held.wait()

    cluster.before_produce = hold
    open_record = await producer.send("t", b"second")

    async def use() -> None:
        with pytest.raises(BackgroundTaskError):
            await open_record
        with pytest.raises(BackgroundTaskError):
            await producer.flush()
        await producer.send("t", b"third")

    try:
        yield producer, use
    finally:
        held.set()


@asynccontextmanager
async def beginning(cluster: FakeCluster) -> AsyncIterator[tuple[Client, Use]]:
    """A producer that waits for its id."""
    producer = producer_to(cluster)
    await producer.start()
    await producer.check_topic("t")
    for broker in cluster.brokers.values():
        await broker.freeze()
    record = await producer.send("t", b"first")
    yield producer, lambda: record


@asynccontextmanager
async def watching(cluster: FakeCluster) -> AsyncIterator[tuple[Client, Use]]:
    """A client that a broker tells of changes."""

    async def watch(_number: int, requests: AsyncIterator[object]) -> AsyncIterator[bytes]:
        async for _ in requests:
            pass
        yield b""

    cluster.watch = watch  # type: ignore[assignment]
    async with sending(cluster) as both:
        yield both


@asynccontextmanager
async def reading(cluster: FakeCluster) -> AsyncIterator[tuple[Client, Use]]:
    """A consumer that waits for records."""
    consumer = Consumer(cluster.bootstrap, topics=["t"])
    await consumer.start()
    waits = asyncio.create_task(anext(consumer))

    async def use() -> None:
        with pytest.raises(BackgroundTaskError):
            await waits
        await consumer.read()

    yield consumer, use


@asynccontextmanager
async def asking(cluster: FakeCluster) -> AsyncIterator[tuple[Client, Use]]:
    """An administrator who asks brokers, and they do not answer."""
    admin = Admin(cluster.bootstrap)
    await admin.start()
    for broker in cluster.brokers.values():
        await broker.freeze()
    asked = asyncio.create_task(admin.describe_cluster())
    yield admin, lambda: asked


@asynccontextmanager
async def paging(cluster: FakeCluster) -> AsyncIterator[tuple[Client, Use]]:
    """One who reads pages."""
    admin = Admin(cluster.bootstrap)
    await admin.start()
    for broker in cluster.brokers.values():
        await broker.freeze()
    asked = asyncio.ensure_future(anext(admin.summarize_topics()))
    yield admin, lambda: asked


@asynccontextmanager
async def matching(cluster: FakeCluster) -> AsyncIterator[tuple[Client, Use]]:
    """A consumer of all topics that match."""
    consumer = Consumer(cluster.bootstrap)
    await consumer.start()
    await consumer.subscribe(pattern="t.*")
    yield consumer, consumer.read


@asynccontextmanager
async def decoding(cluster: FakeCluster) -> AsyncIterator[tuple[Client, Use]]:
    """A consumer that decodes on a thread, which is busy."""
    async with producer_to(cluster, compression="gzip") as producer:
        await (await producer.send("t", b"x"))
    busy = Event()
    threads = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(threads)
    threads.submit(busy.wait)
    consumer = Consumer(cluster.bootstrap, topics=["t"])
    await consumer.start()
    decoded = asyncio.create_task(consumer.read(timeout_s=1_000.0))
    try:
        yield consumer, lambda: decoded
    finally:
        busy.set()


class Slow(RebalanceListener):
    """One that takes its time."""

    async def on_partitions_assigned(self, partitions: object) -> None:
        """For ever."""
        await asyncio.Event().wait()


@asynccontextmanager
async def belonging(
    cluster: FakeCluster, listener: RebalanceListener | None = None
) -> AsyncIterator[tuple[Client, Use]]:
    """A member of a group."""
    settings = ConsumerSettings(commit_timeout_s=0.2, request_timeout_s=0.2)
    consumer = Consumer(cluster.bootstrap, topics=["t"], group_id="g", listener=listener, settings=settings)
    await consumer.start()
    waits = asyncio.create_task(anext(consumer))

    async def use() -> None:
        with pytest.raises(BackgroundTaskError):
            await waits
        with pytest.raises(BackgroundTaskError):
            await consumer.commit()
        await consumer.read()

    yield consumer, use


@asynccontextmanager
async def joining(cluster: FakeCluster) -> AsyncIterator[tuple[Client, Use]]:
    """One whose coordinator does not let it in yet."""
    cluster.groups.held["JoinGroup"] = asyncio.Event()
    try:
        async with belonging(cluster) as both:
            yield both
    finally:
        cluster.groups.held["JoinGroup"].set()


@asynccontextmanager
async def telling(cluster: FakeCluster) -> AsyncIterator[tuple[Client, Use]]:
    """One whose listener has not returned."""
    async with belonging(cluster, Slow()) as both:
        yield both


SCENARIOS: Mapping[str, Callable[[FakeCluster], object]] = {
    "producer-sender": sending,
    "produce-": sending,
    "produce stream to ": sending,
    "produce stream: writer": sending,
    "producer-identity": beginning,
    "client-metadata": reading,
    "client-metadata-watch": reading,
    "watched topics, to ": watching,
    "metadata-": asking,
    "page of topics": paging,
    "consumer-fetcher": reading,
    "fetch-": reading,
    "topics of a pattern": matching,
    "consumer-decoder": decoding,
    "group-member": belonging,
    "group-heartbeat": belonging,
    "group-auto-commit": belonging,
    "group-topics": belonging,
    "group-": joining,
    "rebalance-listener": telling,
}
IN_FULL = {"client-metadata", "producer-sender"}


async def found(prefix: str) -> asyncio.Task[object]:
    """The task, which may still be on its way."""
    prefix = "group-join" if prefix == "group-" else prefix
    named: list[asyncio.Task[object]] = []

    def is_there() -> bool:
        named[:] = [
            task
            for task in asyncio.all_tasks()
            if (task.get_name() == prefix if prefix in IN_FULL else task.get_name().startswith(prefix))
        ]
        return bool(named)

    await until(is_there, prefix)
    return named[0]


async def cancel(prefix: str) -> None:
    """As a framework does, or asyncio.run at its end."""
    (await found(prefix)).cancel()


async def fail(prefix: str) -> None:
    """With an exception of which the client knows nothing, where the task waits."""
    task = await found(prefix)
    coroutine = task.get_coro()
    with pytest.raises((ZeroDivisionError, StopIteration)):
        coroutine.throw(ZeroDivisionError("a defect"))  # type: ignore[union-attr]
    # The task wakes up and finds its coroutine gone.
    task.cancel()


QUESTIONS = {"metadata-", "page of topics", "consumer-decoder", "rebalance-listener", "group-"}
"""Their errors are their askers'."""
KILLS = [(cancel, name) for name in SCENARIOS] + [(fail, name) for name in SCENARIOS if name not in QUESTIONS]


@pytest.mark.parametrize(("kill", "name"), KILLS, ids=lambda one: one if isinstance(one, str) else one.__name__)
async def test_a_task_that_ends_is_an_error_of_every_call(kill: Callable[[str], Awaitable[None]], name: str) -> None:
    async with FakeCluster(brokers=1) as cluster:
        cluster.create("t")
        async with SCENARIOS[name](cluster) as (client, use):  # type: ignore[attr-defined]
            await found(name)
            await kill(name)
            with pytest.raises(BackgroundTaskError) as caught:
                await within(use())
            assert caught.value.part.startswith(name), caught.value
            assert ("was cancelled" if kill is cancel else "failed") in caught.value.message
            await within(client.close())


@pytest.mark.parametrize("name", ["sync-producer-door", "sync-producer-carry"])
async def test_the_door_of_the_synchronous_producer_ends(name: str) -> None:
    async with FakeCluster(brokers=1) as cluster:
        cluster.create("t")
        loop, killed = asyncio.get_running_loop(), Event()

        def run() -> list[BaseException | None]:
            producer = SyncProducer(cluster.bootstrap)
            with producer:
                # A topic that nobody knows is waited for.
                first = producer.send("missing", b"x")
                killing = asyncio.run_coroutine_threadsafe(cancel(name), SHARED.lease())
                killing.result(60)
                SHARED.release()
                errors = [first.exception(60), producer.send("t", b"y").exception(60)]
                killed.set()
            return errors

        errors = await within(asyncio.to_thread(run))
        assert [type(error) for error in errors] == [BackgroundTaskError] * 2
        assert loop.is_running()


async def test_what_runs_beside_one_another_hears_of_a_cancellation_from_outside() -> None:
    begun = asyncio.Event()

    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    asked = asyncio.create_task(together("list-offsets", waits(), waits()))
    await begun.wait()
    (await found("list-offsets")).cancel()
    with pytest.raises(BackgroundTaskError, match="list-offsets"):
        await within(asked)
    asked = asyncio.create_task(together("list-offsets", waits(), waits()))
    await found("list-offsets")
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(asked)


async def test_one_that_its_owner_ends_is_no_failure() -> None:
    tasks = Tasks("test")
    parts = (tasks.start("a", asyncio.Event().wait()), tasks.start("b", asyncio.sleep(0)))
    await tasks.end(*parts)
    assert all(part.done() for part in parts)
    assert tasks.failure is None


async def test_an_error_of_a_question_that_is_ended_is_no_line_on_stderr() -> None:
    """1. Two brokers are asked; 2. one answers and one refuses in the same turn; 3. the answer is taken."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told["message"]))
    tasks = Tasks("test")

    async def refuses() -> None:
        raise BrokenPipeError

    asked = tasks.start_question("q", refuses())
    await until(asked.done)
    await tasks.end(asked)
    del asked
    gc.collect()
    assert complaints == []
    assert tasks.failure is None


async def test_a_program_ends_whose_main_returns_while_tasks_hold_clients() -> None:
    """asyncio.run then cancels every task of the loop, those of the client before or after the one that closes it."""
    ends: list[str] = []

    async def holds(client: Producer | Consumer, use: Use, begun: asyncio.Event) -> None:
        await client.start()
        try:
            await use()
            begun.set()
            await asyncio.Event().wait()
        finally:
            await client.close()
            ends.append(type(client).__name__)

    async def main(cluster: FakeCluster) -> None:
        producer = producer_to(cluster)
        consumer = Consumer(cluster.bootstrap, topics=["t"])
        settings = ConsumerSettings(commit_timeout_s=0.1, request_timeout_s=0.1)
        member = Consumer(cluster.bootstrap, topics=["t"], group_id="g", settings=settings)

        async def send() -> None:
            await producer.send("t", b"y")

        begun = [asyncio.Event() for _ in range(3)]
        holding = zip((producer, consumer, member), (send, consumer.read, member.read), begun, strict=True)
        tasks = [asyncio.create_task(holds(client, use, event)) for client, use, event in holding]
        for event in begun:
            await within(event.wait())
        assert not any(task.done() for task in tasks)

    async with FakeCluster(brokers=1) as cluster:
        cluster.create("t")
        held = asyncio.Event()

        async def hold(_broker: FakeBroker, _request: object) -> None:
            await held.wait()

        cluster.before_produce = hold
        await within(asyncio.to_thread(lambda: asyncio.run(main(cluster))))
        held.set()
    assert sorted(ends) == ["Consumer", "Consumer", "Producer"]
