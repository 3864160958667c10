"""What `regnum up`, `regnum down`, `regnum restart` and `regnum status` do."""

import asyncio
import shlex
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from regnum_service.clock import SystemClock
from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.ports import is_free
from regnum_service.tls.files import TlsFiles

from regnum_local.cluster import PLAN, LocalCluster, ProcessRow, ProcessState
from regnum_local.counts import counts_of
from regnum_local.data_dir import DataDirLock, end_leftovers, gone
from regnum_local.files import read_json
from regnum_local.identity import ProcessIdentity
from regnum_local.plan import EMPTY, STORES, Member, Plan, Role
from regnum_local.profile import (
    Profile,
    ProfileTls,
    leave_profile,
    own_profile_path,
    profile_path,
    read_profile,
    remove_profiles,
    write_profile,
)
from regnum_local.protection import UNPROTECTED, Protection, check_bind, keep, protected_as_before
from regnum_local.restarting import ask_for_restart, forget_requests, serve_requests
from regnum_local.runtime_record import read_record

INTERRUPTED: Final = 128 + signal.SIGINT
"""Exit status of a start that Ctrl-C broke off, as shells count."""

DOWN_TIMEOUT_S: Final = 60.0
"""Time that a launcher gets to stop its cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """What `regnum up` was asked for."""

    data_dir: Path
    """Folder of the cluster; an earlier cluster in it comes back."""
    brokers: int | None = None
    """Number of brokers; None, here and below: as many as the folder has, or as ``counts.NEW`` says in a new one."""
    elections: int | None = None
    """Number of election processes."""
    metadata: int | None = None
    """Number of metadata processes."""
    quotas: int | None = None
    """Number of quota processes."""
    coordination: str | None = None
    """``etcd`` or ``zookeeper`` to start one, or the URL of one that runs; None: the folder's, etcd in a new one."""
    port_base: int | None = None
    """Port of broker 1 for clients, of broker 2 the next, and so on; None: as in the folder, free ones in a new one."""
    bind: str | None = None
    """Host of the listeners for clients; None: as in the folder, loopback in a new one."""
    protection: Protection = UNPROTECTED
    """What is asked for besides what the folder has; where rights are checked, which takes TLS, the client admin may do
    everything, and the processes among them."""
    report: Callable[[str], None] = lambda _line: None
    """Gets a line for each thing that a person may want to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A cluster that has just become healthy."""

    data_dir: Path
    """Its folder."""
    bootstrap: tuple[str, ...]
    """``host:port`` of the brokers for clients."""
    kafka: tuple[str, ...]
    """The same for clients that speak Kafka's protocol (``bootstrap.servers``)."""
    coordination: str
    """URL of its store."""
    processes: tuple[ProcessRow, ...]
    """Its processes."""
    protection: Protection = UNPROTECTED
    """How it is protected."""
    export: str = ""
    """What has the shell's commands go to it; empty: they do by themselves."""
    tls: TlsFiles | None = None
    """What clients need to connect; None: nothing."""


def _nothing(_view: ClusterView) -> AbstractAsyncContextManager[None]:
    """Nothing runs beside the cluster."""
    return nullcontext()


def _as_before(options: UpOptions) -> UpOptions:
    """The same with all numbers of processes, and as protected as the folder was.

    Raises StartRefusedError for fewer processes than the folder has, and for a host that clients may not come to.
    """
    asked = {
        Role.BROKER: options.brokers,
        Role.ELECTION: options.elections,
        Role.METADATA: options.metadata,
        Role.QUOTA: options.quotas,
    }
    plan = _plan_in(options.data_dir)
    counts = counts_of(plan, asked, options.data_dir)
    protection = protected_as_before(options.protection, options.data_dir)
    check_bind(options.bind or plan.bind, protection)
    return replace(
        options,
        brokers=counts[Role.BROKER],
        elections=counts[Role.ELECTION],
        metadata=counts[Role.METADATA],
        quotas=counts[Role.QUOTA],
        protection=protection,
    )


def _plan_in(folder: Path) -> Plan:
    """What was kept of the cluster in a folder; EMPTY when there is none. Raises StartRefusedError."""
    path = folder / PLAN
    try:
        value = read_json(path)
        return EMPTY if value is None else Plan.from_json(value)
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise StartRefusedError(
            f"cannot read {path}: {error!r}; repair it, or choose another folder", exit_status=ExitStatus.FAILED
        ) from error


def _make_cluster(options: UpOptions) -> LocalCluster:
    checked = ("--authorizer", "acl", "--super-users", "User:admin", "--require-store-authentication", "true")
    roles = [role for role in Role if role not in STORES]
    return LocalCluster(
        options.data_dir,
        brokers=options.brokers,
        elections=options.elections,
        metadata=options.metadata,
        quotas=options.quotas,
        coordination=options.coordination,
        port_base=options.port_base,
        bind=options.bind,
        report=options.report,
        extra=dict.fromkeys(roles, checked) if options.protection.acl else None,
        tls=options.protection.tls,
    )


