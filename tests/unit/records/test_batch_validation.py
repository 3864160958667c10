"""Every record of what is accepted can be read by every reader; what is refused is refused by number, with a reason."""

import re
import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.util import decode_varint_py
from hypothesis import given, settings
from hypothesis import strategies as st
from regnum.broker.v1 import log_pb2
from regnum_broker.compaction.retained import keyed_records
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.servicers.log_messages import MessageContent
from regnum_broker.serving.fetching.reading import UNPACKED_BYTES_MAX, Read, read_logs
from regnum_broker.serving.fetching.requests import FetchResult, RecordForm
from regnum_client.commands.records.template import Template
from regnum_client.commands.rendering import content_of
from regnum_client.consumer.batches import RecordBatch
from regnum_client.records import ConsumedRecord, TopicPartition
from regnum_records import check
from regnum_records.build import CodecName, build_batch
from regnum_records.check import accepted_batch, check_batch
from regnum_records.compacted import retaining
from regnum_records.decompress import uncompressed
from regnum_records.errors import CorruptBatchError, InvalidRecordError, KeyMissingError, RecordBatchError
from regnum_records.header import CODEC_MASK, HEADER_BYTES, Codec, read_header
from regnum_records.read import read_records
from regnum_records.record import NewRecord, Record
from regnum_testing.batches import MALFORMED, TIMESTAMP_MS, number, raw_batch, raw_header, raw_record, resealed

CODECS: list[CodecName] = ["none", "gzip", "snappy", "lz4", "zstd"]
BYTES_MAX = 1 << 20
ATTRIBUTES, MAX_TIMESTAMP = 21, 35


class PureBatch(_DefaultRecordBatchPy):  # type: ignore[misc]
    """aiokafka's decoder in Python, with its own numbers: the compiled ones read on behind the end."""

    def _read_msg(self, decode_varint: Any = decode_varint_py) -> Any:
        return super()._read_msg(decode_varint)


def as_compressed(batch: bytes, codec: Codec) -> bytes:
    """The batch with its records, whatever they are, compressed."""
    import gzip  # noqa: PLC0415

    assert codec is Codec.GZIP
    changed = bytearray(batch[:HEADER_BYTES] + gzip.compress(batch[HEADER_BYTES:]))
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    struct.pack_into(">h", changed, ATTRIBUTES, codec)
    return resealed(changed)


