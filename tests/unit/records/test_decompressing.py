"""Decompressing in memory that is kept: what it costs, and that nothing of one batch is seen in another."""

import gzip
import random
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from regnum_records.build import CodecName
from regnum_records.check import check_batch
from regnum_records.decompress import GZIP_MEMBERS_MAX, KEPT_BYTES, decompress, uncompressed, uncompressed_view
from regnum_records.errors import CorruptBatchError, UnpackedTooLargeError
from regnum_records.header import HEADER_BYTES, Codec, read_header
from regnum_testing.batches import batch_of

PACKING: list[CodecName] = ["gzip", "snappy", "lz4", "zstd"]
LARGE = [random.Random(number).randbytes(500) + bytes(500) for number in range(512)]
"""Records of half a mebibyte, of which one half packs."""


def plain_of(batch: bytes) -> bytes:
    return uncompressed(batch, read_header(batch))


def records_of(batch: bytes, *, bytes_max: int = 1 << 26) -> bytes:
    return decompress(batch[HEADER_BYTES:], read_header(batch).codec, bytes_max=bytes_max)


@pytest.mark.parametrize("codec", PACKING[1:])
def test_to_check_a_compressed_batch_takes_next_to_no_new_memory_from_the_system(codec: CodecName) -> None:
    batch = batch_of(*LARGE, codec=codec)

    def faults_of_a_check() -> int:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        check_batch(batch, bytes_max=1 << 20)
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

    # On a thread of its own, as a broker's; the first check may have the pages of what is kept.
    with ThreadPoolExecutor(1) as thread:
        faults = [thread.submit(faults_of_a_check).result() for _ in range(6)]
    # Half a mebibyte in a new place is 126 of them.
    assert sum(faults[1:]) < 5 * 60, faults


@pytest.mark.parametrize("codec", PACKING)
def test_a_shorter_batch_shows_nothing_of_a_longer_one_before_it(codec: CodecName) -> None:
    long, short = batch_of(*LARGE, codec=codec), batch_of(b"short" * 30, codec=codec)
    plain_of(long)
    with uncompressed_view(short, read_header(short)) as plain:
        assert bytes(plain)[HEADER_BYTES:] == plain_of(batch_of(b"short" * 30))[HEADER_BYTES:]
        assert read_header(plain).size_bytes == len(plain)
        assert read_header(plain).codec is Codec.NONE


@pytest.mark.parametrize("codec", PACKING)
def test_what_was_copied_stays_as_it_was(codec: CodecName) -> None:
    first, second = batch_of(b"first" * 30, codec=codec), batch_of(b"other" * 30, codec=codec)
    plain, records = plain_of(first), records_of(first)
    plain_of(second)
    assert plain[HEADER_BYTES:] == records == plain_of(batch_of(b"first" * 30))[HEADER_BYTES:]


@pytest.mark.parametrize("codec", PACKING[1:])
@pytest.mark.parametrize("size", [KEPT_BYTES - 100, KEPT_BYTES + 100])
def test_the_bound_is_exact_wherever_the_memory_comes_from(codec: CodecName, size: int) -> None:
    batch = batch_of(bytes(size), codec=codec)
    unpacked = len(records_of(batch))
    assert unpacked > size
    assert len(records_of(batch, bytes_max=unpacked)) == unpacked
    with pytest.raises(UnpackedTooLargeError):
        records_of(batch, bytes_max=unpacked - 1)


def test_nothing_is_written_into_what_is_being_looked_at() -> None:
    batches = [batch_of(bytes([number]) * 300_000, codec="lz4") for number in range(4)]
    with (
        ThreadPoolExecutor(1) as thread,
        uncompressed_view(batches[0], read_header(batches[0])) as first,
        uncompressed_view(batches[1], read_header(batches[1])) as second,
    ):
        for batch in batches[2:]:
            plain_of(batch)
            thread.submit(plain_of, batch).result()
        assert (bytes(first), bytes(second)) == (plain_of(batches[0]), plain_of(batches[1]))


def test_the_members_of_gzip_data_are_bounded() -> None:
    """Each of them has the rest copied: a megabyte of empty ones was gigabytes."""
    empty, last = gzip.compress(b""), gzip.compress(b"last")
    assert decompress(empty * (GZIP_MEMBERS_MAX - 1) + last, Codec.GZIP) == b"last"
    with pytest.raises(CorruptBatchError, match=f"more members than {GZIP_MEMBERS_MAX}"):
        decompress(empty * GZIP_MEMBERS_MAX + last, Codec.GZIP)


FORKED = f"""
import os, sys
sys.path[:] = {sys.path!r}
import cramjam
from regnum_records.decompress import uncompressed_view
from regnum_records.header import HEADER, read_header

def batch(letter):
    packed = bytes(cramjam.lz4.compress(letter * 1_000))
    return HEADER.pack(0, HEADER.size - 12 + len(packed), 0, 2, 0, 3, 0, 0, 0, -1, -1, -1, 1) + packed

def plain(letter):
    with uncompressed_view(batch(letter), read_header(batch(letter))) as view:
        if letter == b"a":
            child = os.fork()
            if not child:
                # What it took back is what its parent looks at.
                view[:] = bytes(len(view))
                os._exit(0)
            os.waitpid(child, 0)
        return bytes(view[-1_000:])

plain(b"b")
assert plain(b"a") == b"a" * 1_000
"""
"""A child that writes into the memory that its parent looks at."""


def test_a_forked_process_has_memory_of_its_own() -> None:
    assert subprocess.run([sys.executable, "-S", "-c", FORKED], check=False).returncode == 0
