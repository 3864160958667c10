"""Formatting an empty log directory, and recognising one that is not ours."""

from collections.abc import Callable
from pathlib import Path

from regnum_model.ids import BrokerId, DirectoryId, LogId

from regnum_broker.log.disk.disk import GuardedDisk
from regnum_broker.log.errors import MalformedDirectoryError, WrongBrokerError
from regnum_broker.log.identity import Identity


def read_or_format(path: Path, disk: GuardedDisk, broker_id: BrokerId, mint_id: Callable[[], str]) -> Identity:
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
    if (path / "journal").exists() or any((path / "replicas").iterdir()):
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
