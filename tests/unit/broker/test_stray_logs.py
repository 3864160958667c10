"""Logs of topics and partitions that nobody knows: kept, counted after the grace time, and listed in pages."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from regnum.broker.v1 import figures_pb2, figures_pb2_grpc
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.cluster.strays.logs import StrayLogs
from regnum_broker.cluster.strays.watch import StrayWatch
from regnum_broker.figures.gauges import show_strays
from regnum_broker.identity import Identity
from regnum_broker.servicers.figures import STRAYS_MAX, FiguresServicer
from regnum_model.ids import BrokerEpoch, BrokerId, PartitionKey, Registration, TopicId
from regnum_service.errors import RegnumError
from regnum_telemetry.metrics import Metrics
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.clock import FakeClock
from regnum_testing.held_loop import HeldLoop, run_measured
from regnum_testing.waiting import DEADLINE_S, eventually

OTHER_ID = TopicId("U" * 22)
GRACE_S = 60.0


class Replicas:
    """So many that do nothing, in no order."""

    broker = BrokerId(1)

    def __init__(self, count: int) -> None:
        self.found = {key: _partition(key) for key in map(_key, reversed(range(count)))}

    def __iter__(self) -> Iterator[Any]:
        return iter(self.found.values())

    def get(self, key: PartitionKey) -> Any:
        """The one with that key."""
        return self.found.get(key)


def _replicas(count: int) -> Any:
    return Replicas(count)


def _key(number: int) -> PartitionKey:
    return PartitionKey(TopicId(f"{number % 7:022d}"), number)


def _partition(key: PartitionKey) -> SimpleNamespace:
    log = SimpleNamespace(size_bytes=10, last_record_epoch=3, log_start_offset=1, log_end_offset=key.partition)
    return SimpleNamespace(key=key, topic=f"t{int(key.topic_id)}", log=log, role=None)


class Looked:
    """A broker that has these, and looks when it is told to."""

    def __init__(self, count: int) -> None:
        self.replicas = _replicas(count)
        self.clock = FakeClock()
        self.epoch = BrokerEpoch(5)
        self.known: set[PartitionKey] | None = set()
        """What the metadata names; None: there is none."""
        self.logs = StrayLogs(self.replicas, grace_s=GRACE_S)
        self.watch = StrayWatch(
            replicas=self.replicas,
            orders=None,  # type: ignore[arg-type]
            is_idle=lambda _: True,
            identity=lambda: Identity(broker_epoch=self.epoch, registration=Registration(0)),
            store=lambda: None,
            names=lambda: None if (known := self.known) is None else lambda _, key: key in known,
            logs=self.logs,
            clock=self.clock,
            grace_s=GRACE_S,
        )
        self.servicer = FiguresServicer(BrokerId(1), strays=self.logs, **_others(self.clock))

    async def look(self, *, after_s: float = 0.0) -> int | None:
        """Look, and how many strays there are then; None: nobody can say."""
        await self.clock.advance(after_s)
        await self.watch.look()
        return None if self.logs.found is None else len(self.logs.found.keys)

    async def page(self, after: figures_pb2.StrayPosition | None = None, limit: int = 0) -> Any:
        """A page, as a client is given it."""
        return await self.servicer.DescribeStrays(figures_pb2.DescribeStraysRequest(after=after, limit=limit), None)

    async def all(self, limit: int = 0) -> list[list[PartitionKey]]:
        """All pages."""
        pages: list[list[PartitionKey]] = []
        after = None
        while True:
            answer = await self.page(after, limit)
            pages.append([PartitionKey(TopicId(one.topic_id), one.partition) for one in answer.strays])
            if not answer.HasField("next"):
                return pages
            after = answer.next


def _others(clock: FakeClock) -> Any:
    """What the list of strays does not need."""
    names = ("rates", "sizing", "replicas", "storage", "cache", "loop_lag", "readiness", "lifeline_open", "client_port")
    return {**dict.fromkeys((*names, "disk", "contact")), "clock": clock}


async def test_a_log_counts_once_nobody_has_known_it_for_the_grace_time() -> None:
    """Orders and news of a topic that was created, or deleted, a moment ago may be on their way."""
    broker = Looked(3)
    broker.known = {_key(0)}
    assert await broker.look() is None
    assert await broker.look(after_s=GRACE_S / 2) is None
    assert await broker.look(after_s=GRACE_S / 2) == 2
    assert broker.logs.found is not None
    assert broker.logs.found.size_bytes == 20
    broker.known = {_key(1)}
    assert await broker.look(after_s=GRACE_S / 2) == 1, "one is known now; the other has only been unknown for a moment"
    assert await broker.look(after_s=GRACE_S) == 2
    broker.known = {_key(0), _key(1), _key(2)}
    assert await broker.look() == 0


async def test_without_metadata_or_under_another_registration_nobody_can_say() -> None:
    broker = Looked(1)
    broker.known = None
    for _ in range(3):
        assert await broker.look(after_s=GRACE_S) is None
    with pytest.raises(RegnumError) as refused:
        await broker.page()
    assert refused.value.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
    broker.known = set()
    assert await broker.look() is None
    assert await broker.look(after_s=GRACE_S) == 1
    broker.epoch = BrokerEpoch(6)
    assert await broker.look() is None


@pytest.mark.parametrize(("count", "limit", "pages"), [(0, 0, 1), (7, 0, 1), (7, 3, 3), (2 * STRAYS_MAX, 10**6, 2)])
async def test_each_stray_is_listed_once_in_pages(count: int, limit: int, pages: int) -> None:
    broker = Looked(count)
    await broker.look()
    assert await broker.look(after_s=GRACE_S) == count
    listed = await broker.all(limit)
    assert [key for page in listed for key in page] == sorted(broker.replicas.found)
    assert len(listed) == pages


async def test_what_has_gone_between_two_pages_leaves_nothing_else_out() -> None:
    broker = Looked(9)
    await broker.look()
    await broker.look(after_s=GRACE_S)
    first = await broker.page(limit=3)
    keys = sorted(broker.replicas.found)
    for key in keys[2:5]:
        del broker.replicas.found[key]
    second = await broker.page(first.next, limit=3)
    third = await broker.page(second.next, limit=3)
    listed = [PartitionKey(TopicId(one.topic_id), one.partition) for one in (*second.strays, *third.strays)]
    assert listed == keys[5:]
    assert not third.HasField("next")


@pytest.mark.full
@pytest.mark.alone
def test_a_hundred_thousand_strays_hold_no_loop_and_no_page_is_large() -> None:
    count = 100_000

    async def scenario(held: HeldLoop) -> None:
        broker = Looked(count)
        with held.measuring("looks"):
            await broker.look()
            assert await broker.look(after_s=GRACE_S) == count
        after, listed = None, 0
        with held.measuring("pages"):
            while listed < 10 * STRAYS_MAX:
                answer = await broker.page(after)
                assert answer.ByteSize() < 100 * STRAYS_MAX
                after, listed = answer.next, listed + len(answer.strays)

    run_measured(scenario).assert_free()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path, stray_grace_s=1.0)
    await made.begin()
    await made.start(1)
    yield made
    await made.close()


def _topic(name: str, id: TopicId, *numbers: int) -> types_pb2.TopicState:
    states = [types_pb2.PartitionState(partition=one, leader=1, replicas=[1], isr=[1]) for one in numbers]
    return types_pb2.TopicState(name=name, topic_id=id, partitions=states)


async def test_a_broker_tells_of_logs_that_the_metadata_does_not_name_and_keeps_them(world: BrokerWorld) -> None:
    """Two topics and a second partition; then a controller that knows one partition, as after a restore."""
    for topic, id, number in (("t", TOPIC_ID, 0), ("t", TOPIC_ID, 1), ("u", OTHER_ID, 0)):
        await world.elect(1, [1], topic=topic, topic_id=id, partition=number)
    batch = batch_of(b"kept", b"too")
    assert (await world.produce(1, batch, topic="u")).error_code == errors_pb2.ERROR_CODE_NONE
    await world.stop(1)
    await world.start(1)
    broker = world.brokers[BrokerId(1)]
    figures = figures_pb2_grpc.FiguresServiceStub(world.channel(broker.settings.client_listen))
    assert not (await figures.DescribeFigures(figures_pb2.DescribeFiguresRequest(), timeout=DEADLINE_S)).HasField(
        "strays"
    )
    await world.show(1, _topic("t", TOPIC_ID, 0))

    async def counted(count: int) -> bool:
        answer = await figures.DescribeFigures(figures_pb2.DescribeFiguresRequest(), timeout=DEADLINE_S)
        return bool(answer.HasField("strays") and answer.strays == count and answer.stray_bytes == len(batch))

    await eventually(lambda: counted(2), what="the strays are counted")
    answer = await figures.DescribeStrays(figures_pb2.DescribeStraysRequest(), timeout=DEADLINE_S)
    told = [(one.topic, one.topic_id, one.partition, one.size_bytes, one.log_end_offset) for one in answer.strays]
    assert told == [("t", TOPIC_ID, 1, 0, 0), ("u", OTHER_ID, 0, len(batch), 2)]
    assert (answer.broker_id, answer.HasField("next")) == (1, False)
    # A name that somebody has given to a new topic: the log is of the former one.
    await world.show(1, _topic("t", TOPIC_ID, 0, 1), _topic("u", TopicId("V" * 22), 0), version=2)
    await eventually(lambda: counted(1), what="one of them is known")
    assert len(broker.broker.replicas) == 3


async def test_the_metrics_say_nothing_before_anybody_has_looked() -> None:
    metrics, broker = Metrics(), Looked(3)
    show_strays(metrics, broker.logs)

    def shown() -> list[float]:
        return [number for reading in metrics.read() for _, number in reading.numbers]

    assert shown() == []
    await broker.look()
    await broker.look(after_s=GRACE_S)
    assert shown() == [3]