async def run_up(
    options: UpOptions,
    *,
    ready: Callable[[ClusterView], None],
    beside: Callable[[ClusterView], AbstractAsyncContextManager[None]] = _nothing,
    make_cluster: Callable[[UpOptions], LocalCluster] = _make_cluster,
) -> int:
    """Run a cluster in the foreground until SIGINT or SIGTERM; returns the exit status.

    Calls ``ready`` once it is healthy and its profile is written; ``beside`` is entered then, and left before the
    cluster stops. Raises StartRefusedError (LaunchError among them)
    when it cannot start. A second signal while it stops ends everything at once.
    """
    asked, options = options.protection, _as_before(options)
    if options.protection != asked:
        had = "TLS and rights" if options.protection.acl else "TLS"
        options.report(f"the cluster in {options.data_dir} has {had}, and comes back with that")
    cluster = make_cluster(options)
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue(maxsize=16)
    handled = (signal.SIGINT, signal.SIGTERM)

    def arrived(signum: signal.Signals) -> None:
        if not signals.full():
            signals.put_nowait(signum)

    for signum in handled:
        loop.add_signal_handler(signum, arrived, signum)
    try:
        return await _run(cluster, signals, options, ready, beside)
    finally:
        for signum in handled:
            loop.remove_signal_handler(signum)


