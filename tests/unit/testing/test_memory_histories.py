"""Recorded sessions of the memory driver, whose faults are known to the last."""

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence

import pytest
from regnum_coordination.drivers.memory import HeldWrite, MemoryServer, MemoryStore
from regnum_coordination.errors import ConnectionLoss, SessionExpired
from regnum_coordination.port import Absent, Node, OperationResult, Stat
from regnum_coordination.port import Operation as Step
from regnum_testing.linearizability.recorder import Recorder
from regnum_testing.linearizability.register import Action, Operation, Outcome
from regnum_testing.linearizability.traffic import Competitor
from regnum_testing.linearizability.verdict import judge
from regnum_testing.waiting import within

KEYS = ("/a", "/b")


class Scene:
    """Clients of one memory server, and what they saw."""

    def __init__(self, store_of: Callable[[MemoryServer], MemoryStore] = MemoryStore) -> None:
        self.server = MemoryServer()
        self.history: list[Operation] = []
        self._store_of = store_of
        self._ticks = itertools.count()
        self._clients = itertools.count()

    def recorder(self, *, current_reads: bool = True) -> Recorder:
        return Recorder(
            self._store_of(self.server),
            client=next(self._clients),
            monotonic_ns=lambda: next(self._ticks),
            write_down=self.history.append,
            current_reads=current_reads,
        )

    async def compete(self, clients: int, operations: int, *, seed: int) -> None:
        async def live(number: int) -> None:
            competitor = Competitor(self.recorder(), KEYS, random.Random(f"{seed}/{number}"), name=f"{number}")
            for _ in range(operations):
                await competitor.act()

        await asyncio.gather(*(live(number) for number in range(clients)))


async def interfere(scene: Scene, chance: random.Random, count: int) -> int:
    """Lost replies, lost writes, late writes, held reads; returns how many late writes did come."""
    arrived = 0
    under_way: list[HeldWrite] = []
    for _ in range(count):
        match chance.randrange(5):
            case 0:
                scene.server.lose_reply()
            case 1:
                scene.server.drop_write()
            case 2:
                under_way.append(scene.server.hold_write())
            case 3:
                scene.server.freeze_reads()
            case _:
                scene.server.thaw_reads()
        # Turns, by chance: what is under way gets so far and no further.
        for _ in range(chance.randrange(8)):
            await asyncio.sleep(0)
        for held in [held for held in under_way if held.arrived.is_set() and chance.random() < 0.3]:
            under_way.remove(held)
            held.commit()
            arrived += 1
    return arrived


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_is_lost_or_late_the_history_is_linearizable(seed: int) -> None:
    scene = Scene()
    competing = asyncio.create_task(scene.compete(4, 60, seed=seed), name="clients")
    arrived = await interfere(scene, random.Random(seed), 40)
    await within(competing)
    verdict = judge(scene.history)
    assert verdict.is_linearizable, str(verdict)
    assert len(scene.history) >= 240
    assert verdict.unknown > 5
    assert arrived > 0
    assert {one.outcome for one in scene.history} == set(Outcome)


async def test_reads_that_need_not_be_current_are_found_out() -> None:
    scene = Scene()
    writer, reader = scene.recorder(), scene.recorder(current_reads=False)
    await writer.create("/a", "x")
    scene.server.freeze_reads()
    await writer.set("/a", "y", version=0)
    await reader.get("/a")
    (violation,) = judge(scene.history).violations
    assert violation.culprit.version == 0


class StaleStore(MemoryStore):
    """A driver that takes no notice of ``current``."""

    async def get(self, path: str, *, current: bool = False) -> Node:
        return await super().get(path)


async def test_a_driver_that_answers_from_the_past_is_found_out() -> None:
    scene = Scene(StaleStore)
    await scene.compete(3, 20, seed=1)
    scene.server.freeze_reads()
    await scene.compete(3, 20, seed=2)
    assert not judge(scene.history).is_linearizable


class CarelessStore(MemoryStore):
    """A driver for which version 0 is no version."""

    async def set(self, path: str, data: bytes, *, version: int | None) -> Stat:
        return await super().set(path, data, version=version or None)


