"""A whole cluster as processes of this machine: started together, hurt one by one, stopped in order.

It restarts nothing by itself: who kills a broker wants to see what the others do. Its folder holds everything:

    cluster.json     the processes and their ports: the cluster comes back as it was
    processes.json   what runs now (see runtime_record)
    logs/NAME.log    output of each process, appended
    etcd/ or zookeeper/, election-1/ broker-1/ ...  what each of them keeps
"""

import asyncio
import enum
import math
import random
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from regnum_model.nodes import Address
from regnum_service.channel import Open
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.ports import free_port, is_free
from regnum_service.tls.files import TlsFiles

from regnum_local import probes
from regnum_local.awaited import Awaited
from regnum_local.belonging import clusters_in
from regnum_local.child import Child
from regnum_local.data_dir import DataDirLock, end_leftovers
from regnum_local.files import read_json, write_json
from regnum_local.identity import ProcessIdentity
from regnum_local.local_tls import CERTIFICATES, LocalTls, Plaintext
from regnum_local.plan import (
    EMPTY,
    REPLICATION_FACTOR_MAX,
    STORE_ADMIN,
    STORES,
    Launch,
    Member,
    Plan,
    Role,
    command,
    grow,
    store_url,
)
from regnum_local.reporting import unfailing
from regnum_local.running_store import check_running
from regnum_local.runtime_record import RuntimeRecord, remove_record, write_record
from regnum_local.store_choice import StoreChoice, choose_store
from regnum_local.store_programs import find_store_program, write_zookeeper

HEALTHY_TIMEOUT_S: Final = 60.0
"""So long a process that is started again is waited for; it goes on starting all the same."""
POLL_S: Final = 0.05
STARTS_MAX: Final = 3
"""Starts of the whole cluster when each time another port was taken between its choice and its use."""
LOGS: Final = "logs"
"""Folder of the processes' logs, in the cluster's."""
PLAN: Final = "cluster.json"
"""File of the processes and their ports, in the cluster's folder."""
STOP_TIMEOUT_S: Final[Mapping[Role, float]] = {
    Role.BROKER: 15.0,
    Role.METADATA: 5.0,
    Role.QUOTA: 5.0,
    Role.ELECTION: 5.0,
    Role.ETCD: 5.0,
    Role.ZOOKEEPER: 5.0,
}
"""Time to end after SIGTERM; brokers first hand their leadership over."""


class LaunchError(StartRefusedError):
    """The cluster cannot be started. The message names the process, shows the end of its log and says what to do."""

    def __init__(self, message: str, *, exit_status: ExitStatus = ExitStatus.FAILED) -> None:
        super().__init__(message, exit_status=exit_status)


class PortTakenError(LaunchError):
    """A process ended, and somebody else listens where it should have."""

    def __init__(self, message: str, taken: Address) -> None:
        super().__init__(message)
        self.taken = taken
        """Where."""


class ProcessState(enum.Enum):
    """What a process of the cluster is doing."""

    RUNNING = "running"
    """It runs."""
    PAUSED = "paused"
    """It was stopped by SIGSTOP and holds its connections open."""
    ELSEWHERE = "elsewhere"
    """Its launcher runs it not, and somebody listens where it should: it was started by hand, perhaps."""
    EXITED = "exited"
    """It ended, or was never started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One process, for a table."""

    name: str
    """Name in the cluster: ``broker-2``."""
    role: Role
    """What it is."""
    id: int
    """Id among those of its role."""
    pid: int | None
    """Process id; None when it does not run."""
    state: ProcessState
    """What it does."""
    addresses: Mapping[str, Address]
    """Its listeners by name."""


