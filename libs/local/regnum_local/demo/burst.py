"""A burst of topic creations against a quota: how many are admitted when, and what became of the rest.

``python -m regnum_local.demo.burst --topics 500 --rate 5 --burst 50`` plays it to its end on a cluster of its own and
prints a table, or JSON with ``-o json``. Exit status 1 if more was admitted than the quota allows, or a topic is
missing at the end.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from regnum.metadata.v1.metadata_pb2 import GetMetadataRequest
from regnum.metadata.v1.metadata_pb2_grpc import MetadataServiceStub
from regnum_client import Admin, CreatedTopic, NewTopic, QuotaEntity, Waiting
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import RegnumError, StartRefusedError
from rich.console import Console
from rich.table import Table

from regnum_local.cluster import LocalCluster
from regnum_local.demo.report import Narrator

CLIENT_ID: Final = "regnum-burst"
"""Client id that the quota is for."""
RATE_KEY: Final = "controller_mutation_rate"
BURST_KEY: Final = "controller_mutation_burst"
SPARE_S: Final = 60.0
"""Time beyond what the quota itself takes until the burst is given up."""
METADATA_S: Final = 10.0
"""Deadline of a look at a broker's metadata."""
TELL_EVERY_S: Final = 2.0
"""Between two words on how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstPlan:
    """What is asked for, and what the quota allows."""

    topics: int
    """Topics to create, of one partition each."""
    rate: float
    """Partitions a second."""
    burst: float
    """Partitions at once."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the topics."""
        return tuple(f"burst-{number:04d}" for number in range(self.topics))

    @property
    def quota_s(self) -> float:
        """How long the quota alone makes it last."""
        return max(0.0, (self.topics - 1 - self.burst) / self.rate)

    def allowed(self, seconds: float) -> float:
        """Topics that may be admitted in the first seconds: the flow, the burst, and one that goes into debt."""
        return self.rate * seconds + self.burst + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstOutcome:
    """What became of it."""

    plan: BurstPlan
    """What was asked for."""
    at_once: int
    """Topics admitted by the first call."""
    refusals: int
    """Refusals; a topic may have been refused more than once."""
    created: int
    """Topics created in the end."""
    took_s: float
    """From the first call to the last answer, in seconds."""
    excess: float
    """Most topics that were admitted beyond what the quota allowed by then; negative when it never was so many."""
    failures: tuple[str, ...]
    """Why topics are missing."""

    @property
    def complaints(self) -> tuple[str, ...]:
        """What is wrong."""
        found = [f"a topic of the burst was not created: {failure}" for failure in self.failures[:3]]
        if self.excess > 0:
            found.append(f"{self.excess:.1f} topics more were admitted than the quota allows")
        return tuple(found)

    @property
    def figures(self) -> dict[str, object]:
        """What machines read."""
        return {
            "topics": self.plan.topics,
            "rate_per_s": self.plan.rate,
            "burst": self.plan.burst,
            "mutations_admitted": self.created,
            "mutations_throttled": self.refusals,
            "admitted_at_once": self.at_once,
            "took_s": round(self.took_s, 2),
            "quota_alone_s": round(self.plan.quota_s, 2),
            "most_beyond_the_quota": round(max(0.0, self.excess), 2),
        }


class Burst:
    """One burst, by a client whose id has the quota."""

    def __init__(self, admin: Admin, plan: BurstPlan, *, clock: Clock, narrator: Narrator) -> None:
        """Only assigns. ``admin`` calls itself CLIENT_ID."""
        self._admin = admin
        self._plan = plan
        self._clock = clock
        self._narrator = narrator
        self._began_s = 0.0
        self._told_s = float("-inf")
        self._at_once: int | None = None
        self._excess = float("-inf")
        self.refusals = 0
        """Refusals so far."""
        self.done = 0
        """Topics that had their answer when the client last waited."""

    async def set_quota(self) -> None:
        """From now on the quota counts."""
        limits = {RATE_KEY: self._plan.rate, BURST_KEY: self._plan.burst}
        await self._admin.alter_client_quota(QuotaEntity(client_id=CLIENT_ID), set=limits)

    async def remove_quota(self) -> None:
        """Nothing is limited any more."""
        await self._admin.alter_client_quota(QuotaEntity(client_id=CLIENT_ID), remove=(RATE_KEY, BURST_KEY))

    async def create(self) -> BurstOutcome:
        """Ask for all topics in one call, and let the SDK wait for the quota."""
        plan = self._plan
        self._began_s = self._clock.monotonic()
        answers = await self._admin.create_topics(
            [NewTopic(name=name) for name in plan.names],
            timeout_s=plan.quota_s + SPARE_S,
            on_wait=self._waits,
        )
        took_s = self._clock.monotonic() - self._began_s
        created = sum(isinstance(answer, CreatedTopic) for answer in answers.values())
        self._count(created)
        return BurstOutcome(
            plan=plan,
            at_once=created if self._at_once is None else self._at_once,
            refusals=self.refusals,
            created=created,
            took_s=took_s,
            excess=self._excess,
            failures=tuple(str(answer) for answer in answers.values() if isinstance(answer, RegnumError)),
        )

    async def delete(self) -> None:
        """Remove the topics; best without the quota."""
        for answer in (await self._admin.delete_topics(self._plan.names)).values():
            if isinstance(answer, RegnumError):
                raise answer

    def _waits(self, waiting: Waiting) -> None:
        self._count(waiting.done)
        self.refusals, self.done = waiting.refusals, waiting.done
        if self._clock.monotonic() - self._told_s >= TELL_EVERY_S:
            self._told_s = self._clock.monotonic()
            self._narrator.detail(f"{waiting.done} topics created, {waiting.waiting} wait for the quota")

    def _count(self, done: int) -> None:
        if self._at_once is None:
            self._at_once = done
        self._excess = max(self._excess, done - self._plan.allowed(self._clock.monotonic() - self._began_s))


