"""Reading from a replica that is near (KIP-392): whom a leader sends away, and what a follower serves.

Goals: a consumer in another rack than the leader reads in its own; it never sees what is not committed, nor anything
that an election took away.

Constraints: a follower knows less than its leader, and does not know how much less. What it takes for committed is, as
long as its log is a beginning of its leader's: so nothing is served before the leader of the present epoch has said so
(a diverging log is cut only then). One that hears nothing from its leader may have been replaced, or show records
that were deleted.

Algorithm: the leader names a replica by ``read_replica``. A follower serves offsets within its log up to its own high
watermark. Whatever else it is asked for, also an offset that its log does not have or records that differ, it answers
OFFSET_NOT_AVAILABLE: only the leader says that an offset is out of range, or that records were lost.
"""

from collections.abc import Callable
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId, PartitionKey
from regnum_service.clock import Clock

from regnum_broker.replication.decisions import read_replica
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Following, Partition
from regnum_broker.replication.replicas import NotHere, Replicas
from regnum_broker.serving.fetching.requests import FetchPartition, ReadFrom

HEARD_S: Final = 5.0
"""A follower that has heard nothing from its leader for so long serves nobody; a leader answers every 500 ms."""


class NearbyReplicas:
    """Of this broker. Belongs to the event loop."""

    def __init__(
        self,
        replicas: Replicas,
        *,
        by_rack: bool,
        rack: str,
        heard_s: Callable[[PartitionKey], float],
        clock: Clock,
    ) -> None:
        """Only assigns.

        Args:
            replicas: what is here, and the racks of brokers.
            by_rack: whether consumers are sent to replicas in their racks, and served as such.
            rack: of this broker; empty: none.
            heard_s: when the leader of a followed replica has answered last, monotonic seconds.
            clock: the same.
        """
        self._replicas: Final = replicas
        self._by_rack: Final = by_rack
        self._rack: Final = rack
        self._heard_s: Final = heard_s
        self._clock: Final = clock

    def preferred(self, leadership: Leadership, item: FetchPartition, *, client_rack: str) -> BrokerId | None:
        """The replica to send a consumer to; None: it reads here."""
        if not self._by_rack or item.read_from != ReadFrom.NEAREST:
            return None
        candidates = [
            read_replica.Candidate(
                broker=id, rack=self._replicas.rack_of(id), log_start_offset=start, log_end_offset=end
            )
            for id, start, end in leadership.fetching_members()
        ]
        return read_replica.preferred(
            candidates,
            client_rack=client_rack,
            leader_rack=self._rack,
            offset=item.offset,
        )

    def followed(self, item: FetchPartition) -> Partition | NotHere | None:
        """The replica that serves a consumer who was sent here though this broker follows; None: it does not follow."""
        partition = self._replicas.named(item.topic, item.partition)
        if (
            not self._by_rack
            or item.read_from != ReadFrom.ANY_REPLICA
            or partition is None
            or not isinstance(partition.role, Following)
        ):
            return None
        log = partition.log
        if partition.confirmed is not partition.role:
            return _not_available("this follower has not heard yet whether its log is its leader's")
        if self._clock.monotonic() - self._heard_s(partition.key) > HEARD_S:
            return _not_available(f"this follower has heard nothing from its leader for {HEARD_S:g} s")
        if not log.log_start_offset <= item.offset <= log.log_end_offset:
            return _not_available(
                f"offset {item.offset} is not here, where the log goes from {log.log_start_offset} to"
                f" {log.log_end_offset}"
            )
        compared = item.last_fetched_epoch is not None and item.offset > log.log_start_offset
        if compared and item.last_fetched_epoch != log.epochs.epoch_at(item.offset - 1):
            return _not_available(f"the record before offset {item.offset} is not the one that was read")
        return partition


def _not_available(finding: str) -> NotHere:
    return NotHere(errors_pb2.ERROR_CODE_OFFSET_NOT_AVAILABLE, f"{finding}; go back to the leader")
