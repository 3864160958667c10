"""What a log directory holds when it is opened: replicas found, and whether its log is complete (safety rule S10)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from regnum_model.ids import NO_EPOCH, PartitionKey

from regnum_broker.log.disk.disk import GuardedDisk
from regnum_broker.log.epochs import NO_EPOCHS
from regnum_broker.log.errors import CorruptLogError
from regnum_broker.log.folders import folder_of, tidy
from regnum_broker.log.identity import CleanStop, Identity
from regnum_broker.log.journal.checkpoint import decode_checkpoint, is_damaged
from regnum_broker.log.journal.entries import JournaledReplica, JournalState
from regnum_broker.log.replica.producers.marks import ProducerMarks
from regnum_broker.log.replica.producers.states import ProducerStates
from regnum_broker.log.replica.recovery import Circumstances, Recovered, recover


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
    complete: bool
    """Whether it is proved that nothing is missing."""
    notes: tuple[str, ...]
    """What people should know."""


def examine(
    path: Path, disk: GuardedDisk, identity: Identity, journaled: JournalState, *, boot_id: str, now_ms: int
) -> Contents:
    """Recover the replicas and judge what they prove.

    Args:
        path: the directory.
        disk: its files.
        identity: what the directory said of itself.
        journaled: what the journal says.
        boot_id: boot of the machine; empty: unknown, which proves nothing.
        now_ms: milliseconds since 1970.

    Raises:
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

    found: dict[PartitionKey, Recovered] = {}
    offline: dict[PartitionKey, CorruptLogError] = {}
    for key, replica in replicas.items():
        circumstances = Circumstances(
            same_boot=same_boot,
            clean_end=stop.ends.get(key) if stop is not None else None,
            journal_damaged=journaled.incomplete or key in adopted,
            now_ms=now_ms,
            log_start_offset=log_starts.get(key, 0),
        )
        try:
            found[key] = recover(folder_of(path, key), key, replica, disk, circumstances)
        except CorruptLogError as error:
            offline[key] = error
    return Contents(
        state=_recovered_state(replicas, found),
        found=found,
        offline=offline,
        high_watermarks={key: value for key, value in high_watermarks.items() if key in replicas},
        stale_high_watermarks=frozenset(high_watermarks.keys() - replicas.keys()),
        log_starts={key: value for key, value in log_starts.items() if key in replicas},
        stale_log_starts=frozenset(log_starts.keys() - replicas.keys()),
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
    if stop is not None and recovered.segments and key not in stop.ends:
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
    )
