"""Whatever happens before, during and after successions, random histories of it (safety rules S10, S12, S14)."""

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from regnum_coordination.errors import BadVersion, NoNode
from regnum_election.controller import Controller
from regnum_election.decisions.isr_reports import ReportedNode
from regnum_election.reign.events import IsrsWritten
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.ids import PartitionKey
from regnum_service.errors import RegnumError
from regnum_testing.reigning import ANYBODY
from regnum_testing.succession_stage import Stage, assigned, create, essence, leaders, quiet, remove_by_hand, unverified

SEEDS = 12
"""Histories of one test."""


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.close()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whatever_a_standby_missed_nothing_is_lost_and_no_order_is_stale(stage: Stage, seed: int) -> None:
    chance = random.Random(seed)
    await stage.begin(1, 2, 3, 4)
    controller = await stage.cluster.reign()
    await play(stage, controller, chance, steps=chance.randint(0, 4))
    await stage.follow()
    await play(stage, controller, chance, steps=chance.randint(1, 6))
    if chance.random() < 0.7:
        stage.standby.hold()
    await play(stage, controller, chance, steps=chance.randint(1, 6))
    # Turns, by chance: what is under way gets so far and no further.
    for _ in range(chance.randint(0, 100)):
        await asyncio.sleep(0)
    await stage.cluster.end_reign()
    await play_without(stage, chance)
    followed = await stage.standby.follower.take()
    assert followed is not None
    epoch, wins = 2, {2: stage.server.newest()}
    successor = await stage.cluster.reign(2, followed=followed, wait=False)
    while chance.random() < 0.5:
        # It dies in the middle of taking over, and whoever comes next has the same old picture.
        for _ in range(chance.randint(0, 400)):
            await asyncio.sleep(0)
        await stage.cluster.end_reign()
        await play_without(stage, chance)
        epoch += 1
        wins[epoch] = stage.server.newest()
        successor = await stage.cluster.reign(epoch, followed=followed, wait=False)
    if chance.random() < 0.7:
        # Reported to its predecessor, and reported to it again as long as nobody has acknowledged it.
        successor.queue.put(IsrsWritten(reports=stage.reports))
    await stage.full_sets(epoch)
    await quiet(stage, successor)
    for number, at_win in wins.items():
        stage.check_orders(number, at_win)
    assert not unverified(successor)
    held, states = essence(successor.picture), stage.server.newest()
    published = stage.cluster.metadata.topics
    assert published == leaders(successor.picture)
    await stage.cluster.end_reign()
    cold = await stage.cluster.reign(epoch + 1)
    await quiet(stage, cold)
    assert essence(cold.picture) == held
    assert stage.server.newest() == states, "a reign that reads everything finds nothing left to do"


async def play(stage: Stage, controller: Controller, chance: random.Random, *, steps: int) -> None:
    """Things happen under a controller; it is not always waited for what it makes of them."""
    for number in range(steps):
        match chance.choice(("create", "create", "delete", "kill", "register", "isr", "isr", "leave", "leave")):
            case "create":
                requests = [_request(chance, f"{chance.getrandbits(24)}-{number}-{i}") for i in range(3)]
                await _perhaps(create(controller, *requests), chance)
            case "delete" if controller.picture.names:
                request = DeletionRequest(
                    name=chance.choice(sorted(controller.picture.names)), topic_id=None, mutation=None
                )
                await _perhaps(controller.topics.delete([request], wait_s=5.0, account=ANYBODY), chance)
            case "leave":
                broker = chance.choice(stage.live())
                await _perhaps(controller.brokers.controlled_shutdown(broker.id, broker.epoch, wait_s=5.0), chance)
            case "isr":
                reports = await shrink_some(stage, chance)
                if chance.random() < 0.5:
                    controller.queue.put(IsrsWritten(reports=reports))
            case what:
                await _brokers(stage, chance, what)


async def play_without(stage: Stage, chance: random.Random) -> None:
    """Things happen while nobody reigns."""
    if chance.random() < 0.5:
        await _brokers(stage, chance, chance.choice(("kill", "register")))
    if chance.random() < 0.5:
        await shrink_some(stage, chance)
    names = (await stage.cluster.outside.children(paths.TOPICS)).names
    if names and chance.random() < 0.3:
        await remove_by_hand(stage, chance.choice(names))


async def _perhaps(work: Coroutine[Any, Any, object], chance: random.Random) -> None:
    """Wait for an answer, or for some turns of the loop only."""
    task = asyncio.create_task(work)
    if chance.random() < 0.5:
        await asyncio.wait([task])
    else:
        # As above.
        for _ in range(chance.randint(0, 60)):
            await asyncio.sleep(0)

    def ended(task: asyncio.Task[object]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, RegnumError), error

    task.add_done_callback(ended)


async def _brokers(stage: Stage, chance: random.Random, what: str) -> None:
    live = stage.live()
    if what == "kill" and len(live) > 1:
        stage.cluster.kill(chance.choice(live).id)
    elif what == "register":
        id = chance.choice(sorted(stage.cluster.brokers))
        await stage.register(id, log_id=f"log-{id}-{chance.getrandbits(8)}" if chance.random() < 0.2 else None)


async def shrink_some(stage: Stage, chance: random.Random) -> dict[PartitionKey, ReportedNode | None]:
    """Leaders that live put followers out of their ISRs; what they report."""
    shrunk: dict[PartitionKey, ReportedNode | None] = {}
    outside = stage.cluster.outside
    for name in (await outside.children(paths.TOPICS)).names:
        if chance.random() < 0.5:
            continue
        with suppress(NoNode, BadVersion):
            state = await stage.cluster.state(name, 0)
            broker = stage.cluster.brokers.get(state.leader)
            if broker is not None and not broker.down and state.members[state.leader].broker_epoch == broker.epoch:
                await stage.leader_writes(name, 0, (state.leader,))
                node = await outside.get(paths.leader_and_isr(name, 0))
                report = ReportedNode(broker=broker.id, epoch=broker.epoch, version=node.stat.version, data=node.data)
                shrunk[PartitionKey(state.topic_id, 0)] = report
    stage.reports.update(shrunk)
    return shrunk


def _request(chance: random.Random, name: str) -> TopicRequest:
    partitions = [chance.sample((1, 2, 3, 4), chance.randint(2, 3)) for _ in range(chance.randint(1, 3))]
    return assigned(name, *partitions)
