"""Who may read here: the leader, asked for an epoch that it has and an offset that its log has.

A caller that says of which epoch the last record was that it read is told where its records are not those of the log
(KIP-320), before anything else is: an offset beyond the end of a log that lost records is not out of range, but wrong.
"""

from collections.abc import Collection
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.ids import LeaderEpoch
from regnum_service.errors import RegnumError

from regnum_broker.log.epochs import EpochEnd
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.decisions import truncation
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.replicas import NotHere, Replicas
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.fetching.requests import EpochQuery, FetchPartition, FetchRequest, OffsetQuery, RecordForm

PARTITIONS_MAX: Final = 10_000
"""Partitions of one request."""

_FORMS: Final = frozenset(RecordForm)


class Admission:
    """Judges what clients ask for. Belongs to the event loop."""

    def __init__(self, replicas: Replicas, leaders: CurrentLeaders) -> None:
        self._replicas: Final = replicas
        self._leaders: Final = leaders

    def compare(self, item: FetchPartition) -> Leadership | NotHere | EpochEnd:
        """As ``admit``, or where the log leaves the one that the caller read."""
        if item.last_fetched_epoch is not None:
            found = self.find(item)
            diverging = None
            if isinstance(found, Leadership):
                diverging = _divergence(found, item.offset, LeaderEpoch(item.last_fetched_epoch))
            if diverging is not None:
                return diverging
        return self.admit(item)

    def admit(self, item: FetchPartition) -> Leadership | NotHere:
        """The leadership to read from, or why there is none."""
        found = self.find(item)
        if isinstance(found, Leadership):
            log = found.partition.log
            if not log.log_start_offset <= item.offset <= log.log_end_offset:
                return out_of_range(item.offset, log)
        return found

    def find(self, item: FetchPartition | EpochQuery) -> Leadership | NotHere:
        """The leadership that is asked for, in the epoch that the caller knows."""
        found = self._replicas.find_leader(
            item.topic, item.topic_id, item.partition, known=self._leaders.knows(item.topic, item.partition)
        )
        # Epochs are compared before roles (semantics 4.2), so a replica that does not lead is asked for its epoch too.
        if isinstance(found, NotHere) and found.code == errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID:
            return found
        epoch = self._replicas.epoch_of(item.topic, item.partition)
        asked = item.current_leader_epoch
        if asked is not None and epoch is not None:
            if asked < epoch:
                return NotHere(
                    errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH,
                    f"leader epoch {asked} is past, {epoch} is current; refresh metadata",
                )
            if asked > epoch:
                return NotHere(
                    errors_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH,
                    f"leader epoch {asked} is not known here yet; try again",
                )
        return found


def end_of_epoch(leadership: Leadership, epoch: LeaderEpoch) -> EpochEnd | NotHere:
    """Where an epoch ends in a leader's log; refused for one that is above the leader's own, which nobody read here."""
    log = leadership.partition.log
    end = log.epochs.end_offset_for(epoch, log_end_offset=log.log_end_offset)
    if end.is_defined:
        return end
    return NotHere(
        errors_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH,
        f"leader epoch {epoch} is not known here: no record of it is, and the latest is {log.epochs.latest}; refresh"
        " metadata and go to the leader",
    )


def _divergence(leadership: Leadership, offset: int, last_epoch: LeaderEpoch) -> EpochEnd | NotHere | None:
    """Where the log leaves the one that the caller read; None: as far as its last record shows, it does not."""
    log = leadership.partition.log
    if last_epoch < 0 or (last_epoch == log.epochs.latest and offset <= log.log_end_offset):
        # What the rule says of nearly every position, at less cost: nothing to compare, or the present epoch.
        return None
    end = end_of_epoch(leadership, last_epoch)
    if isinstance(end, NotHere):
        return end
    misled = truncation.misleads(
        end,
        last_fetched_epoch=last_epoch,
        fetch_offset=offset,
        log_start=log.log_start_offset,
    )
    return end if misled else None


def out_of_range(offset: int, log: ReplicaLog) -> NotHere:
    """The answer to an offset that the log does not have."""
    return NotHere(
        errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE,
        f"offset {offset} is outside the log, which goes from {log.log_start_offset} to {log.log_end_offset}",
    )


def check_form(form: int) -> None:
    """Raise RegnumError for a form of a later release: to answer in another one than was asked for is no answer."""
    if form not in _FORMS:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
            f"form is {form}; give RECORD_FORM_BATCHES (so does leaving it out) or RECORD_FORM_RECORDS",
        )


def check_new(item: FetchPartition, asked: set[tuple[str, str, int]]) -> None:
    """Raise RegnumError for a partition that was asked for before: each answer costs as much as the first."""
    before = len(asked)
    asked.add((item.topic, item.topic_id, item.partition))
    if len(asked) == before:
        raise _twice(item.topic or item.topic_id, item.partition)


def asked_once(query: OffsetQuery, at_ms: int, asked: Collection[tuple[str, int, int]]) -> tuple[str, int, int]:
    """What a query by time asks for; raises RegnumError where the same was asked before, as ``check_new`` does."""
    wanted = query.topic, query.partition, at_ms
    if wanted in asked:
        raise _twice(query.topic, query.partition)
    return wanted


def _twice(topic: str, partition: int) -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_INVALID_REQUEST,
        f"partition {partition} of {topic} is in the request twice; ask for each once",
    )


def check(request: FetchRequest) -> None:
    """Raise RegnumError for a request that contradicts itself."""
    check_form(request.form)
    if min(request.max_wait_ms, request.min_bytes, request.max_bytes) < 0:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
            "one of max_wait_ms, min_bytes and max_bytes is negative; give 0 or more",
        )
    check_count(len(request.partitions))


def check_count(partitions: int) -> None:
    """Raise RegnumError for more partitions than one request may have."""
    if partitions > PARTITIONS_MAX:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST, f"more than {PARTITIONS_MAX} partitions: split the request"
        )
