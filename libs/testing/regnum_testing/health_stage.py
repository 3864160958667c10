"""A cluster that a test hurts, and what each part of it says meanwhile: for the health sweep."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

from regnum_client import Admin, Producer, ProducerSettings
from regnum_local.cluster import LocalCluster, ProcessState
from regnum_local.plan import METRICS, Launch, Member, Role, command
from regnum_service.errors import RegnumError, reason_of

from regnum_testing.command_here import CommandHere
from regnum_testing.far_away import FarAway
from regnum_testing.health_ways import SAID_WITHIN_S, Asked, Way
from regnum_testing.instant_alerts import expressions, is_true, scrape
from regnum_testing.under_load import until
from regnum_testing.waiting import awaited

LOG: Final = logging.getLogger("sweep")

WELL_AGAIN_S: Final = 90.0
"""Longest time from the end of one way to the beginning of the next."""
WRITES_S: Final = 3.0
"""For so long a client writes that hears nothing."""
CALLS_S: Final = 8.0
"""A client that changes something waits no longer."""
SETTINGS: Final = ProducerSettings(delivery_timeout_s=7.0, request_timeout_s=5.0)

SMALL: Final[Mapping[str, str]] = {"retention.bytes": "1000000", "segment.bytes": "1048576"}
"""Settings of topics on small disks."""
ASSIGNED: Final[Mapping[str, Mapping[int, Sequence[int]]]] = {
    "t": {0: [1, 2, 3], 1: [2, 3, 1]},
    "single": {0: [3]},
    "alone": {0: [1]},
}
"""The topics."""

WRONG_CLOCK: Final = (
    "import runpy, sys, time; right = time.time_ns; time.time_ns = lambda: right() + 3_600_000_000_000; "
    "runpy.run_module('regnum_broker', run_name='__main__', alter_sys=True)"
)
"""A broker on a machine whose clock is an hour ahead."""


class Odd:
    """Makes the command lines of a cluster, with what is odd about some processes."""

    def __init__(self) -> None:
        self.ahead: set[str] = set()
        """Brokers whose clock is wrong when they start."""

    def command(self, member: Member, launch: Launch) -> list[str]:
        """As ``make_command`` of a cluster."""
        words = command(member, launch)
        if member.name in self.ahead:
            at = words.index("-m")
            words[at : at + 2] = ["-c", WRONG_CLOCK]
        return words


class Stage:
    """A cluster with ways to look at it."""

    def __init__(
        self,
        cluster: LocalCluster,
        *,
        disks: Mapping[int, Path] | None = None,
        far: FarAway | None = None,
        odd: Odd | None = None,
    ) -> None:
        """Only assigns.

        Args:
            cluster: its processes.
            disks: folder of each broker, on a small file system.
            far: the way of all processes to the store.
            odd: what is odd about processes that start.
        """
        self.cluster: Final = cluster
        self.disks: Final = dict(disks or {})
        self.far: Final = far
        self.odd: Final = odd or Odd()
        self.since_ms = 0
        """Events before that are of another way."""
        self._regnum: Final = CommandHere("")

    def named(self, role: Role) -> list[str]:
        """Names of the processes of a role."""
        return [row.name for row in self.cluster.status() if row.role is role]

    def address(self, name: str, listener: str) -> str:
        """Where a process listens."""
        (row,) = [row for row in self.cluster.status() if row.name == name]
        return str(row.addresses[listener])

    async def status(self) -> tuple[int, tuple[str, ...]]:
        """The command: its exit status, and the problems that it names."""
        exit_status, document = await self._document()
        return exit_status, tuple(document["problems"])

    async def _document(self) -> tuple[int, dict[str, Any]]:
        ran = await self._regnum.alone("status", "--data-dir", str(self.cluster.data_dir), "-o", "json")
        return ran.status, json.loads(ran.out) if ran.out else {"problems": [ran.err]}

    async def is_true(self, alert: str) -> bool:
        """Whether an alert's expression is true of the metrics of all processes that run."""
        expression = expressions()[alert]
        shown = [one.addresses.get(METRICS) for one in self.cluster.status() if one.state is ProcessState.RUNNING]
        pages = [asyncio.to_thread(scrape, address, expression) for address in shown if address is not None]
        return is_true(expression, [sample for page in await asyncio.gather(*pages) for sample in page])

    async def events(self) -> list[str]:
        """Those of this way, as ``kind: detail``; by brokers or metadata processes, whichever answer."""
        known = [self.address(name, "client") for name in self.named(Role.METADATA)]
        try:
            async with Admin([*known, *self.cluster.bootstrap], tls=self.cluster.tls, timeout_s=3.0) as admin:
                events = await admin.last_events(limit=30)
        except RegnumError as error:
            return [f"events cannot be read: {error.message}"]
        return [f"{one.kind.value}: {one.detail}" for one in events if one.time_unix_ms >= self.since_ms]

    async def create(self, name: str) -> None:
        """Create one of the topics."""
        async with Admin(self.cluster.bootstrap, tls=self.cluster.tls) as admin:
            await admin.create_topic(name, partitions=0, assignment=ASSIGNED[name], configs=SMALL)

    async def create_anew(self, name: str) -> None:
        """Delete a topic with all its records, and create it again."""
        async with Admin(self.cluster.bootstrap, tls=self.cluster.tls) as admin:
            await admin.delete_topic(name)
        await self.create(name)

    async def ask(self, way: Way) -> str:
        """Do what clients do; what they hear, empty: all went well."""
        try:
            match way.asked:
                case Asked.WRITE:
                    await self._write(way.topic, way.partition)
                case Asked.CREATE:
                    async with Admin(self.cluster.bootstrap, tls=self.cluster.tls, timeout_s=CALLS_S) as admin:
                        await admin.create_topic(f"during-{way.name}", partitions=1, replication_factor=1)
                case Asked.GROW:
                    async with Admin(self.cluster.bootstrap, tls=self.cluster.tls, timeout_s=CALLS_S) as admin:
                        await admin.create_partitions(way.topic, 9)
        except RegnumError as error:
            return f"{reason_of(error.code)}: {error.message}"
        return ""

    async def _write(self, topic: str, partition: int) -> None:
        """Write for WRITES_S, or until one fails. Raises RegnumError."""
        began_s = time.monotonic()
        async with Producer(self.cluster.bootstrap, tls=self.cluster.tls, settings=SETTINGS) as producer:
            while time.monotonic() - began_s < WRITES_S:
                await (await producer.send(topic, bytes(30_000), partition=partition))

    async def is_well(self, way: Way) -> bool:
        """Whether nothing is wrong, and what the way is about can be written to."""
        exit_status, document = await self._document()
        if exit_status or any(count["partitions"] for count in document["troubles"].values()):
            LOG.debug("not well: %s", document["problems"])
            return False
        return not await self.ask(Way(name="well", what="", topic=way.topic, partition=way.partition))


