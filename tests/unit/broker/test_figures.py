"""What a broker says of itself in figures."""

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum.broker.v1 import figures_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.cluster.readiness import Readiness
from regnum_broker.cluster.strays.logs import StrayLogs
from regnum_broker.disk_room import DiskRoom, DiskRooms
from regnum_broker.figures.recent_rates import LOOKS, PERIOD_S, SUMS, Look, RecentRates, between, quantile
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.showing import Showing
from regnum_model.wire_times import seconds_of
from regnum_service import own_process
from regnum_service.store_contact import StoreContact
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.batches import batch_of
from regnum_testing.clock import FakeClock
from regnum_testing.leading_replicas import LEADER, LeadingReplicas

BOUNDS = instruments.PRODUCE_DURATION.bounds


async def test_rates_are_those_of_the_last_ten_to_fifteen_seconds() -> None:
    clock, metrics = FakeClock(), Metrics()
    rates = RecentRates(metrics, clock)
    produced = metrics.counter(instruments.BYTES_IN)
    running = asyncio.create_task(rates.run())
    produced.add(1_000)
    await clock.advance(2.0)
    first = rates.rates()
    assert (first.over_s, first.of(instruments.BYTES_IN)) == (2.0, 500.0)
    for _ in range(20):
        await clock.advance(PERIOD_S)
    assert rates.rates().of(instruments.BYTES_IN) == 0.0, "what was long ago is no rate any more"
    produced.add(1_200)
    await clock.advance(1.0)
    late = rates.rates()
    assert (LOOKS - 1) * PERIOD_S <= late.over_s <= LOOKS * PERIOD_S
    assert late.of(instruments.BYTES_IN) == pytest.approx(1_200 / late.over_s)
    running.cancel()


def test_two_looks_at_the_same_moment_have_no_rates() -> None:
    look = Look(at_s=1.0, sums=(5.0,) * len(SUMS), produce_counts=(1,) * (len(BOUNDS) + 1))
    rates = between(look, look, BOUNDS)
    assert (rates.each, rates.produce_p99_s) == ((0.0,) * len(SUMS), None)


@given(st.lists(st.floats(0.0, 60.0), min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_is_in_the_bucket_in_which_it_is(values: list[float], share: float) -> None:
    histogram = Metrics().histogram(instruments.PRODUCE_DURATION)
    for value in values:
        histogram.record(value)
    found = quantile(share, tuple(histogram.counts), BOUNDS)
    assert found is not None
    exact = sorted(values)[math.ceil(share * len(values)) - 1]
    edges = (0.0, *BOUNDS)
    bucket = max((edge for edge in edges if edge < exact), default=0.0)
    upper = min((edge for edge in BOUNDS if edge >= exact), default=BOUNDS[-1])
    assert min(bucket, BOUNDS[-1]) <= found <= upper


class Told:
    """A broker's figures over replicas that it leads."""

    def __init__(self, leading: LeadingReplicas, metrics: Metrics) -> None:
        self.leading = leading
        fence = Fence()
        self.strays = StrayLogs(leading.replicas, grace_s=60.0)
        self.disk = DiskRooms(storage=leading.storage, clock=leading.clock, tell=lambda _: None)
        self.contact = StoreContact(lambda: None, leading.clock, metrics)
        showing = Showing(LEADER, metrics=metrics, clock=leading.clock, topics_max=10, partitions_max=10)
        registration = showing.figures(
            replicas=leading.replicas,
            storage=leading.storage,
            cache=MetadataCache(fence, leading.replicas.learn_listeners),
            fence=fence,
            readiness=Readiness(),
            strays=self.strays,
            disk=self.disk,
            contact=self.contact,
            lifeline_open=lambda: True,
            client_port=lambda: 1,
        )
        self.servicer = registration.servicer

    async def figures(self) -> figures_pb2.DescribeFiguresResponse:
        answer = await self.servicer.DescribeFigures(  # type: ignore[attr-defined]
            figures_pb2.DescribeFiguresRequest(), None
        )
        assert isinstance(answer, figures_pb2.DescribeFiguresResponse)
        return answer


@pytest.fixture
async def told(tmp_path: Path) -> AsyncIterator[Told]:
    metrics = Metrics()
    async with LeadingReplicas(tmp_path, partitions=3, metrics=metrics) as leading:
        yield Told(leading, metrics)


async def test_a_thousand_callers_cost_as_much_as_one(told: Told) -> None:
    answers = await asyncio.gather(*(told.figures() for _ in range(1_000)))
    # One for each half second that this took, however slow the machine.
    assert len({id(answer) for answer in answers}) < 20


async def test_a_broker_says_what_it_leads_and_what_that_takes(told: Told) -> None:
    told.leading.lead(0, epoch=1, isr=(LEADER,), min_insync=2)
    told.disk.now = DiskRoom(free_bytes=0, size_bytes=9, refuses_because="full")
    told.contact.trouble = "no session"
    await told.leading.append(1, b"a", b"b")
    said = await told.figures()
    assert (said.broker_id, said.replicas, said.leading, said.offline) == (LEADER, 3, 3, 0)
    assert (said.under_replicated, said.under_min_isr) == (1, 1)
    assert (said.log_bytes, said.log_segments) == (len(batch_of(b"a", b"b")), 3)
    assert (said.metadata_controller_epoch, said.lifeline_open) == (0, True)
    assert not said.HasField("produce_p99")
    assert said.resident_bytes > 1_000_000
    assert 0 < said.open_files <= said.open_files_max
    assert said.connections == 0
    assert seconds_of(said.uptime) >= 0
    assert (said.disk_free_bytes, said.disk_size_bytes, said.refuses_writes_because) == (0, 9, "full")
    assert said.store_trouble == "no session"


def test_a_process_knows_what_it_uses(tmp_path: Path) -> None:
    before = own_process.look()
    with (tmp_path / "one").open("wb"), (tmp_path / "two").open("wb"):
        assert own_process.look().open_files == before.open_files + 2
