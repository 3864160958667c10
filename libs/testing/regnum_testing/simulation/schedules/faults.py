"""What happens to a cluster: a schedule of faults by seed, some of them aimed at what has just happened.

A seed chooses a mix (swarm testing: a fault that is left out lets others get further) and a schedule. The schedule is a
list, so that a failing one can be made smaller by leaving faults out (``shrinking``). An aimed fault waits until the
cluster does something, and strikes then.
"""

import asyncio
import errno
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from regnum_coordination.port import Group

from regnum_testing.simulation.cluster import SimulatedCluster, Started
from regnum_testing.simulation.loop import Process

RESTARTED_S: Final = 0.5
"""After what time a process that has ended is started again."""

DISK_ERRORS: Final = (errno.EIO, errno.EROFS, errno.ENOSPC)
"""What a disk answers that fails, or is full."""

DOWN_MAX: Final = 2
"""Processes that are down at a time, by faults."""

AIMS: Final = ("isr write", "epoch write", "registration", "order", "order answered", "file")
"""What aimed faults wait for."""

STRIKES: Final = ("kill", "stop", "disk", "power", "goes back", "pause", "session", "lose reply", "drop", "late", "cut")
"""What they do then."""

KINDS: Final = (
    "kill", "kill", "power", "pause", "isolate", "cut", "one way", "from store", "session", "lose reply", "drop",
    "late", "stale", "clock", "drift", "astray", "stop", "disk", "copy", "goes back", "aimed", "aimed", "aimed",
)  # fmt: skip

