"""The log directory of a broker, opened at its start and closed at its end."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from regnum_model.ids import BrokerId
from regnum_service.clock import Clock
from regnum_service.errors import StartRefusedError
from regnum_service.failpoints.announcing import announce
from regnum_service.failpoints.trigger import FailpointTrigger
from regnum_service.machine import MACHINE, Machine
from regnum_service.supervisor import Supervisor
from regnum_telemetry.metrics import Metrics

from regnum_broker.failpoints.storage import FailpointStorage
from regnum_broker.log.contents import Recovery
from regnum_broker.log.directory import LogDirectory
from regnum_broker.log.disk.system_calls import Disk
from regnum_broker.log.errors import DirectoryInUseError, DirectoryUnusableError
from regnum_broker.log.opening import open_directory
from regnum_broker.maintenance import Checkpointing
from regnum_broker.settings import BrokerSettings
from regnum_broker.storage import Storage

FOREIGN_NAMED: Final = 20
"""Paths that are not Regnum's of which the log names so many; it counts all."""

RECOVERY_SAID_S: Final = 5.0
"""Time between two lines of the log on how far a start is."""


LOCK_INTERVAL_S: Final = 0.2
"""Pause before a directory that is in use is tried again."""


async def open_storage(
    settings: BrokerSettings,
    *,
    clock: Clock,
    metrics: Metrics,
    disk: Disk | None = None,
    failpoints: FailpointTrigger | None = None,
    machine: Machine = MACHINE,
) -> Storage:
    """The log directory, recovered, with the threads that work in it.

    Raises:
        StartRefusedError: the directory cannot be used as told.
    """
    announce(failpoints)
    try:
        directory = await _free(settings, clock, disk, machine)
    except DirectoryUnusableError as error:
        raise StartRefusedError(str(error)) from error
    _log_damage(directory)
    if failpoints is None:
        storage = Storage(directory, clock=clock, metrics=metrics, make_pool=machine.pool)
    else:
        storage = FailpointStorage(directory, failpoints, clock=clock, metrics=metrics, make_pool=machine.pool)
    storage.start()
    return storage


async def _free(settings: BrokerSettings, clock: Clock, disk: Disk | None, machine: Machine) -> LogDirectory:
    """The directory, as soon as nobody else holds it: a Pod that was replaced may still be on its way out.

    Raises:
        DirectoryUnusableError: it cannot be used, or is still held when the patience is over.
    """
    began_s = clock.monotonic()
    told: str | None = None
    while True:
        try:
            directory = await asyncio.to_thread(_opened, settings, clock, disk, machine)
        except DirectoryInUseError as error:
            waited_s = clock.monotonic() - began_s
            if waited_s + LOCK_INTERVAL_S > settings.lock_wait_s:
                raise DirectoryInUseError(
                    f"{error}. Waited for {waited_s:.0f} s (--lock-wait-s); in Kubernetes, see whether the Pod before"
                    " is still there (kubectl get pods -o wide), and whether two Pods mount the same volume"
                ) from error
            # Each holder once: there may be another one after it.
            if str(error) != told:
                told = str(error)
                structlog.get_logger("storage").warning(
                    "waiting for the log directory", reason=told, lock_wait_s=settings.lock_wait_s
                )
            await clock.sleep(LOCK_INTERVAL_S)
        else:
            if told is not None:
                structlog.get_logger("storage").info(
                    "log directory is free", waited_s=round(clock.monotonic() - began_s, 1)
                )
            return directory


async def close_storage(storage: Storage, checkpointing: Checkpointing, supervisor: Supervisor) -> None:
    """Save the checkpoints and leave the directory; marked as cleanly left unless this process has failed."""
    if not storage.directory.failed:
        await checkpointing.save()
    await storage.close(clean=supervisor.failure is None)


def _opened(settings: BrokerSettings, clock: Clock, disk: Disk | None, machine: Machine) -> LogDirectory:
    """The broker's log directory; reads and writes files."""
    return open_directory(
        settings.data_dir,
        broker_id=BrokerId(settings.broker_id),
        mint_id=machine.new_id,
        boot_id=machine.boot_id(),
        wall_ms=clock.wall_ms,
        segment_bytes=settings.segment_bytes,
        reserve_bytes=settings.reserve_bytes,
        index_cache_bytes=settings.index_cache_bytes,
        recovery=Recovery(threads=settings.num_recovery_threads_per_data_dir, told=_telling(clock)),
        disk=disk,
    )


def _telling(clock: Clock) -> Callable[[int, int], None]:
    """Tells an operator how far a start is: that of a large broker, or from a slow disk, takes its time."""
    began_s = said_s = clock.monotonic()
    log = structlog.get_logger("storage")

    def told(done: int, count: int) -> None:
        nonlocal said_s
        now_s = clock.monotonic()
        if done == count or now_s - said_s >= RECOVERY_SAID_S:
            said_s = now_s
            log.info("logs recovered", replicas=done, of=count, seconds=round(now_s - began_s, 1))

    return told


def _log_damage(directory: LogDirectory) -> None:
    """Say what was found when it was opened."""
    for key, reason in directory.offline.items():
        structlog.get_logger("storage").error(
            "replica offline", topic_id=key.topic_id, partition=key.partition, reason=str(reason)
        )
    for note in directory.notes:
        structlog.get_logger("storage").error("log directory was not as it was left", note=note)
    if directory.foreign:
        structlog.get_logger("storage").warning(
            "what is not Regnum's in the log directory is left alone",
            paths=directory.foreign[:FOREIGN_NAMED],
            count=len(directory.foreign),
        )