def burst_table(outcome: BurstOutcome) -> Table:
    """What the quota did."""
    plan = outcome.plan
    table = Table(title="topic creations against a quota", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("quota", f"{plan.rate:g} a second, burst {plan.burst:g}")
    table.add_row("topics asked for in one call", f"{plan.topics:,}")
    table.add_row("mutations admitted / throttled", f"{outcome.created:,} / {outcome.refusals:,}")
    table.add_row("admitted at once", f"{outcome.at_once:,}")
    table.add_row("all created after", f"{outcome.took_s:.1f} s")
    table.add_row("the quota alone takes", f"{plan.quota_s:.1f} s")
    beyond = max(0.0, outcome.excess)
    table.add_row(
        "most beyond rate x time + burst + 1", f"[bold red]{beyond:.1f}[/]" if outcome.excess > 0 else f"{beyond:.0f}"
    )
    return table


async def run(data_dir: Path, plan: BurstPlan, *, clock: Clock, narrator: Narrator) -> tuple[BurstOutcome, int]:
    """Play it on a cluster of its own; returns the outcome, and how many of its topics every broker knows."""
    async with (
        LocalCluster(data_dir, brokers=3, elections=3, quotas=1, report=narrator.detail) as cluster,
        Admin(cluster.bootstrap, client_id=CLIENT_ID) as admin,
    ):
        burst = Burst(admin, plan, clock=clock, narrator=narrator)
        narrator.step(f"quota: {plan.rate:g} partitions a second, burst {plan.burst:g}")
        await burst.set_quota()
        narrator.step(f"creating {plan.topics} topics in one call; the SDK waits for the quota")
        outcome = await burst.create()
        known = [await _known(Address.parse(address), plan.names) for address in cluster.bootstrap]
    return outcome, min(known)


async def _known(broker: Address, names: Sequence[str]) -> int:
    """How many of the topics that broker knows, with a leader."""
    channel = open_channel(broker)
    try:
        request = GetMetadataRequest(topics=names)
        answer = await MetadataServiceStub(channel).GetMetadata(request, timeout=METADATA_S)
    finally:
        await channel.close()
    return sum(
        bool(item.topic.partitions) and all(one.leader >= 0 for one in item.topic.partitions) for item in answer.topics
    )


def main() -> int:
    """Play it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m regnum_local.demo.burst", description=__doc__)
    parser.add_argument("--topics", type=int, default=500)
    parser.add_argument("--rate", type=float, default=5.0, help="partitions a second")
    parser.add_argument("--burst", type=float, default=50.0, help="partitions at once")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    arguments = parser.parse_args()
    narrator, out = Narrator(Console(stderr=True)), Console()
    plan = BurstPlan(topics=arguments.topics, rate=arguments.rate, burst=arguments.burst)
    data_dir = Path(tempfile.mkdtemp(prefix="regnum-burst-"))
    try:
        outcome, known = asyncio.run(run(data_dir, plan, clock=SystemClock(), narrator=narrator))
    except (RegnumError, StartRefusedError) as error:
        narrator.complaint(f"{error}; logs and data are kept below {data_dir}")
        return 1
    if arguments.output == "json":
        out.print_json(json.dumps({**outcome.figures, "known_to_every_broker": known}))
    else:
        table = burst_table(outcome)
        table.add_row("known to every broker", f"{known:,}")
        out.print(table)
    complaints = list(outcome.complaints)
    if known < plan.topics:
        complaints.append(f"a broker knows only {known} of the {plan.topics} topics")
    for complaint in complaints:
        narrator.complaint(complaint)
    if complaints:
        narrator.complaint(f"logs and data are kept below {data_dir}")
        return 1
    shutil.rmtree(data_dir)
    return 0


if __name__ == "__main__":
    sys.exit(main())
