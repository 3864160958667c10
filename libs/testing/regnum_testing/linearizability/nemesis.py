"""Faults done to the members of a store, one after the other, the same ones from the same seed.

A fault hits the leader, another member or two of the three, as a kill -9 or a pause (SIGSTOP), lasts a while, and is
healed before the next one: killed members are started on their data, paused ones go on where they stood. A leader that
is paused for longer than an election takes believes for a moment that it still leads.
"""

import asyncio
import enum
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from regnum_service.clock import Clock

from regnum_testing.linearizability.targets import Target


class Harm(enum.Enum):
    """What is done to a member."""

    KILL = "kill"
    PAUSE = "pause"


class Victims(enum.Enum):
    """Whom it is done to."""

    LEADER = "leader"
    FOLLOWER = "follower"
    MAJORITY = "majority"
    """Leader and a follower: nothing can be written meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault."""

    harm: Harm
    """What."""
    victims: Victims
    """To whom."""
    lasting_s: float
    """Seconds until it is healed."""
    calm_s: float
    """Seconds of peace after that."""


_FIRST: Final = (
    (Harm.KILL, Victims.LEADER),
    (Harm.PAUSE, Victims.LEADER),
    (Harm.KILL, Victims.FOLLOWER),
    (Harm.PAUSE, Victims.FOLLOWER),
    (Harm.KILL, Victims.MAJORITY),
    (Harm.PAUSE, Victims.MAJORITY),
)
"""Every kind comes once in six faults."""


def plan(seed: int, faults: int, *, longest_s: float = 4.0) -> list[Fault]:
    """That many faults, from a seed; six in a row are all different."""
    chance = random.Random(seed)
    planned: list[Fault] = []
    while len(planned) < faults:
        for harm, victims in chance.sample(_FIRST, len(_FIRST)):
            lasting_s = chance.uniform(0.2, longest_s)
            planned.append(Fault(harm=harm, victims=victims, lasting_s=lasting_s, calm_s=chance.uniform(0.2, 1.5)))
    return planned[:faults]


class Nemesis:
    """Carries faults out."""

    def __init__(self, target: Target, clock: Clock, chance: random.Random) -> None:
        self._target = target
        self._clock = clock
        self._chance = chance
        self.done: Final[list[Fault]] = []
        """Faults that were carried out and healed."""

    async def carry_out(self, fault: Fault) -> None:
        """Do it, wait, heal it, and return when all members serve and the calm is over."""
        members = await self._victims(fault.victims)
        harm = self._target.kill if fault.harm is Harm.KILL else self._target.pause
        for member in members:
            await asyncio.to_thread(harm, member)
        try:
            await self._clock.sleep(fault.lasting_s)
        finally:
            await self._heal(fault.harm, members)
        for member in members:
            await asyncio.to_thread(self._target.wait_until_serving, member)
        self.done.append(fault)
        await self._clock.sleep(fault.calm_s)

    async def _victims(self, victims: Victims) -> Sequence[int]:
        leader = await asyncio.to_thread(self._target.leader)
        follower = self._chance.choice([member for member in self._target.members if member != leader])
        match victims:
            case Victims.LEADER:
                return [leader]
            case Victims.FOLLOWER:
                return [follower]
            case Victims.MAJORITY:
                return [leader, follower]

    async def _heal(self, harm: Harm, members: Sequence[int]) -> None:
        heal = self._target.launch if harm is Harm.KILL else self._target.resume
        for member in members:
            await asyncio.to_thread(heal, member)

    def members_harmed(self, harm: Harm) -> int:
        """How many processes that was done to."""
        return sum(2 if fault.victims is Victims.MAJORITY else 1 for fault in self.done if fault.harm is harm)
