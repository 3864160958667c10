"""Marks of batches as messages carry them."""

from regnum.replication.v1 import replication_pb2

from regnum_broker.replication.decisions.histories import BatchMark


def to_wire(mark: BatchMark | None) -> replication_pb2.BatchMark | None:
    """As a field of a message that is made; None: it is absent."""
    return None if mark is None else replication_pb2.BatchMark(**mark._asdict())


def of_wire(message: replication_pb2.FetchPosition | replication_pb2.FetchedPartition) -> BatchMark | None:
    """The mark that a follower, or its leader, tells; None: it tells none."""
    if isinstance(message, replication_pb2.FetchPosition):
        told = message.last_batch if message.HasField("last_batch") else None
    else:
        told = message.own_batch if message.HasField("own_batch") else None
    return told and BatchMark(told.base_offset, told.next_offset, told.leader_epoch, told.crc)
