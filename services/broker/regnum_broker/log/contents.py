"""What a log directory holds when it is opened: replicas found, and whether its log is complete (safety rule S10).

Replicas are looked at by several threads: a start mostly waits for the disk, file by file, and one large or slow log
holds up one thread. More threads than that gain nothing: what is not waiting is Python's.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from regnum_model.ids import NO_EPOCH, PartitionKey

from regnum_broker.log.disk.disk import GuardedDisk
from regnum_broker.log.epochs import NO_EPOCHS
from regnum_broker.log.errors import CorruptLogError, ResourceExhaustedError
from regnum_broker.log.folders import folder_of, tidy
from regnum_broker.log.identity import CleanStop, Identity
from regnum_broker.log.journal.checkpoint import decode_checkpoint, is_damaged
from regnum_broker.log.journal.entries import JournaledReplica, JournalState
from regnum_broker.log.replica.producers.marks import ProducerMarks
from regnum_broker.log.replica.producers.states import ProducerStates
from regnum_broker.log.replica.starting.recovery import Circumstances, Recovered, recover


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How the replicas of a directory are looked at when it is opened."""

    threads: int = 8
    """How many do it at a time (Kafka: num.recovery.threads.per.data.dir)."""
    told: Callable[[int, int], None] = lambda _done, _all: None
    """Told after each replica how many there are by now, and of how many. Called by one thread at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What is in a log directory."""

    state: JournalState
    """The journal as it should read, in view of the files; offline replicas as it said."""
    found: Mapping[PartitionKey, Recovered]
    """Replicas that can be used."""
    offline: Mapping[PartitionKey, CorruptLogError]
    """Replicas that cannot."""
    high_watermarks: Mapping[PartitionKey, int]
    """The checkpoint, as far as it is about replicas that are there."""
    stale_high_watermarks: frozenset[PartitionKey]
    """Of which others it says something."""
    log_starts: Mapping[PartitionKey, int]
    """Where logs begin that are there, as far as that was moved and recorded."""
    stale_log_starts: frozenset[PartitionKey]
    """Of which others that file says something."""
    foreign: tuple[str, ...]
    """Paths of what is in it and not ours; left alone."""
    number: int
    """The highest number in a name that is left of what was deleted."""
    complete: bool
    """Whether it is proved that nothing is missing."""
    notes: tuple[str, ...]
    """What people should know."""


def examine(
    path: Path,
    disk: GuardedDisk,
    identity: Identity,
    journaled: JournalState,
    *,
    boot_id: str,
    now_ms: int,
    recovery: Recovery,
) -> Contents:
    """Recover the replicas and judge what they prove.

    Args:
        path: the directory.
        disk: its files.
        identity: what the directory said of itself.
        journaled: what the journal says.
        boot_id: boot of the machine; empty: unknown, which proves nothing.
        now_ms: milliseconds since 1970.
        recovery: how replicas are looked at.

    Raises:
        ResourceExhaustedError: no room, or no descriptor, for what has to be put in order.
        DirectoryFailedError: the disk failed.
    """
    stop = CleanStop.decode(disk.read_whole(str(path / "clean-stop")))
    if stop is not None and stop.log_id != identity.log_id:
        stop = None
    same_boot = bool(boot_id) and identity.boot_id == boot_id
    high_watermarks = decode_checkpoint(disk.read_whole(str(path / "high-watermarks")) or b"")
    starts_file = disk.read_whole(str(path / "log-starts"))
    log_starts = decode_checkpoint(starts_file or b"")
    tidied = tidy(path / "replicas", disk, journaled)
    adopted = {key: JournaledReplica(topic=topic) for key, topic in tidied.adopted.items()}
    replicas = {**journaled.replicas, **adopted}

    def recover_one(key: PartitionKey) -> Recovered:
        circumstances = Circumstances(
            same_boot=same_boot or (stop is not None and key in stop.out_of_use),
            clean_end=stop.ends.get(key) if stop is not None else None,
            journal_damaged=journaled.incomplete or key in adopted,
            now_ms=now_ms,
            log_start_offset=log_starts.get(key, 0),
        )
        recovered = recover(folder_of(path, key), key, replicas[key], disk, circumstances)
        # Of logs that were gone through the indexes are in memory, and nobody writes to any of them yet.
        with suppress(ResourceExhaustedError):
            disk.cache.write_one()
        return recovered

    found, offline = _recover_all(tuple(replicas), recover_one, recovery, disk)
    return Contents(
        state=_recovered_state(replicas, found),
        found=found,
        offline=offline,
        high_watermarks={key: value for key, value in high_watermarks.items() if key in replicas},
        stale_high_watermarks=frozenset(high_watermarks.keys() - replicas.keys()),
        log_starts={key: value for key, value in log_starts.items() if key in replicas},
        stale_log_starts=frozenset(log_starts.keys() - replicas.keys()),
        foreign=(*tidied.foreign, *(path for one in found.values() for path in one.foreign)),
        number=tidied.number,
        complete=(
            (stop is not None or same_boot)
            and not (tidied.strays or adopted or journaled.incomplete or is_damaged(starts_file or b""))
            and all(_is_whole(found[key], high_watermarks.get(key, 0), stop, key) for key in found)
        ),
        notes=(
            *_notes(path, journaled, tidied.adopted, tidied.strays),
            *((_STARTS_LOST.format(path=path),) if is_damaged(starts_file or b"") else ()),
        ),
    )


