"""What compaction leaves of a batch is a batch that every reader reads, with the offsets that its records had."""

from random import Random

import cramjam
import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_records.build import CodecName, build_batch
from regnum_records.check import check_batch, verify_crc
from regnum_records.compacted import SIZE_BYTES_MAX, STRONGEST_LEVEL, filler, is_filler, retaining
from regnum_records.decompress import decompress
from regnum_records.errors import CorruptBatchError, KeyMissingError
from regnum_records.header import Codec, assign, read_header
from regnum_records.read import read_records
from regnum_records.record import NewRecord, Record

CODECS: tuple[CodecName, ...] = ("none", "gzip", "snappy", "lz4", "zstd")


def stored(count: int, codec: CodecName = "none") -> bytes:
    """A producer's batch as its leader has it, from offset 500 on in epoch 3."""
    records = [
        NewRecord(
            key=b"k%d" % at, value=None if at % 4 == 3 else b"v" * (at * 7 % 300), timestamp_ms=1000 + at * at % 50
        )
        for at in range(count)
    ]
    batch = build_batch(records, timestamp_ms=1, codec=codec, producer_id=8, producer_epoch=2, base_sequence=40)
    return bytes(assign(batch, base_offset=500, leader_epoch=3))


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.sampled_from(CODECS))
def test_what_stays_is_read_as_it_was_and_the_batch_goes_as_far(kept: list[bool], codec: CodecName) -> None:
    batch = stored(len(kept), codec)
    header, before = read_header(batch), list(read_records(batch))
    left = [record for record, stays in zip(before, kept, strict=True) if stays]
    made = retaining(batch, header, kept, max_timestamp_ms=max((r.timestamp_ms for r in left), default=0))
    found = read_header(made)
    verify_crc(made, found)
    assert list(read_records(made)) == left
    assert (found.size_bytes, found.record_count) == (len(made), len(left))
    for name in ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch", "last_sequence"):
        assert getattr(found, name) == getattr(header, name)
    again = retaining(made, found, [True] * len(left), max_timestamp_ms=found.max_timestamp_ms)
    assert list(read_records(again)) == left
    assert found.max_timestamp_ms == max((r.timestamp_ms for r in left), default=-1)


def with_body(plain: bytes, body: bytes, codec: Codec) -> bytes:
    """A batch with other bytes for its records, as a producer of our own making would compress them."""
    made = bytearray(plain[:61]) + body
    made[22] |= codec
    return sealed(made)


def by_long_copies(data: bytes, period: int) -> bytes:
    """Snappy by hand: the first period as it is, and the rest as copies of 64 bytes from one period before."""
    size, head = len(data), bytearray()
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    whole, rest = divmod(len(data) - period, 64)
    copies = (bytes(((63 << 2) | 3,)) + period.to_bytes(4, "little")) * whole
    tail = data[len(data) - rest :]
    literals = b"" if rest == 0 else bytes((rest - 1 << 2,)) + tail
    return bytes(head) + bytes((63 << 2,)) + (period - 1).to_bytes(4, "little") + data[:period] + copies + literals


def repeated(value_bytes: int, count: int) -> tuple[bytes, int]:
    """A batch whose records are one and the same but for their offsets, and how many bytes of it one takes."""
    value = Random(3).randbytes(value_bytes)
    batch = build_batch([NewRecord(key=b"k", value=value)] * count, timestamp_ms=1)
    return batch, (len(batch) - 61) // count


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.SNAPPY])
def test_a_batch_that_was_compressed_with_more_effort_does_not_grow_when_it_loses_a_record(codec: Codec) -> None:
    """What repeats lies further apart than the codecs look by default."""
    plain, period = repeated(3 << 20, 4)
    body = plain[61:]
    if codec is Codec.SNAPPY:
        # The offset in each record differs: one period for the copies, two records long, would break at it.
        body = b"".join([body[:period]] * 4)
        squeezed = by_long_copies(body, period)
        assert decompress(squeezed, codec) == body
        plain = sealed(bytearray(plain[:61]) + body)
    else:
        squeezed = bytes(cramjam.zstd.compress(body, level=STRONGEST_LEVEL + 1))
    batch = with_body(plain, squeezed, codec)
    made = retaining(batch, read_header(batch), [True, False, True, True], max_timestamp_ms=1)
    assert len(batch) < len(plain) / 3
    assert len(made) <= len(batch)
    verify_crc(made, read_header(made))
    assert read_header(made).record_count == 3


