"""A known delay in each step of a failover, and where the traces say that the time went.

python -m regnum_testing.delayed_steps --ms 200 --rounds 5 [--step fenced ...]    a table, and as JSON with -o json

One cluster: a leader is killed again and again under load, first without a delay and then with one in each step. A
step's figure is the median of its rounds less that without a delay. It is to be the delay, and every other one below
``OTHERS_MS``; what a client needs to learn of its leader and its pauses count as one step.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from regnum_client import Admin, NewTopic, Producer, ProducerSettings, TopicPartition
from regnum_insight.attribution import steps
from regnum_insight.attribution.chains import Chain
from regnum_insight.engine import analyse
from regnum_local.plan import TRACES, Role
from regnum_service.failpoints.trigger import FailpointTrigger
from regnum_telemetry import setup

from regnum_testing.failpoint_cluster import FailpointCluster, failpoint_cluster
from regnum_testing.waiting import eventually

TOPIC: Final = "delayed"
PARTITION: Final = TopicPartition(TOPIC, 0)
INTERVAL_S: Final = 0.01
"""Between two records."""
CALM_S: Final = 1.0
"""Load before a kill."""
OTHERS_MS: Final = 10.0
"""By so much other steps may seem to move."""
CLIENT: Final = "producer"
CONTROLLER: Final = "controller"
BROKERS: Final = "brokers"

AT: Final[Mapping[str, tuple[str, str]]] = {
    "noticed": (CONTROLLER, "when=before step=lifeline times=all"),
    "detected": (CONTROLLER, "when=before step=knock"),
    "fenced": (CONTROLLER, "when=before step=write path=/brokers/epochs/*"),
    "decided": (CONTROLLER, "when=before step=decide"),
    "written": (CONTROLLER, f"when=before step=write path=/brokers/topics/{TOPIC}/*"),
    "order_sent": (CONTROLLER, "when=before step=order kind=LeaderAndIsr broker={leader}"),
    "received": (BROKERS, "when=before step=receive"),
    "leads": (BROKERS, "when=before step=journal"),
    "learned": (CLIENT, "when=before step=learn times=all"),
    "sent": (CLIENT, "when=before step=send times=all broker={leader}"),
    "appended": (BROKERS, "when=before step=append"),
    "replicated": (BROKERS, "when=before step=replicate"),
    "acknowledged": (CLIENT, "when=after step=send times=all broker={leader}"),
}
"""Where the failpoint of each step stands, and what it says; ``{leader}``: who leads after the kill."""

Rounds = dict[str, list[dict[str, float]]]
"""Steps of each round in milliseconds, by the step that was delayed; empty: none was."""


@dataclass(slots=True, kw_only=True)
class Load:
    """A producer that writes one record after another."""

    producer: Producer
    acknowledged: int = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await (await self.producer.send(TOPIC, b"x", partition=0))
            self.acknowledged += 1
            await asyncio.sleep(INTERVAL_S)

    async def goes_on(self) -> None:
        """Return when more was acknowledged."""
        before = self.acknowledged

        async def more() -> bool:
            return self.acknowledged > before + 5

        await eventually(more, what="acknowledgements")


class Scene:
    """A cluster whose leader is killed."""

    def __init__(self, failpoints: FailpointCluster, admin: Admin, load: Load, own: Path) -> None:
        """Only assigns; ``own``: the failpoint of this process."""
        self.failpoints: Final = failpoints
        self.load: Final = load
        self._admin: Final = admin
        self._own: Final = own

    async def kill(self, step: str, ms: int) -> int:
        """One failover, with a delay in that step; when it began, nanoseconds since 1970."""
        replicas, leader = await self._in_sync()
        following = next(id for id in replicas if id != leader)
        files = [] if not step else await self._files(AT[step][0], leader)
        if step:
            words = AT[step][1].format(leader=following)
            for file in files:
                file.write_text(f"action=delay ms={ms} {words}")
        await asyncio.sleep(CALM_S)
        at_ns = time.time_ns()
        await self.failpoints.cluster.kill(f"broker-{leader}")
        await self.load.goes_on()
        for file in files:
            file.unlink(missing_ok=True)
        await self.failpoints.cluster.restart(f"broker-{leader}")
        await self._in_sync()
        return at_ns

    async def _files(self, where: str, leader: int) -> list[Path]:
        if where == CLIENT:
            return [self._own]
        if where == CONTROLLER:
            return [self.failpoints.failpoint(await self.failpoints.controller())]
        names = [row.name for row in self.failpoints.cluster.status() if row.role is Role.BROKER and row.id != leader]
        return [self.failpoints.failpoint(name) for name in names]

    async def _in_sync(self) -> tuple[Sequence[int], int]:
        """Replicas and leader, once all replicas are in sync."""
        found: list[tuple[Sequence[int], int]] = []

        async def whole() -> bool:
            partition = (await self._admin.describe_topic(TOPIC)).partitions[0]
            found[:] = [(tuple(partition.replicas), partition.leader)]
            return len(partition.isr) == len(partition.replicas) and partition.leader >= 0

        await eventually(whole, within_s=300.0, what="all replicas in sync")
        return found[0]


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    """Start everything."""
    own = folder / "producer.failpoint"
    # So that a leader that was killed does not get its partition back in the next round.
    extra = {Role.ELECTION: ("--leader-balance-interval-s", "100000")}
    async with failpoint_cluster(folder, elections=1, extra=extra, roles=(Role.ELECTION, Role.BROKER)) as failpoints:
        bootstrap = failpoints.cluster.bootstrap
        async with (
            Admin(bootstrap) as admin,
            Producer(bootstrap, settings=ProducerSettings(linger_ms=0), failpoints=FailpointTrigger(own)) as producer,
        ):
            await admin.create_topics([NewTopic(name=TOPIC, partitions=1, replication_factor=3)])
            load = Load(producer=producer)
            loading = asyncio.create_task(load.run())
            try:
                yield Scene(failpoints, admin, load, own)
            finally:
                loading.cancel()
                await asyncio.gather(loading, return_exceptions=True)


async def measure(folder: Path, wanted: Sequence[str], *, ms: int, rounds: int) -> Rounds:
    """Kill leaders, and read the traces."""
    telemetry = setup.start("regnum-load", "1", traces_dir=folder / TRACES)
    kills: list[tuple[str, int]] = []
    try:
        async with scene(folder) as hurt:
            await hurt.load.goes_on()
            await hurt.kill("", ms)
            for step in ("", *wanted):
                for number in range(rounds):
                    kills.append((step, await hurt.kill(step, ms)))
                    sys.stderr.write(f"{step or 'no delay'}: {number + 1} of {rounds}\n")
    finally:
        telemetry.close()
    found: Rounds = {step: [] for step in ("", *wanted)}
    changes = [change for change in analyse(folder / TRACES).changes if change.chains]
    for place, (step, at_ns) in enumerate(kills):
        until_ns = kills[place + 1][1] if place + 1 < len(kills) else time.time_ns()
        # The outage begins with the last acknowledgement before the kill.
        chains = [
            change.worst for change in changes if at_ns - 1_000_000_000 <= change.start_ns < until_ns - 1_000_000_000
        ]
        if chains:
            found[step].append(_steps(max(chains, key=lambda chain: chain.outage_ms)))
    return found


def _steps(chain: Chain) -> dict[str, float]:
    spent: dict[str, float] = {}
    for segment in chain.segments:
        name = "learned" if segment.step == steps.BACKOFF else segment.step
        spent[name] = spent.get(name, 0.0) + segment.ms
    return spent


def differences(found: Rounds) -> dict[str, dict[str, float]]:
    """By the step that was delayed, how much longer each step was, in medians of the rounds. Pure."""
    quiet = found[""]
    names = {name for rounds in found.values() for one in rounds for name in one}

    def median(rounds: Sequence[Mapping[str, float]], name: str) -> float:
        return statistics.median([one.get(name, 0.0) for one in rounds]) if rounds else 0.0

    return {
        step: {name: median(rounds, name) - median(quiet, name) for name in sorted(names)}
        for step, rounds in found.items()
        if step
    }


def judged(moved: Mapping[str, Mapping[str, float]], ms: int) -> list[str]:
    """What is not as it should be. Pure."""
    said: list[str] = []
    for step, by in moved.items():
        for name, difference in by.items():
            wanted = ms if name == step else 0.0
            if abs(difference - wanted) > OTHERS_MS:
                said.append(f"{ms} ms in {step} moved {name} by {difference:.1f} ms")
    return said


def main() -> int:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--ms", type=int, default=200)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--step", action="append", choices=list(AT))
    arguments.add_argument("--folder", type=Path)
    arguments.add_argument("-o", "--output", choices=["text", "json"], default="text")
    told = arguments.parse_args()
    folder = told.folder or Path(tempfile.mkdtemp(prefix="delayed-steps-"))
    found = asyncio.run(measure(folder, told.step or list(AT), ms=told.ms, rounds=told.rounds))
    moved = differences(found)
    if told.output == "json":
        sys.stdout.write(json.dumps({"rounds": found, "moved_ms": moved}, indent=1) + "\n")
    else:
        for step, by in moved.items():
            shown = "  ".join(f"{name} {value:+.1f}" for name, value in by.items() if abs(value) >= 1.0)
            sys.stdout.write(f"{step:>13} ({len(found[step])}): {shown}\n")
    said = judged(moved, told.ms)
    for line in said:
        sys.stdout.write(f"! {line}\n")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