_NEEDLES: Final = {
    "isr write": "/leaderAndISR",
    "epoch write": "/controller_epoch",
    "registration": "/brokers/ids/",
    "order": "/LeaderAndIsr",
    "order answered": "/LeaderAndIsr",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One of a schedule."""

    at_s: float
    """When, in seconds after the load began."""
    kind: str
    """What happens, of ``KINDS``; once an aim was met, of ``STRIKES``."""
    name: str
    """Process that it is about."""
    other: str
    """Another one, for what is between two."""
    for_s: float
    """How long it lasts, or after what time a process comes back."""
    aim: str = ""
    """What an aimed fault waits for: one of ``AIMS``."""
    strike: str = ""
    """What it does then: one of ``STRIKES``."""


def planned(seed: int, names: tuple[str, ...], seconds: float) -> tuple[Fault, ...]:
    """The schedule of a seed."""
    chance = random.Random(seed)
    mix = [kind for kind in KINDS if chance.random() < 0.6] or list(KINDS)
    pace_s = chance.choice((0.4, 0.8, 1.6))
    faults: list[Fault] = []
    at_s = 0.0
    while (at_s := at_s + chance.expovariate(1 / pace_s)) < seconds:
        name, other = chance.sample(names, 2)
        kind = chance.choice(mix)
        faults.append(
            Fault(
                at_s=round(at_s, 4),
                kind=kind,
                name=name,
                other=other,
                for_s=chance.choice((0.05, 0.3, 0.5, 2.0, 3.0, 5.0, 9.0, 12.0)),
                aim=chance.choice(AIMS) if kind == "aimed" else "",
                strike=chance.choice(STRIKES) if kind == "aimed" else "",
            )
        )
    return tuple(faults)


class Faults:
    """Carries a schedule out."""

    def __init__(self, cluster: SimulatedCluster, *, failed: Callable[[str], None]) -> None:
        """Only assigns; ``failed`` is told of a start that fails."""
        self._cluster: Final = cluster
        self._failed: Final = failed
        self._armed: list[Fault] = []
        self.struck: Final[dict[str, int]] = {}
        """How often each kind of fault, or aim, did something."""
        self._coming_back: Final[dict[str, None]] = {}
        self._done_by: Final[dict[str, Callable[[Fault], None]]] = {
            "kill": self._kill,
            "power": self._kill,
            "goes back": self._kill,
            "stop": self._stop,
            "disk": self._spoil_disk,
            "copy": self._copy,
            "isolate": self._isolate,
            "pause": self._pause,
            "cut": self._cut,
            "one way": self._cut,
            "from store": self._cut_from_store,
            "session": self._lose_session,
            "lose reply": self._spoil_write,
            "drop": self._spoil_write,
            "late": self._spoil_write,
            "stale": self._read_stale,
            "clock": self._move_clock,
            "drift": self._drift,
            "astray": self._lead_astray,
        }
        """What each kind of fault, and each strike of an aimed one, does."""

    def watch(self) -> None:
        """Begin to look for what aimed faults wait for, and for processes that end."""
        cluster = self._cluster
        cluster.on_end = self._ended
        cluster.stores.on_write = self._wrote
        cluster.network.on_call = self._called
        for name, disk in cluster.disks.items():
            disk.on_open = partial(self._opened, name)

    async def run(self, schedule: tuple[Fault, ...]) -> None:
        """Carry it out."""
        began_s = self._cluster.loop.time()
        for fault in schedule:
            await asyncio.sleep(max(0.0, began_s + fault.at_s - self._cluster.loop.time()))
            if fault.kind == "aimed":
                self._armed.append(fault)
            else:
                self.strike(fault.kind, fault)

    async def end(self) -> None:
        """Undo what can be undone, and start what is down."""
        cluster = self._cluster
        self._armed.clear()
        cluster.stores.server.thaw_reads()
        cluster.heal()
        for name in cluster.disks:
            cluster.mend_disk(name)
        for name, started in tuple(cluster.started.items()):
            if started.process.paused:
                cluster.go_on(name)
        for name, started in tuple(cluster.started.items()):
            if started.process.dead and name not in self._coming_back:
                await self.start(name)
        cluster.forget_faults()

    # What aimed faults wait for.

    def _wrote(self, process: Process, groups: tuple[Group, ...]) -> None:
        paths = [operation.path for group in groups for operation in group]
        for aim in ("isr write", "epoch write", "registration"):
            if any(_NEEDLES[aim] in path for path in paths):
                self._happened(aim, process.name, "")

    def _called(self, source: Process, target: Process, method: str) -> None:
        if method.endswith(_NEEDLES["order"]):
            self._happened("order", target.name, source.name)

    def _opened(self, name: str, path: str) -> None:
        if path.endswith((".log", ".new")):
            self._happened("file", name, "")

    def _happened(self, aim: str, name: str, other: str) -> None:
        for fault in self._armed:
            if fault.aim == aim:
                self._armed.remove(fault)
                self.struck[aim] = self.struck.get(aim, 0) + 1
                # Not in the middle of a callback of the process that it strikes.
                victim = other if other and fault.for_s in {0.3, 2.0} else name
                aimed = Fault(
                    at_s=fault.at_s, kind=fault.strike, name=victim, other=other or fault.other, for_s=fault.for_s
                )
                after_s = 0.0 if fault.for_s < 1.0 else self._cluster.network.delay_s()
                self._cluster.loop.in_world(after_s, self.strike, fault.strike, aimed)
                return

    # What they do.

    def strike(self, kind: str, fault: Fault) -> None:
        """Do it, if it can be done now."""
        started = self._cluster.started.get(fault.name)
        if started is None or started.process.dead:
            return
        self.struck[kind] = self.struck.get(kind, 0) + 1
        self._done_by[kind](fault)

    def _kill(self, fault: Fault) -> None:
        disk = self._cluster.disks.get(fault.name)
        if fault.kind == "goes back" and disk is not None and disk.copied_in_this_life:
            return
        if self._may_fall(fault.name, forgets=fault.kind != "kill"):
            self._fell(fault)

    def _stop(self, fault: Fault) -> None:
        if self._may_fall(fault.name, forgets=False) and self._cluster.started[fault.name].up:
            self._coming_back[fault.name] = None
            self._cluster.stop(fault.name)

    def _spoil_disk(self, fault: Fault) -> None:
        """What a disk that fails has not synced is lost, so it counts as a loss of power; a full one loses nothing."""
        number = DISK_ERRORS[round(fault.at_s * 1e4) % len(DISK_ERRORS)]
        if fault.name in self._cluster.disks and self._may_fall(fault.name, forgets=number != errno.ENOSPC):
            self._cluster.spoil_disk(fault.name, number)
            self._cluster.loop.in_world(fault.for_s, self._cluster.mend_disk, fault.name)

    def _copy(self, fault: Fault) -> None:
        if fault.name in self._cluster.disks:
            self._cluster.copy_volume(fault.name)

    def _isolate(self, fault: Fault) -> None:
        cluster, name = self._cluster, fault.name
        if self._may_fall(name, forgets=False):
            for other in tuple(cluster.started):
                if other != name and other.startswith("broker"):
                    cluster.cut(name, other)
                    cluster.cut(other, name)
            cluster.loop.in_world(min(fault.for_s, 2.0), self._fell_and_healed, fault)

    def _pause(self, fault: Fault) -> None:
        if not self._cluster.started[fault.name].process.paused:
            self._cluster.pause(fault.name)
            self._cluster.loop.in_world(fault.for_s, self._cluster.go_on, fault.name)

    def _cut(self, fault: Fault) -> None:
        cluster = self._cluster
        cluster.cut(fault.name, fault.other)
        if fault.kind == "cut":
            cluster.cut(fault.other, fault.name)
        cluster.loop.in_world(fault.for_s, cluster.heal)

    def _cut_from_store(self, fault: Fault) -> None:
        self._cluster.cut_from_store(fault.name)
        self._cluster.loop.in_world(fault.for_s, self._cluster.heal)

    def _lose_session(self, fault: Fault) -> None:
        self._cluster.lose_session(fault.name)

    def _spoil_write(self, fault: Fault) -> None:
        self._cluster.spoil_write(fault.kind, fault.for_s)

    def _read_stale(self, fault: Fault) -> None:
        server = self._cluster.stores.server
        self._cluster.say("stale reads")
        server.freeze_reads()
        self._cluster.loop.in_world(min(fault.for_s, 2.0), server.thaw_reads)

    def _move_clock(self, fault: Fault) -> None:
        self._cluster.move_clock(fault.name, round((fault.for_s - 3.0) * 10_000))

    def _drift(self, fault: Fault) -> None:
        """From its next life on: by up to 6 %, which no quartz does, and a virtual machine may."""
        self._cluster.drift(fault.name, 1.0 + (fault.for_s - 6.0) / 100)

    def _lead_astray(self, fault: Fault) -> None:
        kind = fault.name.partition("-")[0]
        others = [name for name in self._cluster.disks if name != fault.name]
        if kind == "broker":
            self._cluster.lead_astray(fault.name, others[round(fault.at_s * 1e4) % len(others)])
            self._cluster.loop.in_world(fault.for_s, self._cluster.heal)

    def _may_fall(self, name: str, *, forgets: bool) -> bool:
        cluster = self._cluster
        down = sum(started.process.dead for started in cluster.started.values())
        if down >= DOWN_MAX:
            return False
        # Safety rule S15: what is acknowledged survives one loss of power while other members of the ISR stay up.
        return not forgets or (name.startswith("broker") and cluster.is_whole())

    def _fell(self, fault: Fault) -> None:
        self._cluster.kill(fault.name, power=fault.kind == "power", goes_back=fault.kind == "goes back")
        self._coming_back[fault.name] = None
        self._cluster.loop.in_world(fault.for_s, self._come_back, fault.name)

    def _fell_and_healed(self, fault: Fault) -> None:
        if not self._cluster.started[fault.name].process.dead:
            self._fell(fault)
        self._cluster.heal()

    def _come_back(self, name: str) -> None:
        self._cluster.spawn(self.start(name))

    def _ended(self, started: Started) -> None:
        """A process has ended by itself; it is started again, as by Kubernetes."""
        name, failure = started.process.name, started.supervisor.failure
        if failure is not None and not started.spoiled:
            self._failed(f"{name} failed: {failure!r}")
        self._coming_back[name] = None
        self._cluster.loop.in_world(RESTARTED_S, self._come_back, name)

    async def start(self, name: str) -> None:
        """Start a process that is down; a start that fails is a finding."""
        self._coming_back.pop(name, None)
        if not self._cluster.started[name].process.dead:
            return
        try:
            await self._cluster.start(name)
        except ProcessLookupError:
            # It was killed meanwhile, and comes back for that.
            return
        except Exception as error:  # noqa: BLE001 - a start that fails is a finding
            if self._cluster.started[name].spoiled:
                self._coming_back[name] = None
                self._cluster.loop.in_world(RESTARTED_S, self._come_back, name)
            else:
                self._failed(f"{name} does not start: {error!r}")
