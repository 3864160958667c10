"""Clients in several processes compete for nodes of a three-node store whose members are killed and paused.

Goals: every answer of a driver and its store, put together over processes, is explained by one order (the port's
promise for compare-and-set and for reads that are ``current``), whatever happens to a minority or, for a while, to the
majority of the store.

Algorithm: start the store and the processes of clients; when all have sessions, carry faults out one after the other
and heal each; end the processes by closing their standard input; put their histories together and judge them.
"""

import asyncio
import random
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from regnum_service.clock import Clock

from regnum_testing.linearizability.history import read_history, write_history
from regnum_testing.linearizability.nemesis import Fault, Harm, Nemesis
from regnum_testing.linearizability.register import Action, Operation, Outcome
from regnum_testing.linearizability.targets import Target
from regnum_testing.linearizability.verdict import Verdict, judge
from regnum_testing.linearizability.worker import Work

READY_WITHIN_S: Final = 60.0
"""Seconds that a process of clients may take to have its sessions, and to end."""


class CampaignFailedError(Exception):
    """Clients did not start or broke down; the message says where their output is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How large a campaign is."""

    seed: int
    """Where the choices of clients and nemesis begin."""
    faults: Sequence[Fault]
    """What is done to the store, in this order."""
    processes: int = 3
    """Processes of clients."""
    clients: int = 3
    """Clients of each process, with a session each."""
    nodes: int = 3
    """Nodes that all of them compete for at a time."""
    seconds: float | None = None
    """When to leave the rest of the faults out; None: never."""
    current_reads: bool = True
    """Whether reads are current, as the promise wants them."""
    operation_timeout_s: float = 1.5
    """Time-out of an operation: short, so that there are unknown outcomes."""
    session_timeout_s: float = 6.0
    """Time-out of a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a campaign found."""

    verdict: Verdict
    """Whether the history is linearizable."""
    kills: int
    """Members killed."""
    pauses: int
    """Members paused."""
    seconds: float
    """How long the clients worked."""
    history: Path
    """The whole history, without reads that got no answer: they tell nothing, and keep other judges busy."""

    def __str__(self) -> str:
        """For people."""
        return (
            f"{self.verdict}\n{self.kills} members killed, {self.pauses} paused in {self.seconds:.0f} s; "
            f"history: {self.history}"
        )


async def run_campaign(target: Target, directory: Path, plan: Plan, clock: Clock) -> Result:
    """Run it against a store that serves; histories and logs of the processes are left in ``directory``."""
    works = [
        Work(
            url=target.url(),
            first_client=number * plan.clients,
            clients=plan.clients,
            nodes=plan.nodes,
            seed=plan.seed,
            history=directory / f"clients{number}.jsonl",
            operation_timeout_s=plan.operation_timeout_s,
            session_timeout_s=plan.session_timeout_s,
            current_reads=plan.current_reads,
        )
        for number in range(plan.processes)
    ]
    nemesis = Nemesis(target, clock, random.Random(plan.seed))
    async with AsyncExitStack() as stack:
        processes = [ClientProcess(work) for work in works]
        for process in processes:
            stack.push_async_callback(process.kill)
            await process.start()
        for process in processes:
            await process.wait_ready()
        started_s = clock.monotonic()
        for fault in plan.faults:
            if plan.seconds is not None and clock.monotonic() - started_s > plan.seconds:
                break
            await nemesis.carry_out(fault)
        lasted_s = clock.monotonic() - started_s
        for process in processes:
            await process.finish()
    return await asyncio.to_thread(_judged, works, directory, nemesis, lasted_s)


def _judged(works: Sequence[Work], directory: Path, nemesis: Nemesis, lasted_s: float) -> Result:
    history: list[Operation] = [
        operation
        for work in works
        for operation in read_history(work.history)
        if not (operation.action is Action.GET and operation.outcome is Outcome.UNKNOWN)
    ]
    history.sort(key=lambda operation: operation.call_ns)
    file = directory / "history.jsonl"
    write_history(file, history)
    return Result(
        verdict=judge(history),
        kills=nemesis.members_harmed(Harm.KILL),
        pauses=nemesis.members_harmed(Harm.PAUSE),
        seconds=lasted_s,
        history=file,
    )


class ClientProcess:
    """A process of clients; ended by the end of its input."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._log = work.history.with_suffix(".log")
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it and return at once."""
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "regnum_testing.linearizability.worker", *self._work.arguments()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )

    async def wait_ready(self) -> None:
        """Return when all its clients have sessions."""
        process = self._running()
        if process.stdout is None:
            raise AssertionError("the output of the process is a pipe")
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                line = await process.stdout.readline()
        except TimeoutError:
            raise CampaignFailedError(f"clients have no session after {READY_WITHIN_S} s; see {self._log}") from None
        if line.strip() != b"ready":
            raise CampaignFailedError(f"clients did not start; see {self._log}")

    async def finish(self) -> None:
        """Let it end its operations and end."""
        process = self._running()
        if process.stdin is None:
            raise AssertionError("the input of the process is a pipe")
        process.stdin.close()
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                status = await process.wait()
        except TimeoutError:
            raise CampaignFailedError(f"clients do not end; see {self._log}") from None
        if status != 0:
            raise CampaignFailedError(f"clients ended with {status}; see {self._log}")

    async def kill(self) -> None:
        """End it at once. Does nothing when it has ended."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise AssertionError("start it first")
        return self._process