def said(wanted: str, lines: Sequence[str]) -> bool:
    """Whether one of the alternatives is in one of the lines."""
    return any(piece in line for piece in wanted.split("|") for line in lines)


async def _first(holds: Callable[[], Awaitable[bool]], began_s: float) -> float | None:
    """Seconds from then until it holds; None: not in time."""
    held = await awaited(holds, until_s=began_s + SAID_WITHIN_S + 5.0, every_s=0.5)
    return time.monotonic() - began_s if held else None


async def assert_said(stage: Stage, way: Way, hand: AbstractAsyncContextManager[None]) -> None:
    """Bring a way about, and see that each part says so in time. Raises AssertionError with all that was said."""
    await until(lambda: stage.is_well(way), within_s=WELL_AGAIN_S)
    stage.since_ms = int(time.time() * 1000)
    async with hand:
        began_s = time.monotonic()
        exit_status, problems, events = 0, tuple[str, ...](), list[str]()

        async def status_says() -> bool:
            nonlocal exit_status, problems
            exit_status, problems = await stage.status()
            return exit_status == 5 and said(way.status, problems)

        async def event_says() -> bool:
            nonlocal events
            events = await stage.events()
            return said(way.event, events)

        async def alert_is_true() -> bool:
            return await stage.is_true(way.alert)

        async def hears() -> float | None:
            heard.append(await stage.ask(way))
            return time.monotonic() - began_s

        heard: list[str] = []
        looks = {"status": status_says, "alert": alert_is_true} | ({"event": event_says} if way.event else {})
        client, *took = await asyncio.gather(hears(), *(_first(look, began_s) for look in looks.values()))
        times = dict(zip(looks, took, strict=True)) | ({"client": client} if way.client else {})
        told = ", ".join(f"{what} {'never' if at is None else f'{at:.1f} s'}" for what, at in times.items())
        LOG.info("%s: %s; status %d: %s; events: %s; heard: %s", way.name, told, exit_status, problems, events, heard)
        assert all(at is not None and at <= SAID_WITHIN_S for at in times.values()), (told, problems, events, heard)
        assert said(way.client, heard) if way.client else heard == [""], heard
