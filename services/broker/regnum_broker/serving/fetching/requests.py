"""What calls that read say and what they are answered, as plain values: by whichever door they came.

Constraints: what an answer carries is too large to be copied on the event loop (safety rule S22), and doors send it in
forms of their own. So a door brings the place where a reader thread puts it (``Content``).
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Protocol

from regnum.types.v1 import errors_pb2
from regnum_model.ids import NO_EPOCH
from regnum_records.header import end_offset_of
from regnum_records.record import Record
from regnum_service.errors import Code

from regnum_broker.log.epochs import UNDEFINED_OFFSET, EpochEnd
from regnum_broker.serving.current_leaders import CurrentLeader

EARLIEST: Final = -2
"""In place of a time: the first offset of the log."""
LATEST: Final = -1
"""In place of a time: the high watermark."""
MAX_TIMESTAMP: Final = -3
"""In place of a time: the first of the committed records with the largest one (KIP-734)."""


class RecordForm(IntEnum):
    """In which form records are returned; the numbers are those of gRPC's wire."""

    UNSPECIFIED = 0
    """As BATCHES."""
    BATCHES = 1
    """Batches as they are stored."""
    RECORDS = 2
    """Single records, decompressed."""


class ReadFrom(IntEnum):
    """Which replica a caller wants to read from; the numbers are those of gRPC's wire."""

    UNSPECIFIED = 0
    """As LEADER."""
    LEADER = 1
    NEAREST = 2
    """The leader, which may name a replica in the caller's rack instead."""
    ANY_REPLICA = 3
    """This broker, also where it follows."""


class Content(Protocol):
    """Takes what is read of one partition. A reader thread's alone until it has finished."""

    def begin(self, result: "FetchResult") -> None:
        """It is read, perhaps not for the first time: nothing is in here. ``result`` says what is known of the log."""

    def put(self, batches: bytes) -> None:
        """Batches as they are stored."""

    def add(self, record: Record) -> None:
        """One record more, of those that are wanted one by one."""

    def __len__(self) -> int:
        """How many were added."""

    @property
    def size_bytes(self) -> int:
        """Bytes of an answer with those that were added."""

    @property
    def next_offset(self) -> int:
        """Offset after the last of what it has; -1: it has nothing."""


