"""How a log directory is opened: locked, formatted or recovered, and judged."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from regnum_model.ids import BrokerId, DirectoryId, LogId

from regnum_broker.log.contents import Recovery, examine
from regnum_broker.log.directory import LogDirectory
from regnum_broker.log.disk.disk import CACHE_BYTES, GuardedDisk
from regnum_broker.log.disk.lock import LockHolder, acquire_lock
from regnum_broker.log.disk.system_calls import Disk
from regnum_broker.log.errors import (
    DirectoryUnusableError,
    MalformedDirectoryError,
    ResourceExhaustedError,
    WrongBrokerError,
)
from regnum_broker.log.folders import holds_replicas
from regnum_broker.log.identity import Identity
from regnum_broker.log.journal.file import Journal
from regnum_broker.log.proof import Proof
from regnum_broker.log.replica.rolling import LogSettings

SEGMENT_BYTES: Final = 256 * 1024 * 1024
"""Size at which a segment is closed, unless told otherwise."""
RESERVE_BYTES: Final = 16 * 1024 * 1024
"""Room held back on the disk for a directory's own bookkeeping, unless told otherwise."""
RECOVERY: Final = Recovery()
"""How replicas are looked at, unless told otherwise."""
OPEN_FILES_MAX: Final = 256
"""Segment files held open, unless told otherwise."""


def open_directory(
    path: Path,
    *,
    broker_id: BrokerId,
    mint_id: Callable[[], str],
    boot_id: str,
    wall_ms: Callable[[], int],
    segment_bytes: int = SEGMENT_BYTES,
    open_files_max: int = OPEN_FILES_MAX,
    reserve_bytes: int = RESERVE_BYTES,
    index_cache_bytes: int = CACHE_BYTES,
    recovery: Recovery = RECOVERY,
    disk: Disk | None = None,
) -> LogDirectory:
    """Lock, format or recover the directory. Blocking.

    Args:
        path: the directory; created if it is missing.
        broker_id: whose it is.
        mint_id: makes new directory ids and log ids.
        boot_id: content of /proc/sys/kernel/random/boot_id (safety rule S10); empty: unknown, which proves nothing.
        wall_ms: milliseconds since 1970, for forgetting idempotent producers.
        segment_bytes: size at which a segment is closed and the next one begun, unless the controller says another.
        open_files_max: segment files held open.
        reserve_bytes: room that is held back for the directory's own bookkeeping on a full disk; 0: none.
        index_cache_bytes: how much is kept of indexes.
        recovery: how replicas are looked at.
        disk: system calls; tests inject faults here.

    Raises:
        DirectoryUnusableError: it is in use, not readable, another broker's, or too full even to be opened.
        DirectoryFailedError: the disk failed.
    """
    calls = disk if disk is not None else Disk()
    try:
        (path / "replicas").mkdir(parents=True, exist_ok=True)
        lock = acquire_lock(path / ".lock", LockHolder.here(wall_ms()), calls)
    except OSError as error:
        raise DirectoryUnusableError(f"{path} cannot be used as a log directory: {error}") from error
    guarded = GuardedDisk(
        path, calls, open_files_max=open_files_max, reserve_bytes=reserve_bytes, cache_bytes=index_cache_bytes
    )
    settings = LogSettings(segment_bytes=segment_bytes)
    with ExitStack() as undo:
        undo.callback(calls.close, lock)
        undo.callback(guarded.close)
        try:
            opened = _opened(
                path,
                partial(calls.close, lock),
                guarded,
                calls,
                broker_id,
                mint_id,
                boot_id,
                settings,
                wall_ms,
                recovery,
            )
        except ResourceExhaustedError as error:
            raise DirectoryUnusableError(f"{path} cannot be opened: {error}") from error
        undo.pop_all()
    return opened


def _opened(
    path: Path,
    unlock: Callable[[], None],
    disk: GuardedDisk,
    calls: Disk,
    broker_id: BrokerId,
    mint_id: Callable[[], str],
    boot_id: str,
    settings: LogSettings,
    wall_ms: Callable[[], int],
    recovery: Recovery,
) -> LogDirectory:
    """Recover the replicas, decide whether the log is complete, and write down what holds from now on."""
    identity = _read_or_format(path, disk, broker_id, mint_id)
    journal = Journal(path / "journal", disk)
    contents = examine(path, disk, identity, journal.load(), boot_id=boot_id, now_ms=wall_ms(), recovery=recovery)
    log_id = identity.log_id if contents.complete else LogId(mint_id())
    renewed = replace(identity, log_id=log_id, boot_id=boot_id)
    if renewed != identity:
        disk.replace(str(path / "meta.json"), renewed.encode(), sync=True, bookkeeping=True)
    journal.rewrite(contents.state)
    proof = Proof(path, disk, renewed, calls)
    directory = LogDirectory(
        path=path,
        unlock=unlock,
        disk=disk,
        journal=journal,
        proof=proof,
        contents=contents,
        settings=settings,
        wall_ms=wall_ms,
    )
    disk.on_failure(proof.void)
    if contents.log_starts:
        # What a killed process had written and not synced is shown from now on.
        directory.starts.save_all()
    directory.make_reserve()
    return directory


def _read_or_format(path: Path, disk: GuardedDisk, broker_id: BrokerId, mint_id: Callable[[], str]) -> Identity:
    """The identity of a directory, made now if the directory is empty.

    Raises:
        MalformedDirectoryError: the format file is not readable, or missing beside replicas.
        WrongBrokerError: the directory is another broker's.
    """
    meta = path / "meta.json"
    data = disk.read_whole(str(meta))
    if data is not None:
        identity = Identity.decode(data, where=str(meta))
        if identity.broker_id != broker_id:
            raise WrongBrokerError(
                f"{path} belongs to broker {identity.broker_id}, this is broker {broker_id}: give each broker its own"
                " directory"
            )
        return identity
    if (path / "journal").exists() or holds_replicas(path / "replicas"):
        raise MalformedDirectoryError(
            f"{path} holds replicas but no meta.json: restore it, or start with an empty directory and let the replicas"
            " be copied from their leaders"
        )
    identity = Identity(
        broker_id=broker_id,
        directory_id=DirectoryId(mint_id()),
        log_id=LogId(mint_id()),
        boot_id="",
        cluster_id=None,
    )
    disk.replace(str(meta), identity.encode(), sync=True)
    return identity