def _recover_all(
    keys: Sequence[PartitionKey],
    recover_one: Callable[[PartitionKey], Recovered],
    recovery: Recovery,
    disk: GuardedDisk,
) -> tuple[dict[PartitionKey, Recovered], dict[PartitionKey, CorruptLogError]]:
    """The replicas that can be used, and those that cannot, by as many threads; the first failure ends all of it."""
    found: dict[PartitionKey, Recovered] = {}
    offline: dict[PartitionKey, CorruptLogError] = {}
    waiting, lock, ended = iter(keys), threading.Lock(), threading.Event()

    def work() -> None:
        with ExitStack() as undo:
            # Who fails has the others stop.
            undo.callback(ended.set)
            while not ended.is_set():
                with lock:
                    key = next(waiting, None)
                if key is None:
                    undo.pop_all()
                    return
                try:
                    one: Recovered | CorruptLogError = recover_one(key)
                except CorruptLogError as error:
                    one = error
                with lock:
                    if isinstance(one, CorruptLogError):
                        offline[key] = one
                    else:
                        found[key] = one
                    recovery.told(len(found) + len(offline), len(keys))

    with disk.threads("log-recovery", recovery.threads) as pool:
        for done in [pool.submit(work) for _ in range(recovery.threads)]:
            done.result()
    # As the journal has them, whoever was first.
    return {key: found[key] for key in keys if key in found}, {key: offline[key] for key in keys if key in offline}


_STARTS_LOST: Final = (
    "{path}/log-starts is damaged: logs begin where their first segment does, and what DeleteRecords removed of that is"
    " there again; give the command again"
)


def _notes(
    path: Path, journaled: JournalState, adopted: Mapping[PartitionKey, str], strays: tuple[str, ...]
) -> tuple[str, ...]:
    notes = list(journaled.repairs)
    if journaled.damaged_lines:
        notes.append(f"{journaled.damaged_lines} lines of the journal are damaged in both copies")
    notes += [
        f"the journal does not know replica {key.topic_id}-{key.partition} of topic {topic}; taken up from its folder"
        for key, topic in adopted.items()
    ]
    notes += [
        f"{path}/replicas/{name} does not say whose it is and was renamed to end in .stray: what it holds is not served"
        for name in strays
    ]
    return tuple(notes)


def _is_whole(recovered: Recovered, high_watermark: int, stop: CleanStop | None, key: PartitionKey) -> bool:
    """Whether a replica holds all that its directory says it held."""
    if recovered.lost is not None:
        return False
    end = recovered.segments[-1].next_offset if recovered.segments else 0
    if stop is not None and recovered.segments and key not in stop.ends and key not in stop.out_of_use:
        return False
    return end >= high_watermark


def _recovered_state(
    replicas: Mapping[PartitionKey, JournaledReplica], found: Mapping[PartitionKey, Recovered]
) -> JournalState:
    """The journal's state with what the files showed; offline replicas keep what it said."""

    def seen(key: PartitionKey, journaled: JournaledReplica) -> JournaledReplica:
        recovered = found.get(key)
        if recovered is None:
            return journaled
        return replace(
            journaled,
            has_files=bool(recovered.segments),
            epochs=recovered.epochs,
            highest_epoch=recovered.highest_epoch,
        )

    return JournalState(replicas={key: seen(key, journaled) for key, journaled in replicas.items()})


def nothing() -> Recovered:
    """What a replica begins with; made for each, because producer states change in place."""
    return Recovered(
        segments=(),
        log_start_offset=0,
        before=(),
        set_aside=(),
        epochs=NO_EPOCHS,
        highest_epoch=NO_EPOCH,
        producers=ProducerStates(),
        marks=ProducerMarks(),
        lost=None,
        named=False,
        cleaned=(),
        foreign=(),
        gone_through=False,
    )