def test_a_batch_of_text_that_was_compressed_at_the_highest_level_does_not_grow() -> None:
    chance = Random(4)
    records = [
        NewRecord(key=b"%d" % at, value=b"%x user=%d" % (chance.getrandbits(32), chance.randrange(1000)))
        for at in range(20_000)
    ]
    plain = build_batch(records, timestamp_ms=1)
    batch = with_body(plain, bytes(cramjam.zstd.compress(plain[61:], level=STRONGEST_LEVEL)), Codec.ZSTD)
    at_default = bytes(cramjam.zstd.compress(plain[61:], level=3))
    kept = [at != 7 for at in range(len(records))]
    assert len(at_default) > len(batch), "as it would be by default"
    assert len(retaining(batch, read_header(batch), kept, max_timestamp_ms=1)) <= len(batch)


def test_a_batch_that_no_reader_could_get_any_more_is_refused_and_not_written() -> None:
    plain, period = repeated(17 << 20, 3)
    body = plain[61 : 61 + period] * 3
    batch = with_body(plain, by_long_copies(body, period), Codec.SNAPPY)
    assert len(batch) < SIZE_BYTES_MAX
    with pytest.raises(CorruptBatchError, match="would have"):
        retaining(batch, read_header(batch), [True, True, False], max_timestamp_ms=1)


def test_a_batch_with_gaps_in_its_offsets_is_read_from_any_offset() -> None:
    batch = stored(10)
    made = retaining(batch, read_header(batch), [at in {2, 7} for at in range(10)], max_timestamp_ms=1)

    def offsets(from_offset: int) -> list[int]:
        return [record.offset for record in read_records(made, from_offset=from_offset)]

    assert [offsets(at) for at in (0, 502, 503, 507, 508)] == [[502, 507], [502, 507], [507], [507], []]


def test_offsets_that_fall_or_go_beyond_the_batch_are_damage() -> None:
    batch = stored(3)
    for deltas in ((0, 2, 1), (0, 1, 1), (0, 1, 3)):
        parts = [build_one(at) for at in deltas]
        made = bytearray(batch[:61]) + b"".join(parts)
        with pytest.raises(CorruptBatchError):
            list(read_records(sealed(made)))
    made = bytearray(batch[:61]) + b"".join(map(build_one, range(3)))
    assert [record.offset for record in read_records(sealed(made))] == [500, 501, 502]


def build_one(offset_delta: int) -> bytes:
    """A record without key and value at an offset."""
    body = bytes((0, 0, offset_delta << 1, 1, 1, 0))
    return bytes((len(body) << 1,)) + body


def sealed(batch: bytearray) -> bytes:
    """With the right length and checksum."""
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = google_crc32c.value(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def test_a_filler_stands_for_its_offsets_and_has_no_record() -> None:
    made = filler(base_offset=7, last_offset=2**31 + 6, leader_epoch=5)
    found = read_header(made)
    verify_crc(made, found)
    assert (found.base_offset, found.last_offset, found.leader_epoch, len(made)) == (7, 2**31 + 6, 5, 61)
    assert is_filler(found)
    assert list[Record](read_records(made)) == []


def test_a_batch_with_other_records_than_were_counted_is_not_taken_apart() -> None:
    batch = stored(5)
    for kept in ([True] * 4, [True] * 6):
        with pytest.raises(CorruptBatchError):
            retaining(batch, read_header(batch), kept, max_timestamp_ms=0)


@pytest.mark.parametrize("codec", CODECS)
def test_a_topic_that_is_compacted_takes_no_record_without_a_key(codec: CodecName) -> None:
    keyed = [NewRecord(key=b"", value=b"x" * 200), NewRecord(key=b"k" * 300, value=None)]
    good = build_batch(keyed, timestamp_ms=1, codec=codec)
    assert check_batch(good, bytes_max=10_000, keys_required=True).record_count == 2
    bad = build_batch([*keyed, NewRecord(value=b"v")], timestamp_ms=1, codec=codec)
    assert check_batch(bad, bytes_max=10_000).record_count == 3
    with pytest.raises(KeyMissingError, match="record 2"):
        check_batch(bad, bytes_max=10_000, keys_required=True)


@given(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=200), st.binary(max_size=300), st.integers(0, 1 << 45)),
        min_size=1,
        max_size=80,
    ),
    st.sampled_from(CODECS),
)
def test_a_record_without_a_key_is_found_wherever_it_is_and_none_is_where_there_is_none(
    records: list[tuple[bytes | None, bytes, int]], codec: CodecName
) -> None:
    batch = build_batch(
        [NewRecord(key=key, value=value, timestamp_ms=at_ms) for key, value, at_ms in records],
        timestamp_ms=1,
        codec=codec,
    )
    first = next((number for number, (key, _, _) in enumerate(records) if key is None), None)
    if first is None:
        assert check_batch(batch, bytes_max=1 << 20, keys_required=True).record_count == len(records)
    else:
        with pytest.raises(KeyMissingError, match=f"record {first} "):
            check_batch(batch, bytes_max=1 << 20, keys_required=True)
