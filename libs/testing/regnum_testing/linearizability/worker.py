"""A process of clients that compete for nodes of a store, each with a session of its own.

Started by ``campaign``. It prints ``ready`` when every client has its session, works until its standard input ends,
and writes its history, one operation a line. Nodes are left for new ones every 20 s of the machine's monotonic clock,
the same in all processes: so the history of a node stays short enough to be judged at once.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from regnum_coordination import open_store
from regnum_coordination.errors import ConnectionLoss, SessionExpired
from regnum_coordination.port import Store
from regnum_coordination.timing import Backoff
from regnum_service.clock import Clock, SystemClock

from regnum_testing.linearizability.history import to_line
from regnum_testing.linearizability.recorder import Recorder
from regnum_testing.linearizability.register import Operation, Outcome
from regnum_testing.linearizability.traffic import Competitor

_AGE_NS: Final = 20_000_000_000
"""Nanoseconds after which clients turn to new nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a process is to do."""

    url: str
    """Address of the store."""
    first_client: int
    """Number of the first client, over all processes."""
    clients: int
    """Clients of this process."""
    nodes: int
    """Nodes that all clients compete for at a time."""
    seed: int
    """Where choices begin."""
    history: Path
    """File to write."""
    operation_timeout_s: float
    """As in ``open_store``."""
    session_timeout_s: float
    """As in ``open_store``."""
    current_reads: bool = True
    """Whether reads are current; if not, ZooKeeper's history is expected not to be linearizable."""
    longest_pause_s: float = 0.02
    """Longest pause between two operations of a client."""

    def arguments(self) -> list[str]:
        """As the command line of ``worker``."""
        return [
            *("--url", self.url, "--first-client", str(self.first_client), "--clients", str(self.clients)),
            *("--nodes", str(self.nodes), "--seed", str(self.seed), "--history", str(self.history)),
            *("--operation-timeout-s", str(self.operation_timeout_s)),
            *("--session-timeout-s", str(self.session_timeout_s)),
            *(() if self.current_reads else ("--stale-reads",)),
        ]


class Client:
    """One client: opens sessions, one after the other, and competes in them."""

    def __init__(self, work: Work, number: int, *, clock: Clock, write_down: Callable[[Operation], None]) -> None:
        self._work = work
        self._number = number
        self._clock = clock
        self._write_down = write_down
        self._chance = random.Random(f"{work.seed}/{number}")
        self._sessions = 0
        self.has_session: Final = asyncio.Event()
        """Set when the first session is open."""

    async def run(self, stopped: asyncio.Event) -> None:
        """Work until ``stopped`` is set."""
        failures = 0
        while not stopped.is_set():
            try:
                store = await open_store(
                    self._work.url,
                    session_timeout_s=self._work.session_timeout_s,
                    operation_timeout_s=self._work.operation_timeout_s,
                )
            except (ConnectionLoss, SessionExpired):
                failures += 1
                await self._clock.sleep(Backoff().pause_s(failures))
                continue
            failures = 0
            self._sessions += 1
            self.has_session.set()
            try:
                await self._compete(store, stopped)
            except SessionExpired:
                continue
            finally:
                await store.close()

    async def _compete(self, store: Store, stopped: asyncio.Event) -> None:
        recorder = Recorder(
            store,
            client=self._number,
            monotonic_ns=time.monotonic_ns,
            write_down=self._write_down,
            current_reads=self._work.current_reads,
        )
        age = -1
        competitor: Competitor | None = None
        while not stopped.is_set():
            now = time.monotonic_ns() // _AGE_NS
            if competitor is None or now != age:
                age = now
                competitor = Competitor(
                    recorder,
                    [f"/node-{age}-{node}" for node in range(self._work.nodes)],
                    self._chance,
                    name=f"{self._number}.{self._sessions}.{age}",
                )
            operation = await competitor.act()
            # Who is refused at once by a member that is gone asks less often: every unknown outcome costs the judge.
            pauses = 5 if operation.outcome is Outcome.UNKNOWN else 1
            await self._clock.sleep(self._chance.uniform(0, self._work.longest_pause_s * pauses))


async def work_until_told(work: Work, clock: Clock) -> None:
    """All clients, until standard input ends."""
    with work.history.open("w", encoding="utf-8", buffering=1) as file:

        def write_down(operation: Operation) -> None:
            file.write(to_line(operation) + "\n")

        stopped = asyncio.Event()
        numbers = range(work.first_client, work.first_client + work.clients)
        clients = [Client(work, number, clock=clock, write_down=write_down) for number in numbers]
        async with asyncio.TaskGroup() as group:
            for number, client in zip(numbers, clients, strict=True):
                group.create_task(client.run(stopped), name=f"client {number}")
            for client in clients:
                await client.has_session.wait()
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.read)
            stopped.set()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process."""
    parser = argparse.ArgumentParser(prog="python -m regnum_testing.linearizability.worker", description=__doc__)
    for name, kind in {
        "--url": str,
        "--first-client": int,
        "--clients": int,
        "--nodes": int,
        "--seed": int,
        "--history": Path,
        "--operation-timeout-s": float,
        "--session-timeout-s": float,
    }.items():
        parser.add_argument(name, type=kind, required=True)
    parser.add_argument("--stale-reads", dest="current_reads", action="store_false")
    asyncio.run(work_until_told(Work(**vars(parser.parse_args(arguments))), SystemClock()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
