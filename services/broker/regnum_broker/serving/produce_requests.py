"""What a produce request may say, and the batch that plain records become."""

from typing import Final

from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_records.build import NO_PRODUCER_EPOCH, build_batch
from regnum_records.header import NO_PRODUCER_ID, NO_SEQUENCE
from regnum_records.record import NewRecord
from regnum_service.errors import RegnumError

PARTITIONS_MAX: Final = 10_000
"""Partitions of one request."""

PRODUCER_EPOCH_MAX: Final = 2**15 - 1
"""Largest producer epoch that a record batch has room for."""

_ACKS: Final = frozenset(log_pb2.Acks.values())


def check_request(request: log_pb2.ProduceRequest) -> None:
    """Raise RegnumError when a request contradicts itself: nothing of it is appended."""
    if request.acks not in _ACKS:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUIRED_ACKS,
            f"acks is {request.acks}; give ACKS_ALL (all in-sync replicas; so does leaving it out), ACKS_LEADER or"
            " ACKS_NONE (do not wait)",
        )
    if request.timeout_ms < 0:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST, "timeout_ms is negative; give a positive one, or 0 for the default"
        )
    if len(request.partitions) > PARTITIONS_MAX:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST, f"more than {PARTITIONS_MAX} partitions: split the request"
        )
    named = {(item.topic, item.partition) for item in request.partitions}
    if len(named) != len(request.partitions):
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
            "a partition is named twice; nothing was appended: send one batch for each partition",
        )


def wrong_in(message: log_pb2.ProducePartition, size_bytes: int) -> str:
    """What is wrong with the form of what is to be appended (``size_of``); empty where nothing is."""
    if message.records and message.WhichOneof("data"):
        return "records stands for plain.records in old requests: give one of the two, and no record_batch beside it"
    if not size_bytes:
        return "there is nothing to append: give record_batch or plain.records"
    return _wrong_in_plain(message.plain) if message.HasField("plain") else ""


def _wrong_in_plain(plain: log_pb2.PlainRecords) -> str:
    given = [plain.HasField("producer_id"), plain.HasField("producer_epoch"), plain.HasField("base_sequence")]
    if any(given) and not all(given):
        return "producer_id, producer_epoch and base_sequence belong together: give all three, or none"
    if min(plain.producer_id, plain.producer_epoch, plain.base_sequence) < 0:
        return "producer_id, producer_epoch and base_sequence must not be negative"
    if plain.producer_epoch > PRODUCER_EPOCH_MAX:
        return f"producer_epoch is at most {PRODUCER_EPOCH_MAX}"
    return ""


def size_of(message: log_pb2.ProducePartition) -> int:
    """Bytes of what is to be appended; 0 where there is nothing.

    A message that is asked for its size encodes itself: of half a megabyte that takes as long as to check its records.
    To look at the batch is to copy it, so it is asked once.
    """
    return len(message.record_batch) or (message.ByteSize() if message.plain.records or message.records else 0)


def batch_in(message: log_pb2.ProducePartition, now_ms: int) -> bytes:
    """The batch that is to be appended; ``now_ms`` is the time of plain records that have none of their own."""
    return message.record_batch or _built(
        message.plain if message.HasField("plain") else log_pb2.PlainRecords(records=message.records), now_ms
    )


def _built(plain: log_pb2.PlainRecords, now_ms: int) -> bytes:
    return build_batch(
        [
            NewRecord(
                key=record.key if record.HasField("key") else None,
                value=record.value if record.HasField("value") else None,
                headers=tuple(
                    (header.key, header.value if header.HasField("value") else None) for header in record.headers
                ),
                timestamp_ms=record.timestamp_ms or None,
            )
            for record in plain.records
        ],
        timestamp_ms=now_ms,
        producer_id=plain.producer_id if plain.HasField("producer_id") else NO_PRODUCER_ID,
        producer_epoch=plain.producer_epoch if plain.HasField("producer_epoch") else NO_PRODUCER_EPOCH,
        base_sequence=plain.base_sequence if plain.HasField("base_sequence") else NO_SEQUENCE,
    )
