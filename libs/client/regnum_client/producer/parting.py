"""Batches that are too large for their topic (``max.message.bytes``): parted, and made smaller from then on."""

import logging
from collections.abc import Sequence
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_service.errors import Code

from regnum_client.producer.batches.accumulator import Accumulator
from regnum_client.producer.batches.lane import Batch
from regnum_client.producer.outcomes import Outcomes, Receipt
from regnum_client.records import TopicPartition

_LOG: Final = logging.getLogger("regnum_client")


def parts_of(
    partition: TopicPartition,
    batch: Batch[Receipt],
    code: Code,
    *,
    accumulator: Accumulator[Receipt],
    outcomes: Outcomes,
) -> Sequence[Batch[Receipt]]:
    """What is sent in place of a batch that was answered with ``code``; nothing if it is not parted.

    One that an earlier try may have written is never parted: its records would be in the log twice. One that has a
    single record is the caller's error, and nobody else's: its size is no measure for those of others.
    """
    parts = batch.halves() if code == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE else ()
    if parts:
        # Not that of the first part alone: it may be a small record in front of the one that is too large.
        limit_bytes = accumulator.limit(partition.topic, sum(part.content.size_bytes for part in parts) // 2)
        outcomes.split(batch, parts)
        if limit_bytes is not None:
            _LOG.warning(
                "%s/%d refused a batch of %d records and %d bytes as too large; it goes as two, and batches to this "
                "topic are closed at %d bytes from now on. Raise max.message.bytes of the topic, or lower batch_bytes",
                *partition,
                batch.content.record_count,
                batch.content.size_bytes,
                limit_bytes,
            )
    return parts
