"""Faults on a store that only remembers what was done to it."""

import asyncio
import random

import pytest
from regnum_testing.clock import FakeClock
from regnum_testing.linearizability.nemesis import Fault, Harm, Nemesis, Victims, plan
from regnum_testing.linearizability.targets import Target
from regnum_testing.waiting import eventually, within


class RememberingTarget(Target):
    """Member 2 leads."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def url(self) -> str:
        return "memory://nowhere"

    def start(self) -> None:
        self.done.append("start")

    def stop(self) -> None:
        self.done.append("stop")

    def leader(self) -> int:
        return 2

    def kill(self, member: int) -> None:
        self.done.append(f"kill {member}")

    def launch(self, member: int) -> None:
        self.done.append(f"launch {member}")

    def pause(self, member: int) -> None:
        self.done.append(f"pause {member}")

    def resume(self, member: int) -> None:
        self.done.append(f"resume {member}")

    def wait_until_serving(self, member: int) -> None:
        self.done.append(f"wait {member}")


def test_the_same_seed_does_the_same_harm() -> None:
    assert plan(4, 20) == plan(4, 20)
    assert plan(4, 20) != plan(5, 20)


def test_six_faults_in_a_row_are_all_different() -> None:
    for seed in range(10):
        faults = plan(seed, 12)
        assert len({(fault.harm, fault.victims) for fault in faults[:6]}) == 6
        assert len({(fault.harm, fault.victims) for fault in faults[6:]}) == 6


async def carry_out(target: RememberingTarget, harm: Harm, victims: Victims) -> Nemesis:
    clock = FakeClock()
    nemesis = Nemesis(target, clock, random.Random(1))
    fault = Fault(harm=harm, victims=victims, lasting_s=2, calm_s=1)
    carrying = asyncio.create_task(nemesis.carry_out(fault), name="fault")

    async def sleeping() -> bool:
        return clock.sleepers == 1

    await eventually(sleeping, what="the harm")
    assert not any(word in done for done in target.done for word in ("launch", "resume"))
    await clock.advance(2)
    await eventually(sleeping, what="the calm")
    await clock.advance(1)
    await within(carrying)
    return nemesis


async def test_a_killed_leader_is_started_again() -> None:
    target = RememberingTarget()
    nemesis = await carry_out(target, Harm.KILL, Victims.LEADER)
    assert target.done == ["kill 2", "launch 2", "wait 2"]
    assert (nemesis.members_harmed(Harm.KILL), nemesis.members_harmed(Harm.PAUSE)) == (1, 0)


async def test_a_paused_majority_goes_on() -> None:
    target = RememberingTarget()
    nemesis = await carry_out(target, Harm.PAUSE, Victims.MAJORITY)
    follower = target.done[1].removeprefix("pause ")
    assert follower in {"0", "1"}
    assert target.done == [
        "pause 2",
        f"pause {follower}",
        "resume 2",
        f"resume {follower}",
        "wait 2",
        f"wait {follower}",
    ]
    assert (nemesis.members_harmed(Harm.KILL), nemesis.members_harmed(Harm.PAUSE)) == (0, 2)


async def test_what_was_harmed_is_healed_also_when_it_is_broken_off() -> None:
    target, clock = RememberingTarget(), FakeClock()
    fault = Fault(harm=Harm.PAUSE, victims=Victims.LEADER, lasting_s=2, calm_s=1)
    carrying = asyncio.create_task(Nemesis(target, clock, random.Random(1)).carry_out(fault), name="fault")

    async def sleeping() -> bool:
        return clock.sleepers == 1

    await eventually(sleeping)
    carrying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await carrying
    assert target.done == ["pause 2", "resume 2"]
