"""The processes of a simulated cluster: what starts, kills, pauses and cuts them."""

import asyncio
import contextvars
import errno
import json
import random
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from regnum_broker.broker import Broker
from regnum_broker.settings import BrokerSettings
from regnum_election.service import ElectionService
from regnum_election.settings import ElectionSettings
from regnum_metadata.service import MetadataService
from regnum_metadata.settings import MetadataSettings
from regnum_model.ids import TopicId
from regnum_model.nodes import LeaderAndIsr
from regnum_quota.service import QuotaService
from regnum_quota.settings import QuotaSettings
from regnum_service.settings import ServiceSettings, load
from regnum_service.supervisor import Supervisor

from regnum_testing.simulation.disks import SimulatedDisk
from regnum_testing.simulation.judging.replicas import in_sync, registered_logs
from regnum_testing.simulation.loop import PROCESS, Process, SimulatedLoop
from regnum_testing.simulation.machine import SimulatedClock, SimulatedMachine
from regnum_testing.simulation.network import Network
from regnum_testing.simulation.stores import Stores

SETTINGS: Final[dict[str, type[ServiceSettings]]] = {
    "broker": BrokerSettings,
    "election": ElectionSettings,
    "metadata": MetadataSettings,
    "quota": QuotaSettings,
}
MAKERS: Final[dict[str, Any]] = {"election": ElectionService, "metadata": MetadataService, "quota": QuotaService}
SESSION_TIMEOUT_S: Final = 6.0
IMPATIENT_S: Final = 10.0
"""How long a process that was asked to end may take before it is asked again, and then until it is killed."""
TOPIC_DEPTH: Final = 4
"""Parts of the path of a topic's node."""
LISTENERS: Final = ("client", "internal", "lifeline")


class Started:
    """One life of a process, and what it is made of."""

    def __init__(self, process: Process, machine: SimulatedMachine) -> None:
        """Only assigns."""
        self.process: Final = process
        self.machine: Final = machine
        self.supervisor: Final = Supervisor(process.name)
        self.service: Any = None
        """The Broker, ElectionService or MetadataService; of a client, whatever it is."""
        self.up = False
        """Whether it has started."""
        self.spoiled = False
        """Whether it is over, and its disk has refused it something."""

    @property
    def is_up(self) -> bool:
        """Whether it runs, or would but for a pause."""
        return not self.process.dead


