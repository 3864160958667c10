"""A controller that stood still for twice its session time-out, with work in its hands, changes nothing when it wakes.

Its successor has finished that work by then. What the sleeper was about to write is refused by the store, what it was
about to order by the brokers, and it stands by like any other candidate.
"""

import asyncio
import json
import random
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc
import pytest
from regnum.replication.v1 import control_pb2, control_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_coordination.errors import NoNode
from regnum_local.plan import Role
from regnum_model import paths
from regnum_service.channel import aio_channel
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error
from regnum_testing.failpoint_cluster import FailpointCluster
from regnum_testing.leftovers import versions
from regnum_testing.topic_changes import (
    WATCHED,
    Addition,
    Change,
    Creation,
    Deletion,
    PreferredElection,
    Reassignment,
    mutation_id,
)
from regnum_testing.topic_client import Answer, Hands, hands_on
from regnum_testing.waiting import DEADLINE_S, eventually, within

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(900)]

# Of each node of the store: content, version, and which creation of it it is.
Versions = dict[str, tuple[bytes, int, int]]

CLOCK = SystemClock()
SESSION_S = 5.0
"""The shortest that etcd allows."""
TOLD = {Role.ELECTION: ("--session-timeout-s", f"{SESSION_S:g}")}


async def owner_of(failpoints: FailpointCluster, name: str) -> int | None:
    """Session by which an election process is registered."""
    stat = await failpoints.store.exists(f"{paths.ELECTION_IDS}/{name.rpartition('-')[2]}", current=True)
    return None if stat is None else stat.ephemeral_owner


async def reign(failpoints: FailpointCluster) -> int:
    """The controller epoch."""
    return int((await failpoints.store.get(paths.CONTROLLER_EPOCH, current=True)).data)


async def sleeps_and_wakes(
    hands: Hands, sleeper: str, changes: dict[str, tuple[Change, str]], asking: Any, *, unsent: int = 0
) -> tuple[Versions, Versions]:
    """From the moment at which the controller stands still: its successor finishes, it wakes, nothing changes.

    Returns the store as it was before the waking, and the same nodes at the end.

    Args:
        hands: the client.
        sleeper: name of the process.
        changes: what is under way, and its mutation id, by topic.
        asking: the calls of the changes, which are under way, as one.
        unsent: orders that it noted and has not sent.
    """
    failpoints = hands.failpoints
    sent = max((step["number"] for step in failpoints.steps(sleeper) if "order" in step), default=0) - unsent
    stopped_s, past, owner = CLOCK.monotonic(), await reign(failpoints), await owner_of(failpoints, sleeper)
    answers: list[Answer] = await within(asking, 2 * DEADLINE_S)
    assert [code for code, _ in answers] == [errors_pb2.ERROR_CODE_NONE] * len(answers)
    await failpoints.nothing_left()
    assert await failpoints.controller() != sleeper

    async def twice_the_time_out() -> bool:
        return CLOCK.monotonic() - stopped_s >= 2 * SESSION_S

    await eventually(twice_the_time_out)
    before, noted = await versions(failpoints.store), len(failpoints.steps(sleeper))
    failpoints.cluster.resume(sleeper)

    async def stands_by() -> bool:
        """It has found its session gone, and has opened another one."""
        return await owner_of(failpoints, sleeper) not in {None, owner}

    await eventually(stands_by, what=f"a new session of {sleeper}")
    assert await versions(failpoints.store) == before
    # Answers that came while it slept are read when it wakes; what goes out then no broker takes.
    late = [step for step in failpoints.steps(sleeper)[noted:] if "taken" in step and step["number"] > sent]
    assert late == []
    for id in (1, 2, 3):
        assert await refusal(failpoints, id, sleeper, past) == errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH
    for (topic, (change, mutation)), answer in zip(changes.items(), answers, strict=True):
        assert await change.ask(hands, topic, mutation) == answer
        await change.check(hands, topic)
    await failpoints.nothing_left()
    return before, {path: found for path, found in (await versions(failpoints.store)).items() if path in before}


