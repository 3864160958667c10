"""Batches that are too large for their topic (``max.message.bytes``): parted, and made smaller from then on."""

from collections.abc import Sequence

from regnum.types.v1 import errors_pb2
from regnum_service.errors import Code

from regnum_client.producer.batches.accumulator import Accumulator
from regnum_client.producer.batches.lane import Batch
from regnum_client.producer.outcomes import Outcomes, Receipt
from regnum_client.records import TopicPartition


def parts_of(
    partition: TopicPartition,
    batch: Batch[Receipt],
    code: Code,
    *,
    accumulator: Accumulator[Receipt],
    outcomes: Outcomes,
) -> Sequence[Batch[Receipt]]:
    """What is sent in place of a batch that was answered with ``code``; nothing if it is not parted.

    One that an earlier try may have written is never parted: its records would be in the log twice.
    """
    parts = batch.halves() if code == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE else ()
    if parts:
        accumulator.limit(partition.topic, parts[0].content.size_bytes)
        outcomes.split(batch, parts)
    return parts