def read_by_all(batch: bytes) -> Sequence[Record]:
    """Have every reader read the batch; what they read, which is the same."""
    header = read_header(batch)
    found = list(read_records(batch))
    plain = uncompressed(batch, header)
    pure = [(one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in PureBatch(bytearray(plain))]
    assert pure == [(one.offset, one.timestamp_ms, one.key, one.value, one.headers) for one in found]
    consumed = list(RecordBatch(TopicPartition("t", 0), header, batch, from_offset=0))
    assert [one.value for one in consumed] == [one.value for one in found]
    for record in consumed:
        shown(record)
    told = answered(batch)
    assert [(one.timestamp_ms, [each.key for each in one.headers]) for one in told] == [
        (one.timestamp_ms, [name for name, _ in one.headers]) for one in found
    ]
    keyed = keyed_records(batch, header)
    assert keyed is not None
    assert [one.offset for one in keyed] == [one.offset for one in found]
    left = retaining(batch, header, [True] * (len(found) - 1) + [False], max_timestamp_ms=0)
    assert list(read_records(left)) == found[:-1]
    return found


def shown(record: ConsumedRecord) -> None:
    Template(r"%k %v %h %T\n").render(record)
    content_of("value", record.value)


def answered(batch: bytes) -> Sequence[log_pb2.Record]:
    """Records as Fetch and Consume answer them."""
    log = cast("ReplicaLog", SimpleNamespace(topic="t", read=lambda *_, **__: batch))
    content = MessageContent(log_pb2.FetchResult())
    result = FetchResult("t", 0, content)
    one = Read(log=log, offset=0, bytes_max=BYTES_MAX, end_offset=1000, result=result)
    read_logs([one], form=RecordForm.RECORDS, total_max=BYTES_MAX, memory_max=UNPACKED_BYTES_MAX)
    assert not result.error_code, result.error_message
    return content.message.records


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_malformed_records_are_refused_with_their_number_and_a_reason(name: str, codec: Codec) -> None:
    batch, said = MALFORMED[name]
    sent = batch if codec is Codec.NONE else as_compressed(batch, codec)
    for keys_required in (False, True):
        with pytest.raises(InvalidRecordError) as caught:
            check_batch(sent, bytes_max=BYTES_MAX, keys_required=keys_required)
        assert re.search(said, str(caught.value)), str(caught.value)


HEADERS = number(3) + raw_header(b"a", b"") + raw_header(b"a", None) + raw_header(b"", b"x")


@pytest.mark.parametrize(
    ("records", "max_ms"),
    [
        ([raw_record(headers=HEADERS)], TIMESTAMP_MS),
        ([raw_record(key=b"", value=b""), raw_record(1, key=None, value=None)], TIMESTAMP_MS),
        ([raw_record(key_size=-27, key=None), raw_record(1, value_size=-3, value=None)], TIMESTAMP_MS),
        ([raw_record(), raw_record(1, time_delta_ms=-5), raw_record(2, time_delta_ms=-9)], TIMESTAMP_MS),
        ([raw_record(time_delta_ms=7), raw_record(1, time_delta_ms=5)], TIMESTAMP_MS + 7),
        ([raw_record(time_delta_ms=-1 - TIMESTAMP_MS)], -1),
        ([raw_record(time_delta_ms=-9 - TIMESTAMP_MS)], -1),
        ([raw_record(headers=number(1) + raw_header("ключ".encode()))], TIMESTAMP_MS),
    ],
)
def test_what_is_odd_and_allowed_in_kafka_is_accepted_as_it_is(records: list[bytes], max_ms: int) -> None:
    batch = raw_batch(*records, max_ms=max_ms)
    assert accepted_batch(batch, bytes_max=BYTES_MAX) is batch
    read_by_all(batch)


@pytest.mark.parametrize("said_ms", [-1, 0, TIMESTAMP_MS - 1, TIMESTAMP_MS + 1, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("codec", CODECS)
def test_the_largest_timestamp_of_the_head_is_that_of_the_records(said_ms: int, codec: CodecName) -> None:
    """By it a log is searched and kept: as in Kafka the broker sets it, whatever a producer says."""
    batch = build_batch([NewRecord(value=b"v" * 50), NewRecord(value=b"w")], timestamp_ms=TIMESTAMP_MS, codec=codec)
    changed = bytearray(batch)
    struct.pack_into(">q", changed, MAX_TIMESTAMP, said_ms)
    sent = resealed(changed)
    assert check_batch(sent, bytes_max=BYTES_MAX).max_timestamp_ms == TIMESTAMP_MS
    assert accepted_batch(sent, bytes_max=BYTES_MAX) == batch


def test_a_base_offset_of_the_producers_own_does_not_matter() -> None:
    batch = bytearray(build_batch([NewRecord(value=b"v")] * 3, timestamp_ms=1))
    struct.pack_into(">q", batch, 0, 5_000)
    assert check_batch(bytes(batch), bytes_max=BYTES_MAX).record_count == 3


def test_a_record_without_a_key_is_told_by_number() -> None:
    batch = raw_batch(raw_record(key=b""), raw_record(1, key=None), raw_record(2))
    with pytest.raises(KeyMissingError, match="record 1 of the batch has no key"):
        check_batch(batch, bytes_max=BYTES_MAX, keys_required=True)
    check_batch(batch, bytes_max=BYTES_MAX)


def test_headers_without_end_are_not_decoded() -> None:
    """All headers of a record become objects in one go: so those of a long one are counted first."""
    assert check.SHORT_BYTES_MAX == 2 * check.HEADERS_OF_RECORD_MAX, "a short record has not room for more"
    one = raw_header(b"", None)
    count = check.HEADERS_OF_RECORD_MAX + 1
    with pytest.raises(InvalidRecordError, match=f"record 1 says it has {count} headers"):
        check_batch(raw_batch(raw_record(), raw_record(1, headers=number(count) + one * count)), bytes_max=BYTES_MAX)
    filling = raw_record(value=bytes(check.SHORT_BYTES_MAX))
    check_batch(raw_batch(filling), bytes_max=BYTES_MAX)
    with pytest.raises(InvalidRecordError, match="record 0 ends in its head"):
        check_batch(raw_batch(raw_record(value=filling, value_size=1 << 30)), bytes_max=BYTES_MAX)
    several = [raw_record(index + 1, headers=number(25_500) + one * 25_500) for index in range(20)]
    with pytest.raises(InvalidRecordError, match="up to record 20 the batch has 510000 headers"):
        check_batch(raw_batch(filling, *several), bytes_max=2 * BYTES_MAX)
    check_batch(raw_batch(filling, several[0]), bytes_max=BYTES_MAX)


def padded(value: int, size: int, last: int = 0) -> bytes:
    """The number in ``size`` bytes, which is more than it needs."""
    short = number(value)
    return bytes((*short[:-1], short[-1] | 0x80, *[0x80] * (size - len(short) - 1), last))


PLACES = ["length", "time", "offset", "key", "value", "headers", "name", "header"]
AROUND = [b"", b"v" * 5000, "\N{GREEK SMALL LETTER ALPHA}".encode() * 9, b"\x80\0" * 9]


def with_padded(place: str, around: bytes, size: int, last: int = 0) -> bytes:
    """A batch with one number, that at ``place`` of the second record, in more bytes than it needs."""
    values = {"time": 3, "offset": 1, "key": 1, "value": len(around), "headers": 1, "name": 1, "header": 1}
    said = {name: padded(value, size, last) if name == place else number(value) for name, value in values.items()}
    body = b"\0" + said["time"] + said["offset"] + said["key"] + b"k" + said["value"] + around
    body += said["headers"] + said["name"] + b"n" + said["header"] + b"h"
    length = padded(len(body), size, last) if place == "length" else number(len(body))
    return raw_batch(raw_record(value=around), length + body, raw_record(2, value=around), max_ms=TIMESTAMP_MS + 3)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("around", AROUND)
def test_a_number_in_more_bytes_than_it_needs_is_refused(place: str, around: bytes) -> None:
    """Kafka takes five bytes of a length; aiokafka ten, and drops the bits behind the 64th of any number."""
    for size, last in (4, 0), (5, 0), (6, 0), (10, 0), (10, 2):
        with pytest.raises(InvalidRecordError, match=r"record 1 has a number in more|of record 1 has more"):
            check_batch(with_padded(place, around, size, last), bytes_max=BYTES_MAX)


@pytest.mark.parametrize("apart_ms", [2**62, -(2**62) - 1])
def test_a_time_in_ten_bytes_is_refused(apart_ms: int) -> None:
    batch = raw_batch(raw_record(), raw_record(1, time_delta_ms=apart_ms), timestamp_ms=0)
    with pytest.raises(InvalidRecordError, match=r"record 1 .*base timestamp"):
        check_batch(batch, bytes_max=BYTES_MAX)


RECORDS = st.lists(
    st.builds(
        NewRecord,
        value=st.none() | st.binary(max_size=90),
        key=st.none() | st.binary(max_size=9),
        headers=st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=2).map(tuple),
        timestamp_ms=st.none() | st.integers(-1, 2**41) | st.integers(-(2**61), 2**61 - 1),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60)
@given(records=RECORDS, codec=st.sampled_from(CODECS))
def test_what_is_accepted_is_read_by_every_reader(records: list[NewRecord], codec: CodecName) -> None:
    batch = accepted_batch(build_batch(records, timestamp_ms=77, codec=codec), bytes_max=BYTES_MAX)
    found = read_by_all(batch)
    assert read_header(batch).max_timestamp_ms == max([-1, *(record.timestamp_ms for record in found)])
    assert len(found) == len(records)


@settings(max_examples=150)
@given(records=RECORDS, data=st.data())
def test_with_any_byte_bent_it_is_refused_or_read_by_every_reader(
    records: list[NewRecord], data: st.DataObject
) -> None:
    batch = bytearray(build_batch(records, timestamp_ms=77))
    position = data.draw(st.integers(16, len(batch) - 1) | st.integers(HEADER_BYTES, len(batch) - 1))
    batch[position] = data.draw(st.integers(0, 255) | st.sampled_from([batch[position] ^ 1, 0x80, 1]))
    try:
        accepted = accepted_batch(resealed(batch), bytes_max=BYTES_MAX)
    except RecordBatchError:
        return
    found = read_by_all(accepted)
    header = read_header(accepted)
    assert [record.offset for record in found] == list(range(header.record_count))
    assert header.max_timestamp_ms == max([-1, *(record.timestamp_ms for record in found)])
    assert header.attributes & ~CODEC_MASK == 0


@settings(max_examples=60)
@given(
    st.lists(
        st.builds(
            raw_record,
            st.integers(0, 2),
            key_size=st.none() | st.integers(-3, 4),
            value_size=st.none() | st.integers(-(2**63), 2**63 - 1),
            headers=st.sampled_from([b"\0", number(1) + raw_header(b"a"), number(2) + raw_header(b"a"), number(-1)]),
            time_delta_ms=st.sampled_from([0, -1, 2**63 - 1, -(2**63)]),
        ),
        min_size=1,
        max_size=2,
    )
)
def test_made_up_records_are_refused_or_read_by_every_reader(records: list[bytes]) -> None:
    try:
        accepted = accepted_batch(raw_batch(*records), bytes_max=BYTES_MAX)
    except CorruptBatchError:
        return
    read_by_all(accepted)