class StoredBatches:
    """Batches as the log gave them. Not for single records."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        """Nothing yet."""
        self.batches = b""
        """Whole ones; the first may begin before the wanted offset."""

    def begin(self, _result: "FetchResult") -> None:
        """As ``Content`` says."""
        self.batches = b""

    def put(self, batches: bytes) -> None:
        """As ``Content`` says."""
        self.batches = batches

    def add(self, record: Record) -> None:
        """Raises NotImplementedError: single records go to another ``Content``."""
        raise NotImplementedError(
            "batches as the log gave them have no single records; give the partition another content"
        )

    def __len__(self) -> int:
        """None are ever added."""
        return 0

    @property
    def size_bytes(self) -> int:
        """Of those."""
        return 0

    @property
    def next_offset(self) -> int:
        """As ``Content`` says."""
        return end_offset_of(self.batches)


@dataclass(slots=True, eq=False)
class FetchPartition:
    """Where to read in one partition."""

    topic: str
    partition: int
    offset: int = 0
    """Of the first record wanted."""
    max_bytes: int = 0
    """About how many bytes to return at most; 0: as the request says."""
    topic_id: str = ""
    """Topic id the client knows; empty: any."""
    current_leader_epoch: int | None = None
    """Leader epoch the client knows; None: it is not checked."""
    last_fetched_epoch: int | None = None
    """Of the last record before the offset, as the caller read it; None: it is not compared."""
    read_from: int = ReadFrom.LEADER
    """Which replica may serve it: a number of ``ReadFrom``."""
    content: Content = field(default_factory=StoredBatches)
    """Where to put it."""


@dataclass(slots=True, eq=False)
class FetchRequest:
    """Asks for records."""

    partitions: list[FetchPartition]
    """Each at most once."""
    max_wait_ms: int = 0
    """For so long ``min_bytes`` are waited for."""
    min_bytes: int = 0
    """The answer comes as soon as so many are there."""
    max_bytes: int = 0
    """About how many to return at most; 0: the default."""
    form: int = RecordForm.BATCHES
    """One of ``RecordForm``; any other number is refused."""
    client_rack: str = ""
    """Of the caller; empty: none."""


@dataclass(slots=True, eq=False)
class FetchResult:
    """What was read of one partition."""

    topic: str
    partition: int
    content: Content = field(default_factory=StoredBatches)
    """That of what was asked for."""
    error_code: Code = errors_pb2.ERROR_CODE_NONE
    error_message: str = ""
    """What is wrong and what to do next."""
    high_watermark: int = 0
    """Records below are committed."""
    log_start_offset: int = 0
    """First offset of the log."""
    current_leader: CurrentLeader | None = None
    """Who leads instead; None: nobody does, or it is not known."""
    next_offset: int = 0
    """Where to read on, to skip what cannot be returned."""
    diverging_epoch: EpochEnd | None = None
    """Where the log leaves the one that the caller read; None: as far as is known, it does not."""
    preferred_read_replica: int | None = None
    """The replica to read from instead; None: here."""


@dataclass(slots=True, eq=False)
class FetchResponse:
    """Answers a request for records."""

    results: list[FetchResult]
    """One for each partition, in the order of the request."""
    throttle_time_ms: int = 0
    """For so long the caller is to wait before its next request."""


@dataclass(slots=True, eq=False)
class OffsetQuery:
    """Asks for one offset."""

    topic: str
    partition: int
    timestamp_ms: int | None
    """Of the first record with that timestamp or a later one, milliseconds since 1970; EARLIEST, LATEST or
    MAX_TIMESTAMP. None, and what else is negative, is no question."""


@dataclass(slots=True)
class OffsetResult:
    """One offset."""

    topic: str
    partition: int
    error_code: Code = errors_pb2.ERROR_CODE_NONE
    error_message: str = ""
    """What is wrong and what to do next."""
    offset: int = -1
    """-1: there is no such record."""
    leader_epoch: int = -1
    """That of the leader at present."""
    current_leader: CurrentLeader | None = None
    """Who leads instead; None: nobody does, or it is not known."""
    timestamp_ms: int | None = None
    """Of the record that was found by time; None: another offset was asked for, or it has none that is known."""
    offset_leader_epoch: int | None = None
    """In which the record at the offset was written; None: there is none."""


@dataclass(slots=True, eq=False)
class ListOffsetsRequest:
    """Asks for offsets."""

    queries: list[OffsetQuery]


@dataclass(slots=True)
class ListOffsetsResponse:
    """Answers it."""

    results: list[OffsetResult]
    """One for each query, in order."""


@dataclass(slots=True, eq=False)
class EpochQuery:
    """Asks where one leader epoch ends."""

    topic: str
    partition: int
    leader_epoch: int
    """Whose end is wanted."""
    current_leader_epoch: int | None = None
    """Leader epoch the client knows; None: it is not checked."""
    topic_id: str = ""
    """Topic id the client knows; empty: any."""


@dataclass(slots=True)
class EpochEndResult:
    """Where one leader epoch ends."""

    topic: str
    partition: int
    error_code: Code = errors_pb2.ERROR_CODE_NONE
    error_message: str = ""
    """What is wrong and what to do next."""
    leader_epoch: int = NO_EPOCH
    """Largest epoch known to the leader that is not above the one asked."""
    end_offset: int = UNDEFINED_OFFSET
    """Its end in the leader's log."""
    current_leader: CurrentLeader | None = None
    """Who leads instead; None: nobody does, or it is not known."""


@dataclass(slots=True, eq=False)
class OffsetForLeaderEpochRequest:
    """Asks where leader epochs end."""

    queries: list[EpochQuery]


@dataclass(slots=True)
class OffsetForLeaderEpochResponse:
    """Answers it."""

    results: list[EpochEndResult]
    """One for each query, in order."""