class SimulatedCluster:
    """All processes by name: ``broker-1``, ``election-2``, ``metadata-1``, ``quota-1``, and those of clients."""

    def __init__(self, loop: SimulatedLoop, root: Path, chance: random.Random) -> None:
        """Only assigns; ``root``: an empty folder."""
        self.loop: Final = loop
        self._root: Final = root
        self._chance: Final = chance
        self.network: Final = Network(loop, chance)
        self.stores: Final = Stores(loop, chance, session_timeout_s=SESSION_TIMEOUT_S)
        self.stores.is_listening = self.network.is_listening
        self.started: Final[dict[str, Started]] = {}
        """The present life of each, or the last."""
        self._dead: Final[list[Started]] = []
        """Kept: the end of a dead process's objects would run code of theirs."""
        self.disks: Final[dict[str, SimulatedDisk]] = {}
        self._flags: Final[dict[str, dict[str, str]]] = {}
        self._ahead_ms: Final[dict[str, int]] = {}
        self._rates: Final[dict[str, float]] = {}
        self._boots: Final[dict[str, int]] = {}
        self._awaited: Final[dict[Process, asyncio.Future[None]]] = {}
        """What ends when a process has started, or dies before."""
        self._spawned: Final[set[asyncio.Task[None]]] = set()
        self.on_end: Callable[[Started], None] = lambda _: None
        """Told of each process that has ended by itself, or because it was asked to."""
        self.log: Final[list[str]] = []
        """What happened, a line each; the trace of a run."""

    def say(self, *words: object) -> None:
        """Add a line to the trace."""
        self.log.append(f"{self.loop.elapsed_s:10.6f} {' '.join(map(str, words))}")

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run something of the world, for no process."""
        task = self.loop.create_task(work, context=contextvars.Context())
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)
        return task

    async def sleep(self, seconds: float) -> None:
        """Let that much virtual time go by."""
        await asyncio.sleep(seconds)

    async def run_as(self, process: Process, work: Callable[[], Awaitable[None]]) -> None:
        """Run that in a process; returns when it is done, or never, when the process dies first."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        done: asyncio.Future[None] = self.loop.create_future()

        async def run() -> None:
            try:
                await work()
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(None)

        process.keep(self.loop.create_task(run(), context=context))
        self._awaited[process] = done
        await done

    async def start(self, name: str) -> None:
        """Start a process. Raises what its start raises; ends with ProcessLookupError when it is killed meanwhile."""
        process = Process(name)
        kind, _, id = name.partition("-")
        clock = SimulatedClock(self.loop, ahead_ms=self._ahead_ms.get(name, 0), rate=self._rates.get(name, 1.0))
        boot = f"{name}-{self._boots.setdefault(name, 0)}"
        machine = SimulatedMachine(self.network, clock, random.Random(self._chance.getrandbits(64)), boot)
        if (before := self.started.get(name)) is not None:
            self._dead.append(before)
        started = self.started[name] = Started(process, machine)
        if kind == "broker" and name not in self.disks:
            self.disks[name] = SimulatedDisk(self._root / name, self._chance)
        self.say("start", name)

        async def work() -> None:
            settings: Any = load(SETTINGS[kind], self._told(name, kind, id))

            async def open_session(*_: object) -> Any:
                return await self.stores.open(process)

            if kind == "broker":
                started.service = Broker(
                    settings,
                    supervisor=started.supervisor,
                    open_session=open_session,
                    clock=clock,
                    disk=self.disks[name],
                    machine=machine,
                    open_lifeline=machine.open_lifeline,
                )
            else:
                started.service = MAKERS[kind](
                    settings, supervisor=started.supervisor, clock=clock, machine=machine, open_session=open_session
                )
            await started.service.start()
            started.up = True
            self._run_on(started)

        try:
            await self.run_as(process, work)
        except ProcessLookupError:
            raise
        except Exception:
            # As its composition root does: what is open is closed, and the process ends.
            await self.run_as(process, started.supervisor.unwind)
            self.kill(name)
            raise

    def _run_on(self, started: Started) -> None:
        """Have it run until it ends by itself; within its process."""

        async def run() -> None:
            await started.supervisor.run_until_stopped()
            self.loop.in_world(0.0, self._over, started)

        started.process.keep(self.loop.create_task(run()))

    def _over(self, started: Started) -> None:
        if not started.process.dead:
            self.say("ends", started.process.name, started.supervisor.reason)
            self.kill(started.process.name)
            self.on_end(started)

    def _told(self, name: str, kind: str, id: str) -> list[str]:
        flags = self._flags.get(name)
        if flags is None:
            number = len(self._flags)
            flags = self._flags[name] = {"coordination": "memory://simulated", f"{kind}-id": id}
            for place, listener in enumerate(LISTENERS):
                if f"{listener}_listen" in SETTINGS[kind].model_fields:
                    flags[f"{listener}-listen"] = f"127.0.0.1:{20_000 + 10 * number + place}"
            if kind == "broker":
                flags |= {"data-dir": str(self.disks[name].folder), "termination-grace-s": "0"}
        return [word for flag, value in flags.items() for word in (f"--{flag}", value)]

    def tell(self, name: str, flag: str, value: str) -> None:
        """Have a process start with another setting from its next life on."""
        self._flags[name][flag] = value

    def address(self, name: str, listener: str = "client") -> str:
        """Where a process listens."""
        return self._flags[name][f"{listener}-listen"]

    async def client(self, name: str, work: Callable[[Started], Awaitable[None]]) -> Started:
        """Run a client process."""
        process = Process(name)
        machine = SimulatedMachine(
            self.network, SimulatedClock(self.loop), random.Random(self._chance.getrandbits(64)), "client"
        )
        started = self.started[name] = Started(process, machine)
        await self.run_as(process, lambda: work(started))
        return started

    def topics(self) -> dict[str, tuple[TopicId, dict[int, list[int]]]]:
        """Topics as the store has them: id, and replicas by partition."""
        found: dict[str, tuple[TopicId, dict[int, list[int]]]] = {}
        for path, node in self.stores.server.reading(current=True).nodes().items():
            parts = path.split("/")
            if path.startswith("/brokers/topics/") and len(parts) == TOPIC_DEPTH:
                told = json.loads(node.data)
                partitions = {int(number): replicas for number, replicas in told["partitions"].items()}
                found[parts[-1]] = (TopicId(told["topic_id"]), partitions)
        return found

    def states(self) -> dict[tuple[str, int], tuple[int, int, tuple[int, ...]]]:
        """Leader, leader epoch and ISR of each partition, as the store has them."""
        nodes = self.stores.server.reading(current=True).nodes()
        found: dict[tuple[str, int], tuple[int, int, tuple[int, ...]]] = {}
        for topic, (_, partitions) in self.topics().items():
            for number in partitions:
                node = nodes.get(f"/brokers/topics/{topic}/{number}/leaderAndISR")
                if node is not None:
                    state = json.loads(node.data)
                    found[topic, number] = (state["leader"], state["leader_epoch"], tuple(state["isr"]))
        return found

    def is_whole(self) -> bool:
        """Whether all brokers run, and all replicas are in the ISR with the log that their broker has registered."""
        brokers = [started.process for name, started in self.started.items() if name.startswith("broker")]
        if any(process.dead or process.paused for process in brokers):
            return False
        nodes = self.stores.server.reading(current=True).nodes()
        logs = registered_logs(nodes, {id for process in brokers for id in self.stores.sessions_of(process)})
        for topic, (_, partitions) in self.topics().items():
            for number, replicas in partitions.items():
                node = nodes.get(f"/brokers/topics/{topic}/{number}/leaderAndISR")
                if node is None or not set(replicas) <= in_sync(LeaderAndIsr.decode(node.data), logs):
                    return False
        return True

    # Faults.

    def spoil_write(self, kind: str, for_s: float) -> None:
        """Let the next write to the store lose its answer, never happen, or happen that much later without one."""
        self.say("next write:", kind)
        server = self.stores.server
        if kind == "lose reply":
            server.lose_reply()
        elif kind == "drop":
            server.drop_write()
        else:
            held = server.hold_write()

            async def commit() -> None:
                await held.arrived.wait()
                await asyncio.sleep(for_s)
                self.say("a late write happens")
                held.commit()

            self.spawn(commit())

    def forget_faults(self) -> None:
        """Take back what waits for a write to spoil."""
        self.stores.server.forget_faults()

    def kill(self, name: str, *, power: bool = False, goes_back: bool = False) -> None:
        """End a process at once.

        Args:
            name: which.
            power: its machine ends too, with what was not synced.
            goes_back: its volume is put back to the copy that was made last, or is empty when there is none.
        """
        started = self.started[name]
        process = started.process
        if process.dead:
            return
        process.dead = True
        process.held.clear()
        self.network.died(process)
        self.stores.silent(process)
        self.stores.writes.ended(name)
        lost = 0
        if (disk := self.disks.get(name)) is not None:
            started.spoiled = disk.has_refused
            lost = disk.lose_power() if power else 0
            disk.kill()
        if goes_back and disk is not None:
            self.say("volume of", name, "goes back" if disk.go_back() else "is lost")
        if power:
            self._boots[name] += 1
        self.say("power fails" if power else "kill", name, *([f"{lost} changes lost"] if lost else []))
        starting = self._awaited.pop(process, None)
        if starting is not None and not starting.done():
            starting.set_exception(ProcessLookupError(name))

    def stop(self, name: str) -> None:
        """Ask a process to end, as SIGTERM does, and again, as an impatient person does; then it is killed."""
        started = self.started[name]
        self.say("stop", name)
        started.supervisor.stop("SIGTERM")
        self.loop.in_world(IMPATIENT_S, started.supervisor.hurried.set)
        self.loop.in_world(2 * IMPATIENT_S, self._end, started)

    def _end(self, started: Started) -> None:
        if not started.process.dead and self.started[started.process.name] is started:
            self.kill(started.process.name)
            self.on_end(started)

    def pause(self, name: str) -> None:
        """Stop a process until ``go_on``."""
        process = self.started[name].process
        process.paused = True
        self.say("pause", name)
        self.stores.silent(process)
        self.network.look()

    def go_on(self, name: str) -> None:
        """End its pause."""
        process = self.started[name].process
        if process.dead or not process.paused:
            return
        self.say("go on", name)
        self.loop.go_on(process)
        self.stores.heard(process)
        self.network.look()

    def cut(self, source: str, target: str) -> None:
        """Let nothing through from one process to another."""
        self.say("cut", source, target)
        self.network.cut(source, target)

    def cut_from_store(self, name: str) -> None:
        """Let nothing through between a process and the store."""
        self.say("cut from the store", name)
        self.stores.cut(self.started[name].process)

    def drift(self, name: str, rate: float) -> None:
        """Have the clocks of a process run faster or slower from its next life on."""
        self.say("clock", name, "drifts", rate)
        self._rates[name] = rate

    def lead_astray(self, name: str, other: str) -> None:
        """Have a process of the same kind answer where another one listens, until ``heal``."""
        self.say("at the addresses of", name, "answers", other)
        for flag, address in self._flags[name].items():
            if flag.endswith("-listen"):
                self.network.detour(address, self._flags[other][flag])

    def heal(self) -> None:
        """Undo all cuts and detours."""
        self.say("heal")
        self.network.straight()
        self.network.heal()
        self.stores.heal()

    def lose_session(self, name: str) -> None:
        """End its session."""
        self.say("session lost", name)
        self.stores.expire(self.started[name].process)

    def spoil_disk(self, name: str, number: int) -> None:
        """Have the disk of a broker refuse with that errno what changes it, until ``mend_disk``."""
        self.say("disk of", name, errno.errorcode[number])
        self.disks[name].refuses = number

    def fail_once(self, name: str) -> None:
        """Have the next append of a broker fail, and lose what was not synced of that file."""
        self.say("disk of", name, "fails once")
        self.disks[name].fails_once = True

    def mend_disk(self, name: str) -> None:
        """The disk works again."""
        disk = self.disks[name]
        if disk.refuses is not None:
            self.say("disk of", name, "works")
            disk.refuses = None

    def copy_volume(self, name: str) -> None:
        """Make a copy of a broker's volume as it is now."""
        self.say("copy volume of", name)
        self.disks[name].copy()

    def move_clock(self, name: str, ahead_ms: int) -> None:
        """Have its wall clock show another time, also in later lives."""
        self.say("clock", name, ahead_ms)
        self._ahead_ms[name] = ahead_ms
        self.started[name].machine.clock.ahead_ms = ahead_ms  # type: ignore[attr-defined]
