"""After anything that happens, all processes hold what the controller published, and prove it by one digest."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from regnum_client import Admin, ConfigAlteration, ConfigResource
from regnum_local.cluster import LocalCluster
from regnum_service.errors import RegnumError, reason_of
from regnum_testing.command_here import CommandHere
from regnum_testing.under_load import until
from regnum_testing.waiting import DEADLINE_S

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

MISTAKES = {"INVALID_REQUEST", "INVALID_CONFIG", "INVALID_TOPIC_EXCEPTION", "UNSUPPORTED_VERSION"}
"""What no death of a process explains."""
VICTIMS = ("broker-1", "broker-2", "broker-3", "metadata-1", "metadata-2", "election-1", "election-2", "election-3")


class Mutations:
    """Random changes of topics; what is refused because somebody is dead is a change that was not made."""

    def __init__(self, admin: Admin, chance: random.Random) -> None:
        self._admin = admin
        self._chance = chance
        self._names: list[str] = []
        self._made = 0
        self.done = 0
        """Changes that were answered as made."""
        self.refusals: Counter[str] = Counter()
        """The others, by what they were answered; of some nobody knows whether they were made."""

    async def one(self) -> None:
        chance = self._chance
        kinds: list[Callable[[], Awaitable[object]]] = [self._create, self._create]
        if self._names:
            kinds += [self._delete, self._grow, self._alter, self._alter]
        try:
            await chance.choice(kinds)()
        except RegnumError as error:
            self.refusals[reason_of(error.code)] += 1
        else:
            self.done += 1

    async def _create(self) -> None:
        self._made += 1
        name = f"t{self._made}"
        await self._admin.create_topic(name, partitions=self._chance.randint(1, 4), replication_factor=2)
        self._names.append(name)

    async def _delete(self) -> None:
        await self._admin.delete_topic(self._names.pop(self._chance.randrange(len(self._names))))

    async def _grow(self) -> None:
        name = self._chance.choice(self._names)
        topic = await self._admin.describe_topic(name)
        await self._admin.create_partitions(name, len(topic.partitions) + 1)

    async def _alter(self) -> None:
        name = self._chance.choice(self._names)
        settings = {"min.insync.replicas": str(self._chance.randint(1, 2))}
        await self._admin.alter_config(ConfigAlteration(resource=ConfigResource(topic=name), set=settings))


async def disturbed(cluster: LocalCluster, *, operations: int, kills: int, seed: int) -> Mutations:
    """Changes, with processes killed and started again in between."""
    chance = random.Random(seed)
    every = max(operations // kills, 1)
    down: str | None = None
    async with Admin(cluster.bootstrap, timeout_s=10.0) as admin:
        mutations = Mutations(admin, chance)
        for number in range(operations):
            if number % every == every // 2:
                if down is not None:
                    await cluster.restart(down)
                down = chance.choice(VICTIMS)
                await cluster.kill(down)
            await mutations.one()
    if down is not None:
        await cluster.restart(down)
    return mutations


async def equal_in_time(cluster: LocalCluster, *, expected: int) -> None:
    """All that are there hold the same, some seconds after the last of them was healthy again."""
    for row in cluster.status():
        if row.name in VICTIMS:
            await cluster.wait_healthy(row.name)
    async with Admin(cluster.bootstrap) as admin:

        async def equal() -> bool:
            found = await admin.compare_metadata(wait_s=0.0)
            return (
                found.equal and len(found.processes) == expected and len({one.digest for one in found.processes}) == 1
            )

        await until(equal)
        deep = await admin.compare_metadata(wait_s=DEADLINE_S, recompute=True)
        assert deep.equal, (deep.processes, deep.differences)
        counted = await admin.compare_metadata(wait_s=DEADLINE_S)
        if deep.version == counted.version:
            assert deep.processes[0].digest == counted.processes[0].digest, "what was counted is what there is"


def enough_was_done(mutations: Mutations, *, of: int) -> None:
    """Equal are also processes that heard of nothing.

    How many changes get through beside kills is the machine's matter; below a sixth of them the comparison afterwards
    would say little. A mistake of this test's own is refused however healthy everybody is.
    """
    assert mutations.done >= of // 6, mutations.refusals
    assert not mutations.refusals.keys() & MISTAKES, mutations.refusals


async def test_all_hold_the_same_after_changes_and_kills(cluster: LocalCluster) -> None:
    mutations = await disturbed(cluster, operations=60, kills=4, seed=1)
    enough_was_done(mutations, of=60)
    await equal_in_time(cluster, expected=6)


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_all_hold_the_same_after_a_thousand_changes_and_many_kills(cluster: LocalCluster) -> None:
    mutations = await disturbed(cluster, operations=1_000, kills=30, seed=2)
    enough_was_done(mutations, of=1_000)
    await equal_in_time(cluster, expected=6)


async def test_a_check_while_the_cluster_changes_without_end_finds_nobody_unequal(cluster: LocalCluster) -> None:
    """Compared is what both sides hold at one version; who is further than the controller said is asked again."""
    checks = 12
    async with Admin(cluster.bootstrap) as admin, Admin(cluster.bootstrap) as changing:
        mutations = Mutations(changing, random.Random(5))
        ended = asyncio.Event()

        async def change() -> None:
            while not ended.is_set():
                await mutations.one()

        changes = [asyncio.create_task(change()) for _ in range(4)]
        try:
            await until(some_were_made(mutations))
            found = [await admin.compare_metadata() for _ in range(checks)]
        finally:
            ended.set()
            await asyncio.gather(*changes)
    assert found[-1].version > found[0].version, "else nothing changed meanwhile"
    problems = [one.problem for check in found for one in check.processes if not one.equal]
    assert "it holds something else" not in problems
    assert sum(check.equal for check in found) >= checks - 2, problems


def some_were_made(mutations: Mutations) -> Callable[[], Awaitable[bool]]:
    async def made() -> bool:
        return mutations.done > 2

    return made


async def test_lags_of_all_brokers_are_known(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:

        async def nobody_lags() -> bool:
            found = await admin.describe_propagation()
            brokers = [broker for process in found.metadata_processes for broker in process.brokers]
            return sorted(one.broker_id for one in brokers) == [1, 2, 3] and not any(
                one.versions_behind for one in brokers
            )

        await until(nobody_lags)
        found = await admin.describe_propagation()
    assert all(one.answered for one in found.metadata_processes)
    assert sum(one.payload_serialisations for one in found.metadata_processes) > 0


async def test_the_command_says_that_all_is_equal_and_who_is_not_there(cluster: LocalCluster) -> None:
    regnum = CommandHere(",".join(cluster.bootstrap))
    status, out, _ = await regnum("metadata", "check", "--deep", "-o", "json")
    assert (status, {row["equal"] for row in json.loads(out)["processes"]}) == (0, {True})
    cluster.pause("metadata-1")
    try:
        # (Brokers that it serves may be behind until it is known to be gone.)
        status, out, _ = await regnum("metadata", "check", "--wait", "0", "--timeout", "5", "-o", "json")
        unequal = [row["process"] for row in json.loads(out)["processes"] if not row["equal"]]
        assert (status, "metadata 1" in unequal, "metadata 2" in unequal) == (5, True, False)
    finally:
        cluster.resume("metadata-1")
