"""What a partition of the internal topic says, read by the broker that has come to lead it.

Goals: nothing that was acknowledged is missed; the event loop is free meanwhile.

Constraints: the high watermark of a new leader may be behind that of the one before.

Algorithm: wait until everything that the log had when the reading began is committed, then read it from its first
offset on, a portion at a time: a reader thread reads and decodes, the loop applies. Nothing else is written to the
partition before it is done, for only its coordinator writes there.
"""

import asyncio
from typing import Final

import structlog
from regnum_records.errors import CorruptBatchError
from regnum_records.header import iterate
from regnum_records.read import read_records

from regnum_broker.groups.recorded.records import Change, UnreadableRecordError, change_of
from regnum_broker.groups.shard import Shard
from regnum_broker.log.errors import StorageError
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.leader import Leadership
from regnum_broker.storage import Storage

PORTION_BYTES: Final = 256 * 1024
"""About how much is read and applied at a time."""


class NotLoadedError(Exception):
    """The partition could not be read; the message says why."""


async def load(shard: Shard, leadership: Leadership, storage: Storage) -> bool:
    """Bring a shard to what its partition says. False: the leadership ended meanwhile.

    Raises:
        NotLoadedError: the log is damaged or cannot be read now.
    """
    partition, log = leadership.partition, leadership.partition.log
    # Behind whatever a shard of the same leadership had handed in before it ended.
    await storage.write(_nothing)
    end = log.log_end_offset
    if not await _committed(leadership, end):
        return False
    offset = log.log_start_offset
    while offset < end:
        found, offset = await storage.read_for_brokers(lambda at=offset: _portion(log, at, end))  # type: ignore[misc]
        if partition.role is not leadership:
            return False
        await shard.load(found)
    await shard.begin()
    return partition.role is leadership


def _nothing() -> None:
    """A job of the writer that only has its place in line."""


async def _committed(leadership: Leadership, end: int) -> bool:
    partition, moved = leadership.partition, asyncio.Event()
    partition.committed.attach(moved)
    try:
        while partition.role is leadership and not leadership.cut_off:
            if partition.high_watermark >= max(end, leadership.epoch_start):
                return True
            await moved.wait()
            moved.clear()
    finally:
        partition.committed.detach(moved)
    return False


def _portion(log: ReplicaLog, offset: int, end: int) -> tuple[list[Change], int]:
    """On a reader thread: changes from ``offset`` on, and where to go on."""
    try:
        batches = log.read(offset, bytes_max=PORTION_BYTES, end_offset=end)
        changes: list[Change] = []
        following = offset
        for _, header in iterate(batches):
            following = header.next_offset
        if following == offset:
            raise NotLoadedError(f"nothing can be read at offset {offset}, before the end at {end}")
        for record in read_records(batches, from_offset=offset):
            try:
                changes.append(change_of(record))
            except UnreadableRecordError as error:
                structlog.get_logger("groups").error("a record was passed over", reason=str(error))
    except CorruptBatchError as error:
        # Nobody reads on behind it, here. With this replica offline another one leads, which may have it whole.
        raise NotLoadedError(str(log.found_damaged(str(error)))) from error
    except StorageError as error:
        raise NotLoadedError(str(error)) from error
    return changes, following
