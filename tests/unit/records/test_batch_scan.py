"""A damaged file of batches: all that is whole is shown, and what is wrong has a position and a reason."""

import io
import random
import struct

import pytest
from regnum_records.build import build_batch
from regnum_records.header import assign
from regnum_records.record import NewRecord
from regnum_records.scan import READ_BYTES, SMALL_SEARCH_BYTES, Damage, ScannedBatch, scan

Seen = list[ScannedBatch | Damage]


def batch(base_offset: int, *, records: int = 3, epoch: int = 1, value: bytes = b"value") -> bytes:
    made = build_batch([NewRecord(value=value)] * records, timestamp_ms=1000)
    return bytes(assign(made, base_offset=base_offset, leader_epoch=epoch))


def scanned(data: bytes, base_offset: int = 0) -> Seen:
    return list(scan(io.BytesIO(data), size_bytes=len(data), base_offset=base_offset))


def shown(seen: Seen) -> list[int | tuple[int, int]]:
    """Base offsets of batches without a problem; position and size of damages; minus the offset for those with one."""
    return [
        (one.position, one.size_bytes)
        if isinstance(one, Damage)
        else one.header.base_offset
        if one.problem is None
        else -one.header.base_offset
        for one in seen
    ]


FIRST, SECOND, THIRD = batch(0), batch(3), batch(6)
SIZE = len(FIRST)


def test_whole_batches_are_shown_with_their_positions() -> None:
    seen = scanned(FIRST + SECOND + THIRD)
    assert [one.position for one in seen] == [0, SIZE, 2 * SIZE]
    assert shown(seen) == [0, 3, 6]
    assert scanned(b"") == []


@pytest.mark.parametrize("cut", [1, 11, 12, 16, 60, 61, SIZE - 1])
def test_a_file_that_ends_in_the_middle_of_a_batch(cut: int) -> None:
    seen = scanned(FIRST + SECOND[:cut])
    assert shown(seen) == [0, (SIZE, cut)]
    assert "the file ends after" in seen[1].reason  # type: ignore[union-attr]


@pytest.mark.parametrize("position", range(21, SIZE))
def test_a_flipped_bit_under_the_checksum_is_found_and_the_rest_is_read(position: int) -> None:
    hurt = bytearray(SECOND)
    hurt[position] ^= 0x10
    seen = scanned(FIRST + bytes(hurt) + THIRD)
    assert [one.position for one in seen] == [0, SIZE, 2 * SIZE]
    assert (shown(seen)[0], shown(seen)[2]) == (0, 6)
    second = seen[1]
    assert isinstance(second, Damage) or (not second.crc_ok and "checksum" in str(second.problem))


@pytest.mark.parametrize("position", range(8, 12))
@pytest.mark.parametrize("bit", [0x01, 0x10, 0x80])
def test_behind_a_wrong_length_the_next_batch_is_found(position: int, bit: int) -> None:
    hurt = bytearray(SECOND)
    hurt[position] ^= bit
    seen = scanned(FIRST + bytes(hurt) + THIRD)
    assert shown(seen) == [0, (SIZE, SIZE), 6]


def test_zeros_of_a_lost_page_are_named_and_passed_over() -> None:
    seen = scanned(FIRST + bytes(5000) + THIRD)
    assert shown(seen) == [0, (SIZE, 5000), 6]
    assert "zeros" in seen[1].reason  # type: ignore[union-attr]
    assert shown(scanned(FIRST + bytes(2 * READ_BYTES))) == [0, (SIZE, 2 * READ_BYTES)]


def test_a_batch_across_two_windows_of_the_search_is_found() -> None:
    for gap in (READ_BYTES - 17, READ_BYTES - 1, READ_BYTES, READ_BYTES + 1):
        assert shown(scanned(FIRST + b"\xff" * gap + THIRD)) == [0, (SIZE, gap), 6]


def test_what_goes_back_is_a_problem_and_what_compaction_left_out_is_none() -> None:
    assert shown(scanned(FIRST + THIRD)) == [0, 6]
    assert shown(scanned(THIRD + SECOND)) == [6, -3]
    assert "offset 3 comes after 8" in scanned(THIRD + SECOND)[1].problem  # type: ignore[union-attr, operator]
    assert shown(scanned(batch(0, epoch=4) + batch(3, epoch=3))) == [0, -3]
    assert shown(scanned(FIRST, base_offset=100)) == [0], "-0"
    assert scanned(FIRST, base_offset=100)[0].problem == "offset 0 comes after 99"  # type: ignore[union-attr]


def test_offsets_beyond_32_bits_are_found_again() -> None:
    far = 5 << 32
    seen = scanned(batch(far) + b"junk" + batch(far + 3), base_offset=far)
    assert shown(seen) == [far, (SIZE, 4), far + 3]


def test_any_bytes_are_gone_through_without_a_gap() -> None:
    chance = random.Random(8)
    for _ in range(300):
        data = bytearray(b"".join(batch(3 * number) for number in range(6)))
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.choice((0, 2, 255, chance.randrange(256)))
        del data[chance.randrange(len(data)) :]
        at = 0
        for one in scanned(bytes(data)):
            assert one.position == at
            at += one.size_bytes if isinstance(one, Damage) else one.header.size_bytes
        assert at == len(data)


class Counted(io.BytesIO):
    """A file that counts what is read of it."""

    read_bytes = 0
    largest = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.read_bytes += len(data)
        self.largest = max(self.largest, len(data))
        return data


def test_a_large_batch_is_never_held_whole() -> None:
    data = batch(0, records=5, value=bytes(READ_BYTES))
    source = Counted(data)
    assert shown(list(scan(source, size_bytes=len(data)))) == [0]
    assert source.largest <= READ_BYTES
    assert source.read_bytes < len(data) + 1000


def test_a_file_made_to_look_like_batches_everywhere_costs_no_square() -> None:
    """Every 24 bytes the head of a batch of some 300 KB whose checksum is wrong."""
    size = 600_000
    head = struct.pack(">qiibi", 9, size // 2, 0, 2, 0) + bytes(3)
    data = b"\xff" * 30 + head * (size // 24)
    source = Counted(data)
    seen = list(scan(source, size_bytes=len(data)))
    assert isinstance(seen[0], Damage)
    assert "not searched to the end" in seen[0].reason
    assert source.read_bytes < 2 * SMALL_SEARCH_BYTES
