"""The largest calls and the largest change of quotas hold the event loop shortly (safety rule S22)."""

import asyncio
from contextlib import suppress

import pytest
from regnum.quota.v1 import quota_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.recipes.folders import ensure_folders
from regnum_model import quotas
from regnum_model.bucket import Limit
from regnum_model.quotas import DEFAULT, QuotaEntity, QuotaNode, QuotaTable
from regnum_quota.admission import BUCKETS_MAX
from regnum_quota.office import Office
from regnum_quota.requests import ADMISSIONS_MAX, KNOWN_MAX, MUTATIONS_MAX
from regnum_quota.servicer import QuotaServicer
from regnum_quota.term import Term, take_up_limits
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_testing.held_loop import HeldLoop, run_measured
from regnum_testing.waiting import eventually

pytestmark = pytest.mark.alone


def admission(user: str, *permits: int) -> quota_pb2.Admission:
    return quota_pb2.Admission(
        request_id=user,
        entity=quota_pb2.MutatingEntity(user=user, client_id="app"),
        mutations=[quota_pb2.Mutation(name="t", permits=cost) for cost in permits],
    )


async def scenario(held: HeldLoop) -> None:
    clock, store, office = SystemClock(), MemoryStore(MemoryServer()), Office()
    await ensure_folders(store, quotas.FOLDERS, clock)
    data = QuotaNode(config={quotas.RATE_KEY: "1000", quotas.BURST_KEY: "1000000"}).encode()
    for entity in (QuotaEntity(user=DEFAULT), QuotaEntity()):
        await store.create(entity.path, data)
    term = Term(store, clock, incarnation="run", exempt=frozenset())
    running = asyncio.create_task(term.run())

    async def has_begun() -> bool:
        with suppress(RegnumError):
            return term.ledger.describe(0.0) == ()
        return False

    await eventually(has_begun)
    office.begin(term)
    servicer = QuotaServicer(office, clock)
    many = quota_pb2.AdmitRequest(admissions=[admission(f"user-{n}", 1, 1) for n in range(ADMISSIONS_MAX)])
    large = quota_pb2.AdmitRequest(admissions=[admission("user-0", *[1] * MUTATIONS_MAX)])
    known = quota_pb2.AdmitRequest(
        known=[
            quota_pb2.BucketState(key=quota_pb2.BucketKey(user=f"user-{n}"), tokens=1.0, age_ms=5)
            for n in range(KNOWN_MAX)
        ]
    )
    with held.measuring("buckets that the controller knows"):
        await servicer.Admit(known, None)
    with held.measuring("many requests"):
        await servicer.Admit(many, None)
    with held.measuring("one large request"):
        await servicer.Admit(large, None)
    with held.measuring("description"):
        described = await servicer.DescribeBuckets(quota_pb2.DescribeBucketsRequest(), None)
    assert len(described.buckets) == BUCKETS_MAX
    with held.measuring("description of what was used last"):
        used = await servicer.DescribeBuckets(quota_pb2.DescribeBucketsRequest(used_last_max=BUCKETS_MAX), None)
    assert used.in_use >= ADMISSIONS_MAX
    with held.measuring("a change of everybody's quota"):
        limits = {QuotaEntity(user=DEFAULT): Limit(rate=5.0, burst=9.0)}
        await take_up_limits(term.ledger, QuotaTable(limits=limits), clock)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_the_loop_is_free() -> None:
    run_measured(scenario).assert_free()