async def refusal(failpoints: FailpointCluster, broker: int, sender: str, epoch: int) -> int:
    """What a broker answers to orders in the name of a past reign."""
    node = json.loads((await failpoints.store.get(f"{paths.BROKER_IDS}/{broker}", current=True)).data)
    stat = await failpoints.store.exists(f"{paths.BROKER_IDS}/{broker}", current=True)
    assert stat is not None, node
    member = failpoints.cluster.plan.get(f"broker-{broker}")
    assert member is not None
    said = {
        "controller_id": int(sender.rpartition("-")[2]),
        "controller_epoch": epoch,
        "broker_epoch": stat.creation_id,
    }
    codes = set()
    async with aio_channel(str(member.address("internal"))) as channel:
        stub = control_pb2_grpc.ReplicaControlServiceStub(channel)
        calls: list[Awaitable[object]] = [
            stub.LeaderAndIsr(control_pb2.LeaderAndIsrRequest(**said, parts=1), timeout=DEADLINE_S),
            stub.StopReplica(control_pb2.StopReplicaRequest(**said), timeout=DEADLINE_S),
        ]
        for one in calls:
            try:
                codes.add(str(await one))
            except grpc.aio.AioRpcError as error:
                codes.add(from_rpc_error(error).code)
    (code,) = codes
    assert isinstance(code, int), code
    return code


QUEUED = [
    (Creation, f"step=write path={WATCHED} n=2"),
    (Addition, f"step=write path={WATCHED} n=1"),
    (Reassignment, f"step=write path={WATCHED} n=2"),
    (PreferredElection, f"step=write path={WATCHED} n=1"),
    (Addition, "step=order kind=LeaderAndIsr topic={topic} n=1"),
    (Deletion, "step=order kind=StopReplica topic={topic} n=1"),
]
"""Changes, and where in them the controller stands still."""


@pytest.mark.parametrize("store", ["etcd", "zookeeper"])
async def test_a_controller_that_slept_before_a_write_or_an_order_changes_nothing_when_it_wakes(
    tmp_path: Path, store: str
) -> None:
    async with hands_on(tmp_path, coordination=store, extra=TOLD) as hands:
        failpoints = hands.failpoints
        for number, (kind, place) in enumerate(QUEUED):
            change, topic, mutation = kind(), f"t{number}", mutation_id()
            await change.prepare(hands, topic)
            await failpoints.nothing_left()
            sleeper = await failpoints.controller()
            failpoints.arm(sleeper, f"action=stop when=before {place.format(topic=topic)}")
            asking = asyncio.ensure_future(asyncio.gather(change.ask(hands, topic, mutation)))
            assert await failpoints.fired(sleeper), place
            try:
                unsent = 1 if place.startswith("step=order") else 0
                before, after = await sleeps_and_wakes(
                    hands, sleeper, {topic: (change, mutation)}, asking, unsent=unsent
                )
                assert after == before
            except (AssertionError, RegnumError, NoNode) as error:
                raise AssertionError(f"stopped before {place}, topic {topic}: {error}") from error


@pytest.mark.parametrize("store", ["etcd", "zookeeper"])
async def test_a_controller_that_slept_at_any_moment_of_several_calls_changes_nothing_when_it_wakes(
    tmp_path: Path, store: str
) -> None:
    chance = random.Random(7)
    async with hands_on(tmp_path, coordination=store, extra=TOLD) as hands:
        failpoints = hands.failpoints
        for number in range(3):
            kinds = (Addition, Reassignment, PreferredElection)
            changes = {f"t{number}-{index}": (kind(), mutation_id()) for index, kind in enumerate(kinds)}
            for topic, (change, _) in changes.items():
                await change.prepare(hands, topic)
            await failpoints.nothing_left()
            sleeper, began_s = await failpoints.controller(), CLOCK.monotonic()
            asking = asyncio.ensure_future(
                asyncio.gather(*(change.ask(hands, topic, mutation) for topic, (change, mutation) in changes.items()))
            )
            late_s = chance.uniform(0.0, 0.15)

            async def the_moment(began_s: float = began_s, late_s: float = late_s) -> bool:
                return CLOCK.monotonic() - began_s >= late_s

            await eventually(the_moment)
            failpoints.cluster.pause(sleeper)
            try:
                before, after = await sleeps_and_wakes(hands, sleeper, changes, asking)
                assert after == before
            except (AssertionError, RegnumError, NoNode) as error:
                raise AssertionError(
                    f"stopped {late_s * 1000:.0f} ms after the calls of round {number}: {error}"
                ) from error
