"""A broker reads quotas when a quota was changed, and not for whatever else is announced beside them."""

import asyncio

from regnum_broker.limits.quota_watch import follow_quotas
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Store
from regnum_coordination.recipes.config_mutations import quota_mutation
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.mutating import Carried, Change, Mutation, NodeMutations
from regnum_coordination.recipes.resolved_store import ResolvedStore
from regnum_model import paths
from regnum_model.mutations import digest_of
from regnum_model.quota_changes import EntityChange, LimitChange
from regnum_model.quotas import CHANGES, PRODUCER_BYTE_RATE, QuotaEntity, QuotaTable
from regnum_service.clock import SystemClock
from regnum_testing.clock import FakeClock
from regnum_testing.waiting import until

ANN = QuotaEntity(user="ann")
PAIR = QuotaEntity(user="ann", client_id="app")


async def test_quotas_are_read_for_quotas_and_for_what_nobody_can_tell_and_not_for_each_rule_or_token() -> None:
    store, clock, read = MemoryStore(MemoryServer()), FakeClock(), list[QuotaTable]()
    await ensure_folders(store, paths.PERSISTENT_FOLDERS, clock)
    mutations = NodeMutations(ResolvedStore(store, clock, deadline_s=5), wall_ms=clock.wall_ms)

    async def wait_store() -> Store:
        return store

    async def limit(entity: QuotaEntity, value: float) -> None:
        change = EntityChange(entity=entity, limits=(LimitChange(key=PRODUCER_BYTE_RATE, value=value),))
        assert isinstance(await mutations.carry_out(quota_mutation(change, id=None)), Carried)
        await until(lambda: read[-1].client_rates.get(PRODUCER_BYTE_RATE, {}).get(entity) == value)

    async def change_something_else(number: int) -> None:
        mutation = Mutation(
            path="/config/topics/t",
            id=f"id-{number}",
            digest=digest_of("set", (str(number),)),
            decide=lambda _: Change(data=b'{"version":1,"config":{"a":"%d"}}' % number),
        )
        done = await mutations.carry_out(mutation)
        assert isinstance(done, Carried)
        assert done.change

    following = asyncio.create_task(follow_quotas(wait_store, read.append, SystemClock()))
    try:
        await until(lambda: len(read) == 1)
        await limit(ANN, 1_000.0)
        for number in range(20):
            await change_something_else(number)
        await limit(PAIR, 2_000.0)
        # The first reading, and one for each change of a quota.
        assert len(read) == 3
        await store.create(f"{CHANGES}/by-hand", b"")
        await until(lambda: len(read) == 4)
        await limit(ANN, 3_000.0)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