async def _run(
    cluster: LocalCluster,
    signals: asyncio.Queue[signal.Signals],
    options: UpOptions,
    ready: Callable[[ClusterView], None],
    beside: Callable[[ClusterView], AbstractAsyncContextManager[None]],
) -> int:
    starting = asyncio.create_task(cluster.start(), name="start the cluster")
    stop_asked = asyncio.create_task(signals.get(), name="wait for a signal")
    await asyncio.wait({starting, stop_asked}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        signum = stop_asked.result()
        options.report(f"{signum.name}: stopping before the start was complete")
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return INTERRUPTED if signum is signal.SIGINT else ExitStatus.FAILED
    if starting.exception() is not None:
        stop_asked.cancel()
        await starting
    try:
        forget_requests(cluster.data_dir)
        keep(options.protection, cluster.data_dir)
        export = _leave_profile(cluster, options.report)
        requests = asyncio.create_task(serve_requests(cluster, SystemClock()), name="serve requests")
        try:
            view = _view(cluster, options, export)
            ready(view)
            async with beside(view):
                await asyncio.wait({stop_asked, requests}, return_when=asyncio.FIRST_COMPLETED)
            if requests.done():
                await requests
            options.report(f"{stop_asked.result().name}: stopping")
        finally:
            stop_asked.cancel()
            requests.cancel()
            await asyncio.gather(stop_asked, requests, return_exceptions=True)
    finally:
        await _stop(cluster, signals)
        remove_profiles(cluster.data_dir)
    return ExitStatus.DONE


async def _stop(cluster: LocalCluster, signals: asyncio.Queue[signal.Signals]) -> None:
    stopping = asyncio.create_task(cluster.stop(), name="stop the cluster")
    impatient = asyncio.create_task(signals.get(), name="wait for a second signal")
    await asyncio.wait({stopping, impatient}, return_when=asyncio.FIRST_COMPLETED)
    if not stopping.done():
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        await cluster.kill_all()
        return
    impatient.cancel()
    await stopping


def _untold(_line: str) -> None:
    """Nobody wants to know."""


async def run_down(data_dir: Path | None = None, *, report: Callable[[str], None] = _untold) -> list[str]:
    """Stop the cluster in a folder (None: the profile's); returns the names of the processes that were ended.

    Asks its launcher if that still runs, and ends what is recorded otherwise; ``report`` gets a line about what is
    waited for. Raises StartRefusedError (exit status 3)
    when there is no cluster, and ProfileError when the profile cannot be read.
    """
    chosen = chosen_folder(data_dir)
    record = read_record(chosen)
    if record is None:
        remove_profiles(chosen)
        raise StartRefusedError(
            f"no cluster runs in {chosen}; start one with `regnum up`", exit_status=ExitStatus.NOT_FOUND
        )
    running = [name for name, process in record.processes.items() if process.alive()]
    report(f"stopping {len(running)} processes of {chosen}: brokers first hand over what they lead")
    if record.launcher.send(signal.SIGTERM):
        await _end_of(record.launcher)
    lock = DataDirLock.take(chosen)
    try:
        await end_leftovers(chosen)
    finally:
        lock.release()
    remove_profiles(chosen)
    return running


async def run_restart(
    data_dir: Path | None, name: str, *, force: bool = False, report: Callable[[str], None] = _untold
) -> ProcessRow:
    """Have a process of the cluster in a folder (None: the profile's) started again by its launcher, until it serves.

    Args:
        data_dir: folder of the cluster.
        name: name of the process in it: ``broker-2``.
        force: end it first if it runs.
        report: gets a line about what is waited for.

    Raises:
        StartRefusedError: there is no cluster, nobody has that name (exit status 3); the process runs and is not to
            be ended, or somebody else has its ports (4); it does not start (1); its launcher does not answer (5).
        ProfileError: the profile cannot be read.
    """
    chosen = chosen_folder(data_dir)
    record = read_record(chosen)
    if record is None or not record.launcher.alive():
        raise StartRefusedError(
            f"no cluster runs in {chosen}, whose `regnum up` would start {name}; start all of it with `regnum up`",
            exit_status=ExitStatus.NOT_FOUND,
        )
    report(f"asking `regnum up` (pid {record.launcher.pid}) for {name}, and waiting until it serves")
    await ask_for_restart(chosen, name, force=force, launcher_lives=record.launcher.alive, clock=SystemClock())
    return next(row for row in read_status(chosen) if row.name == name)


async def _end_of(launcher: ProcessIdentity) -> None:
    try:
        async with asyncio.timeout(DOWN_TIMEOUT_S):
            await gone([launcher])
    except TimeoutError:
        raise StartRefusedError(
            f"the launcher (pid {launcher.pid}) was asked to stop and still runs after {DOWN_TIMEOUT_S:g} s; "
            f"look at its terminal, or end it with: kill -9 {launcher.pid}, and run `regnum down` again",
            exit_status=ExitStatus.UNAVAILABLE,
        ) from None


def read_status(data_dir: Path | None = None) -> list[ProcessRow]:
    """The processes of the cluster in a folder (None: the profile's), as the machine shows them now.

    Raises StartRefusedError (exit status 3) when there has never been a cluster, and ProfileError.
    """
    chosen = chosen_folder(data_dir)
    plan = _plan_in(chosen)
    if not plan.members:
        raise StartRefusedError(
            f"there is no cluster in {chosen}; start one with `regnum up`", exit_status=ExitStatus.NOT_FOUND
        )
    record = read_record(chosen)
    processes: Mapping[str, ProcessIdentity] = {} if record is None else record.processes
    rows: list[ProcessRow] = []
    for member in plan.members:
        identity = processes.get(member.name)
        letter = None if identity is None else identity.state()
        state = {"T": ProcessState.PAUSED}.get(letter, ProcessState.RUNNING) if letter else _without_launcher(member)
        pid = None if identity is None or letter is None else identity.pid
        rows.append(
            ProcessRow(
                name=member.name, role=member.role, id=member.id, pid=pid, state=state, addresses=member.addresses
            )
        )
    return rows


def _without_launcher(member: Member) -> ProcessState:
    """What a process does that is not the launcher's: somebody listens where it is asked, or it does not run."""
    asked = member.addresses.get("client") or next(iter(member.addresses.values()))
    return ProcessState.EXITED if is_free(asked.port, asked.host) else ProcessState.ELSEWHERE


def chosen_folder(data_dir: Path | None) -> Path:
    """A folder of a cluster; None: that of the profile. Raises StartRefusedError (exit status 3) and ProfileError."""
    if data_dir is not None:
        return data_dir.absolute()
    profile = read_profile()
    if profile is None:
        raise StartRefusedError(
            "no cluster is known here; start one with `regnum up`, or name its folder with --data-dir",
            exit_status=ExitStatus.NOT_FOUND,
        )
    return profile.data_dir


def _leave_profile(cluster: LocalCluster, report: Callable[[str], None]) -> str:
    """Leave it; returns what has commands go to this cluster, where they do not by themselves."""
    profile, own = _profile(cluster), own_profile_path(cluster.data_dir)
    write_profile(profile, own)
    export = f"export REGNUM_PROFILE={shlex.quote(str(own))}"
    try:
        other = leave_profile(profile)
    except OSError as error:
        # The cluster runs all the same, and can be reached by the profile in its folder.
        report(f"the profile {profile_path()} cannot be written ({error.strerror}). For this cluster:\n  {export}")
        return export
    if other is None:
        return ""
    report(
        f"another cluster runs, of {other.data_dir}, and the commands go to that one as before (by {profile_path()}). "
        f"For this one:\n  {export}"
    )
    return export


def _profile(cluster: LocalCluster) -> Profile:
    elections = tuple(str(member.address("client")) for member in cluster.plan.of(Role.ELECTION))
    return Profile(
        bootstrap=cluster.bootstrap,
        elections=elections,
        coordination=cluster.coordination,
        data_dir=cluster.data_dir,
        launcher=ProcessIdentity.of_self(),
        tls=_profile_tls(cluster.tls),
    )


def _profile_tls(files: TlsFiles | None) -> ProfileTls | None:
    if files is None or files.ca is None or files.certificate is None or files.key is None:
        return None
    return ProfileTls(ca=files.ca, certificate=files.certificate, key=files.key)


def _view(cluster: LocalCluster, options: UpOptions, export: str) -> ClusterView:
    return ClusterView(
        data_dir=cluster.data_dir,
        bootstrap=cluster.bootstrap,
        kafka=cluster.plan.kafka,
        coordination=cluster.coordination,
        processes=cluster.status(),
        protection=options.protection,
        export=export,
        tls=cluster.tls,
    )
