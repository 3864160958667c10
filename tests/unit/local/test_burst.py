"""A burst against a quota: what is counted, and what is complained of."""

from collections.abc import AsyncIterator
from io import StringIO

import pytest
from regnum_client import Admin
from regnum_local.demo.burst import CLIENT_ID, Burst, BurstOutcome, BurstPlan, burst_table
from regnum_local.demo.report import Narrator
from regnum_service.clock import SystemClock
from regnum_testing.fake_cluster import FakeCluster
from rich.console import Console

PLAN = BurstPlan(topics=20, rate=50.0, burst=5.0)


def outcome(*, excess: float = -3.0, created: int = 20, failures: tuple[str, ...] = ()) -> BurstOutcome:
    return BurstOutcome(
        plan=PLAN, at_once=6, refusals=30, created=created, took_s=0.5, excess=excess, failures=failures
    )


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        yield running


async def play(cluster: FakeCluster, *, quota: bool) -> BurstOutcome:
    narrator = Narrator(Console(quiet=True))
    async with Admin(cluster.bootstrap, client_id=CLIENT_ID) as admin:
        burst = Burst(admin, PLAN, clock=SystemClock(), narrator=narrator)
        if quota:
            await burst.set_quota()
        result = await burst.create()
        if quota:
            await burst.remove_quota()
        await burst.delete()
    return result


async def test_a_burst_within_the_quota(cluster: FakeCluster) -> None:
    result = await play(cluster, quota=True)
    assert result.complaints == ()
    assert (result.created, result.at_once) == (20, 6)
    assert result.refusals >= 14
    assert result.took_s >= PLAN.quota_s
    assert (cluster.quotas.values, cluster.topic_ids) == ({}, {})


async def test_more_than_the_quota_allows_is_seen(cluster: FakeCluster) -> None:
    """Nobody keeps it: all are admitted at once."""
    result = await play(cluster, quota=False)
    assert result.created == 20
    (complaint,) = result.complaints
    assert "more were admitted than the quota allows" in complaint


def test_the_flow_the_burst_and_one_into_debt_are_allowed() -> None:
    plan = BurstPlan(topics=500, rate=5.0, burst=50.0)
    assert (plan.allowed(0.0), plan.allowed(10.0)) == (51.0, 101.0)
    assert plan.quota_s == pytest.approx(89.8)
    assert BurstPlan(topics=3, rate=5.0, burst=50.0).quota_s == 0.0


def test_a_missing_topic_is_a_complaint() -> None:
    assert outcome().complaints == ()
    assert outcome(created=19, failures=("no controller",)).complaints == (
        "a topic of the burst was not created: no controller",
    )


def test_people_and_machines_read_the_same_figures() -> None:
    figures = outcome(excess=2.0).figures
    assert (figures["mutations_admitted"], figures["mutations_throttled"]) == (20, 30)
    assert figures["most_beyond_the_quota"] == 2.0
    console = Console(record=True, width=100, file=StringIO())
    console.print(burst_table(outcome(excess=2.0)))
    text = console.export_text()
    assert "mutations admitted / throttled" in text
    assert "20 / 30" in text
