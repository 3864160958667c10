"""Numbers in the records of a batch, which are varints: each in as few bytes as it can be written in.

Readers differ in how many bytes of a number they take. Kafka's take five of a length, a count or an offset; aiokafka's
compiled one takes ten of each and drops what is behind the 64th bit, its Python one does not. No encoder writes a
number in more bytes than it needs, so the broker accepts none; Kafka's accepts those that its own readers take.

The compiled codec does not say how many bytes a number took, and to look at each one in Python costs four times as much
as all the rest of a check. So the least size of each record is computed from what was decoded: if they add up to the
size of all, each number is as short as it can be.
"""

from typing import Final

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from regnum_records.errors import InvalidRecordError
from regnum_records.header import HEADER_BYTES, Buffer

NUMBER_BYTES_MAX: Final = 10
"""Bytes of a number in a record: more are looked at in none."""
TIMES_APART_MS: Final = 2**62
"""Beyond it, either way from the base timestamp, a time takes ten bytes, of which not all readers take all."""


def _since_zero() -> DefaultRecordBatchBuilder:
    """An encoder of a batch whose base timestamp is 0."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1024)
    builder.append(0, 0, None, None, [])
    return builder


least_size: Final = _since_zero().size_in_bytes
"""Bytes of a record with its length, of its offset delta, time difference (ms), key, value and headers."""


def varint(data: Buffer, position: int, record: int) -> tuple[int, int]:
    """The zigzag varint at a position, and where it ends.

    Raises:
        InvalidRecordError: it has more than ``NUMBER_BYTES_MAX`` bytes; ``record`` is the one that the message names.
        IndexError: it does not end.
    """
    value = shift = 0
    while (byte := data[position]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if shift >= 7 * NUMBER_BYTES_MAX:
            raise InvalidRecordError(f"a number in record {record} has more than {NUMBER_BYTES_MAX} bytes")
    value |= byte << shift
    return (value >> 1) ^ -(value & 1), position + 1


def first_padded(plain: Buffer, base_timestamp_ms: int) -> int:
    """The number of the first record that is longer than its least size, in a batch that the codec decodes."""
    position = HEADER_BYTES
    for delta, record in enumerate(DefaultRecordBatch(plain)):
        length, body = varint(plain, position, delta)
        position += least_size(delta, record.timestamp - base_timestamp_ms, record.key, record.value, record.headers)
        if body + length != position:
            return delta
    raise AssertionError("no record is longer than its least size")