async def test_a_driver_that_forgets_version_0_is_found_out() -> None:
    scene = Scene(CarelessStore)
    await scene.compete(4, 60, seed=1)
    assert not judge(scene.history).is_linearizable


class HopefulStore(MemoryStore):
    """A driver that repeats by itself what got no answer, and so may do it twice."""

    async def set(self, path: str, data: bytes, *, version: int | None) -> Stat:
        try:
            return await super().set(path, data, version=version)
        except ConnectionLoss:
            return await super().set(path, data, version=version)


async def test_a_driver_that_takes_its_own_success_for_a_refusal_is_found_out() -> None:
    """Step 1: the set happens, its answer is lost. Step 2: the repeat is refused. Step 3: the data is there."""
    scene = Scene(HopefulStore)
    client = scene.recorder()
    await client.create("/a", "x")
    scene.server.lose_reply()
    assert (await client.set("/a", "y", version=0)).outcome is Outcome.BAD_VERSION
    await client.get("/a")
    (violation,) = judge(scene.history).violations
    assert violation.culprit.action is Action.SET


class HeedlessStore(MemoryStore):
    """A driver that takes no notice of checks of absence."""

    async def multi(self, operations: Sequence[Step]) -> tuple[OperationResult, ...]:
        return await super().multi([one for one in operations if not isinstance(one, Absent)])


async def test_a_driver_that_checks_no_absence_is_found_out() -> None:
    scene = Scene(HeedlessStore)
    await scene.compete(4, 60, seed=1)
    assert not judge(scene.history).is_linearizable


async def test_a_check_of_absence_tells_what_a_get_or_a_refused_creation_tells() -> None:
    scene = Scene()
    client = scene.recorder()
    await client.create_beside("/a", "x", absent="/b")
    await client.create_beside("/b", "y", absent="/a")
    await client.create_beside("/a", "z", absent="/b")
    scene.server.lose_reply()
    await client.create_beside("/c", "w", absent="/b")
    told = [(one.key, one.action, one.outcome) for one in scene.history]
    assert told == [
        ("/b", Action.GET, Outcome.NO_NODE),
        ("/a", Action.CREATE, Outcome.OK),
        ("/a", Action.CREATE, Outcome.NODE_EXISTS),
        ("/b", Action.GET, Outcome.NO_NODE),
        ("/a", Action.CREATE, Outcome.NODE_EXISTS),
        ("/c", Action.CREATE, Outcome.UNKNOWN),
    ]
    assert judge(scene.history).is_linearizable


async def test_what_a_lost_session_asked_for_is_not_in_the_history() -> None:
    scene = Scene()
    client = scene.recorder()
    await client.create("/a", "x")
    scene.server.expire(scene.server.sessions()[0], announce=False)
    with pytest.raises(SessionExpired):
        await client.set("/a", "y", version=0)
    await scene.recorder().get("/a")
    assert [one.action for one in scene.history] == [Action.CREATE, Action.GET]
    assert judge(scene.history).is_linearizable


async def test_what_was_seen_is_written_down() -> None:
    scene = Scene()
    client = scene.recorder()
    assert (await client.get("/a")).outcome is Outcome.NO_NODE
    assert (await client.create("/a", "x")).outcome is Outcome.OK
    assert (await client.create("/a", "y")).outcome is Outcome.NODE_EXISTS
    assert (await client.set("/a", "z", version=1)).outcome is Outcome.BAD_VERSION
    assert (await client.set("/a", "z", version=0)).outcome is Outcome.OK
    found = await client.get("/a")
    assert (found.version, found.value) == (1, "z")
    scene.server.drop_write()
    assert (await client.delete("/a", version=1)).outcome is Outcome.UNKNOWN
    assert (await client.delete("/a", version=1)).outcome is Outcome.OK
    assert (await client.delete("/a", version=None)).outcome is Outcome.NO_NODE
    assert len(scene.history) == 9
    assert all(one.call_ns < one.return_ns for one in scene.history)
    assert judge(scene.history).is_linearizable