class LocalCluster:
    """The processes of one cluster. Used from one event loop, which runs on the main thread (see tether)."""

    def __init__(
        self,
        data_dir: Path,
        *,
        brokers: int | None = 3,
        elections: int | None = 3,
        metadata: int | None = 2,
        quotas: int | None = 0,
        coordination: str | None = None,
        port_base: int | None = None,
        bind: str | None = None,
        report: Callable[[str], None] = lambda _line: None,
        extra: Mapping[Role, Sequence[str]] | None = None,
        tls: bool = False,
        tethered: bool = True,
        make_command: Callable[[Member, Launch], list[str]] = command,
        find_store: Callable[[Role], Sequence[str]] = find_store_program,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Only assigns.

        Args:
            data_dir: Folder of the cluster. One that held a cluster before brings it back, with all its members.
            brokers: Number of brokers, at least; None, here and below: as many as the folder has.
            elections: Number of election processes, at least.
            metadata: Number of metadata processes, at least.
            quotas: Number of quota processes, at least.
            coordination: ``etcd`` or ``zookeeper`` starts one here; otherwise the URL of one that runs elsewhere. None:
                the embedded store that the folder has, etcd in a new one.
            port_base: Port of broker 1 for clients, of broker 2 the next, and so on; None: as in the folder.
            bind: Host of the listeners for clients; None: as in the folder, loopback in a new one.
            report: Gets a line for each thing that a person may want to know.
            extra: Further flags for the processes of a role.
            tls: Whether every listener speaks TLS, with certificates that are made below the folder.
            tethered: Whether the processes get SIGTERM when this one dies without stopping them.
            make_command: Command line of a process.
            find_store: How the program of an embedded store is called.
            clock: The machine's, by default.
            rng: Chooses ports.
        """
        self._data_dir = data_dir.absolute()
        self._brokers, self._elections = brokers or 0, elections or 0
        self._metadata, self._quotas = metadata or 0, quotas or 0
        self._asked, self._port_base, self._bind = coordination, port_base, bind
        self._store_url: str | None = None
        self._store_program: Sequence[str] = ()
        self._report = unfailing(report)
        self._extra = dict(extra or {})
        self._tls = LocalTls(self._data_dir / CERTIFICATES) if tls else Plaintext()
        self._tethered = tethered
        self._make_command = make_command
        self._find_store = find_store
        self._clock: Clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._lock: DataDirLock | None = None
        self._plan: Plan = EMPTY
        self._children: dict[str, Child] = {}
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._serving = asyncio.Event()
        self._awaited = Awaited(report, self._clock, self._data_dir / LOGS)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def data_dir(self) -> Path:
        """Folder of the cluster."""
        return self._data_dir

    @property
    def plan(self) -> Plan:
        """The processes and their ports; empty before the start."""
        return self._plan

    @property
    def bootstrap(self) -> tuple[str, ...]:
        """``host:port`` where clients find the cluster: the brokers' client listeners."""
        return self._plan.bootstrap

    @property
    def tls(self) -> TlsFiles | None:
        """What clients need to connect; None: nothing."""
        return self._tls.client

    @property
    def coordination(self) -> str:
        """URL of the store; known once the cluster was started."""
        return self._coordination_of(STORE_ADMIN)

    def _coordination_of(self, name: str) -> str:
        """URL of the store as a process of that name is told it."""
        return store_url(self._plan, self._tls.folder, shows=name) if self._store_url is None else self._store_url

    async def start(self, timeout_s: float | None = None) -> None:
        """Start everything and wait until it serves, for as long as all that was started lives.

        Args:
            timeout_s: give each process no more time than this. A large log on a slow disk takes its time; so None, the
                default, sets no limit, and tells every few seconds what is waited for.

        Raises LaunchError or another StartRefusedError, with nothing left running: a process has ended.
        """
        self._lock = DataDirLock.take(self._data_dir)
        async with AsyncExitStack() as undo, AsyncExitStack() as meanwhile:
            undo.push_async_callback(self.kill_all)
            telling = asyncio.create_task(self._awaited.tell(), name="tell what is waited for")
            meanwhile.callback(telling.cancel)
            left = await end_leftovers(self._data_dir)
            if left:
                self._report(f"ended what an earlier run left behind: {', '.join(left)}")
            known = self._read_plan()
            choice = choose_store(self._asked, known, self._data_dir)
            # Before the plan is kept: a folder must not remember a store that it never had.
            if choice.embedded is not None:
                self._store_program = tuple(self._find_store(choice.embedded))
            elif choice.url is not None:
                await check_running(choice.url, holds=clusters_in(self._data_dir))
            self._store_url = choice.url
            await self._start_planned(known, choice, timeout_s)
            self._serving.set()
            undo.pop_all()

    async def _start_planned(self, known: Plan, choice: StoreChoice, timeout_s: float | None) -> None:
        """A port is free when it is chosen and may be somebody else's when it is bound, a moment later."""
        for attempt in range(1, STARTS_MAX + 1):
            self._plan = self._make_plan(known, choice)
            try:
                await self._start_all(timeout_s)
            except PortTakenError as error:
                if attempt == STARTS_MAX:
                    raise
                self._report(f"{error.taken} was taken by another process meanwhile; starting again with another port")
                known = self._plan
                await self._end_children()
            else:
                return

    async def stop(self) -> None:
        """End everything in order: brokers (they hand over their leadership), then what they need, the store last."""
        for role in (Role.BROKER, Role.METADATA, Role.QUOTA, Role.ELECTION, *STORES):
            running = [child for child in self._of(role) if child.running]
            graceful = await asyncio.gather(*(child.terminate(STOP_TIMEOUT_S[role]) for child in running))
            for child, heeded in zip(running, graceful, strict=True):
                if not heeded:
                    self._report(f"{child.name} did not end {STOP_TIMEOUT_S[role]:g} s after SIGTERM and was killed")
        await self._finish()

    async def kill_all(self) -> None:
        """End everything at once, without any care."""
        await self._end_children()
        await self._finish()

    async def _end_children(self) -> None:
        await asyncio.gather(*(child.kill() for child in self._children.values()))
        await self._forget_children()

    async def kill(self, name: str) -> None:
        """Kill -9 a process and wait until it is gone."""
        await self._child(name).kill()
        self._record()

    async def terminate(self, name: str) -> None:
        """SIGTERM: the process ends in its own orderly way. SIGKILL when it does not in time."""
        await self._child(name).terminate(STOP_TIMEOUT_S[self._member(name).role])
        self._record()

    def pause(self, name: str) -> None:
        """Stop a process where it stands; its connections stay open and silent."""
        self._child(name).pause()

    def resume(self, name: str) -> None:
        """Let a paused process go on."""
        self._child(name).resume()

    async def restart(self, name: str) -> None:
        """Start a process again, on the same ports and folders; ends it first if it runs. See ``wait_healthy``."""
        member = self._member(name)
        child = self._children.get(name)
        if child is not None and child.running:
            await self.terminate(name)
        await self._spawn(member)

    async def wait_healthy(self, name: str, timeout_s: float | None = HEALTHY_TIMEOUT_S) -> None:
        """Wait until a process serves; LaunchError when it ends instead, or takes longer than ``timeout_s``."""
        member, child = self._member(name), self._child(name)
        deadline_s = self._deadline_s(timeout_s)
        with self._awaited.waiting(name, lambda: "is paused" if child.paused else "runs and does not serve yet"):
            while not await probes.healthy(member, self._open_to, self._tls.store_context):
                if not child.running:
                    said = _ended(child, "fix the cause and run `up` again; a port in use will be replaced")
                    taken = [one for one in member.addresses.values() if not is_free(one.port, one.host)]
                    raise PortTakenError(said, taken[0]) if taken else LaunchError(said)
                if self._clock.monotonic() > deadline_s:
                    raise LaunchError(
                        f"{name} does not serve after {timeout_s:g} s; the end of its log:\n{child.log_tail()}\n"
                        f"the whole log is below {self._data_dir / LOGS}",
                        exit_status=ExitStatus.UNAVAILABLE,
                    )
                await self._clock.sleep(POLL_S)

    def _deadline_s(self, timeout_s: float | None) -> float:
        return math.inf if timeout_s is None else self._clock.monotonic() + timeout_s

    def status(self) -> tuple[ProcessRow, ...]:
        """All processes as they are now."""
        return tuple(self._row(member) for member in self._plan.members)

    def _row(self, member: Member) -> ProcessRow:
        child = self._children.get(member.name)
        state = ProcessState.EXITED
        if child is not None and child.running:
            state = ProcessState.PAUSED if child.paused else ProcessState.RUNNING
        return ProcessRow(
            name=member.name,
            role=member.role,
            id=member.id,
            pid=child.pid if child is not None and child.running else None,
            state=state,
            addresses=member.addresses,
        )

    def _of(self, role: Role) -> list[Child]:
        return [self._children[one.name] for one in self._plan.of(role) if one.name in self._children]

    def _member(self, name: str) -> Member:
        member = self._plan.get(name)
        if member is None:
            names = ", ".join(member.name for member in self._plan.members)
            raise LaunchError(f"there is no process {name}; there are: {names or 'none, the cluster is not started'}")
        return member

    def _child(self, name: str) -> Child:
        child = self._children.get(self._member(name).name)
        if child is None:
            raise LaunchError(f"{name} was not started; start it with restart")
        return child

    def _read_plan(self) -> Plan:
        path = self._data_dir / PLAN
        try:
            value = read_json(path)
            return EMPTY if value is None else Plan.from_json(value)
        except (KeyError, TypeError, ValueError) as error:
            raise LaunchError(f"cannot read {path}: {error!r}; repair it, or choose another folder") from error

    def _make_plan(self, known: Plan, choice: StoreChoice) -> Plan:
        host = self._bind or known.bind
        plan = grow(
            known,
            brokers=self._brokers,
            elections=self._elections,
            metadata=self._metadata,
            quotas=self._quotas,
            store=choice.embedded,
            is_free=lambda port: is_free(port) and is_free(port, host),
            choose=lambda taken: free_port(self._rng, taken=taken),
            port_base=self._port_base,
            bind=host,
        )
        write_json(self._data_dir / PLAN, plan.to_json())
        self._tls.prepare(plan)
        return plan

    async def _start_all(self, timeout_s: float | None) -> None:
        store = self._plan.store
        if store is not None:
            self._report(f"starting {store.name}")
            await self._spawn(store)
            await self.wait_healthy(store.name, timeout_s)
            if holds := clusters_in(self._data_dir):
                await check_running(self.coordination, holds=holds)
        others = [member for member in self._plan.members if member is not store]
        self._report(f"starting {', '.join(member.name for member in others)}")
        for member in others:
            await self._spawn(member)
        waits = [
            asyncio.create_task(self.wait_healthy(member.name, timeout_s), name=f"wait for {member.name}")
            for member in others
        ]
        try:
            await asyncio.gather(*waits)
        finally:
            for wait in waits:
                wait.cancel()
        if self._plan.of(Role.METADATA):
            await self._wait_until_all_are_known(timeout_s)

    async def _wait_until_all_are_known(self, timeout_s: float | None) -> None:
        """Brokers serve when they have registered; who creates a topic needs a controller that has heard of it."""
        ids = [member.id for member in self._plan.of(Role.BROKER)]
        deadline_s = self._deadline_s(timeout_s)
        for member in self._plan.of(Role.BROKER):
            child = self._child(member.name)
            with self._awaited.waiting(member.name, lambda: "has heard of no controller yet that knows all brokers"):
                while not await probes.names_brokers(member.address("client"), ids, self._open_to(member, "client")):
                    if not child.running:
                        raise LaunchError(_ended(child, "fix the cause and run `up` again"))
                    if self._clock.monotonic() > deadline_s:
                        raise LaunchError(
                            f"{member.name} serves, and has not heard within {timeout_s:g} s of a controller that "
                            f"knows all brokers; the logs of the election processes say why: {self._data_dir / LOGS}"
                        )
                    await self._clock.sleep(POLL_S)

    def _open_to(self, member: Member, listener: str) -> Open:
        return self._tls.opener(member.name, listener)

    async def _spawn(self, member: Member) -> None:
        if self._lock is None:
            raise LaunchError("the cluster is not started; call start first")
        home = self._data_dir / member.name
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if member.role is Role.ZOOKEEPER:
            write_zookeeper(member, home, self._tls.folder)
        launch = Launch(
            python=sys.executable,
            store=self._store_program,
            data_dir=self._data_dir,
            coordination=self._coordination_of(member.name),
            replication_factor=min(REPLICATION_FACTOR_MAX, len(self._plan.of(Role.BROKER))),
            extra=self._extra,
            certificates=self._tls.folder,
        )
        log_path = self._data_dir / LOGS / f"{member.name}.log"
        child = await Child.start(member.name, self._make_command(member, launch), log_path, tethered=self._tethered)
        self._children[member.name] = child
        self._watchers[member.name] = asyncio.create_task(self._watch(child), name=f"watch {member.name}")
        self._record()

    async def _watch(self, child: Child) -> None:
        await child.wait()
        # Until then LaunchError says it.
        await self._serving.wait()
        if not child.expected_to_end:
            log = self._data_dir / LOGS / f"{child.name}.log"
            self._report(_ended(child, f"bring it back with: regnum restart {child.name}; its whole log is {log}"))
            with suppress(OSError):
                self._record()

    def _record(self) -> None:
        running = {name: child.identity for name, child in self._children.items() if child.running}
        processes = {name: identity for name, identity in running.items() if identity is not None}
        write_record(self._data_dir, RuntimeRecord(launcher=ProcessIdentity.of_self(), processes=processes))

    async def _forget_children(self) -> None:
        watchers = tuple(self._watchers.values())
        self._watchers.clear()
        self._children.clear()
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)

    async def _finish(self) -> None:
        self._serving.clear()
        await self._forget_children()
        if self._lock is not None:
            remove_record(self._data_dir)
            self._lock.release()
            self._lock = None


def _ended(child: Child, advice: str) -> str:
    if child.exit_status == -signal.SIGKILL:
        # Nobody dies of SIGKILL by its own doing: its log has nothing to say.
        return f"{child.name} was killed (SIGKILL); {advice}"
    return f"{child.name} ended with status {child.exit_status}; the end of its log:\n{child.log_tail()}\n{advice}"
