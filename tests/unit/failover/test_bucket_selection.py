"""Addresses of buckets, what of a listing is read, and names of runs: pure."""

import random

import pytest
from regnum_failover.objects.address import AddressError, is_bucket, parse
from regnum_failover.objects.selection import Found, select
from regnum_failover.runs import expired, name_of
from regnum_failover.traces.plan import TraceFile, parts_of
from regnum_insight.spans.growth import Piece

DAY_S = 86_400


def found(key: str, modified_s: float = 1e9, size: int = 1) -> Found:
    return Found(modified_s=modified_s, key=key, size=size)


def test_an_address_is_a_bucket_and_what_keys_begin_with():
    whole, below = parse("s3://traces-of-ours"), parse("s3://traces-of-ours/a/b=1/")
    assert (whole.bucket, whole.prefix, str(whole), whole.key("x", "y")) == (
        *("traces-of-ours", "", "s3://traces-of-ours", "x/y"),
    )
    assert (below.prefix, str(below), below.key("x")) == ("a/b=1", "s3://traces-of-ours/a/b=1", "a/b=1/x")


@pytest.mark.parametrize(
    "text", ["s3://", "s3:///x", "s3://Traces/x", "s3://b/x//y", "s3://bucket/../x", "s3://a?b/c", "/t"]
)
def test_an_address_that_is_none_is_refused_with_the_form_of_one(text):
    with pytest.raises(AddressError, match=r"write s3://BUCKET/PREFIX"):
        parse(text)


def test_paths_and_what_spark_knows_are_no_buckets():
    assert [is_bucket(one) for one in ("s3://b/x", "s3a://b/x", "/traces", "traces/*.jsonl")] == [
        True,
        False,
        False,
        False,
    ]


def test_objects_are_read_by_their_age_and_what_is_left_out_is_counted():
    listing = [found(f"{n:02}.json", 1e9 + n) for n in range(100)]
    random.Random(1).shuffle(listing)
    chosen = select([*listing, found("report.txt"), found("a.binpb.zst", 1e9 + 10)], since_s=1e9 + 10)
    assert [one.key for one in chosen.kept] == [*(f"{n}.json" for n in range(10, 100)), "a.binpb.zst"]
    assert (chosen.older_n, chosen.others_n) == (10, 1)


def test_small_files_share_a_part_and_large_ones_are_cut():
    files = [*(TraceFile(f"s{n}", 10) for n in range(7)), TraceFile("large", 250), TraceFile("s7", 10)]
    parts = parts_of(files, part_bytes=100, files_max=4)
    assert sorted(parts) == sorted([
        tuple(Piece(f"s{n}") for n in range(4)),
        tuple(Piece(f"s{n}") for n in (4, 5, 6, 7)),
        (Piece("large", 0, 100),),
        (Piece("large", 100, 200),),
        (Piece("large", 200, None),),
    ])  # fmt: skip


def test_names_of_runs_say_when_they_began_and_others_names_are_let_alone():
    now_s = 1_795_400_000.0
    assert name_of(now_s) == "2026-11-23T021320Z"
    names = [
        *(name_of(now_s), name_of(now_s - 29 * DAY_S), name_of(now_s - 31 * DAY_S)),
        *("2026-10-01", f"{name_of(now_s - 40 * DAY_S)}.unfinished", "mine", "2026-13-01", "2026-10-01-mine"),
    ]
    assert expired(names, now_s=now_s, keep_days=30) == [
        *("2026-10-01", "2026-10-14T021320Z.unfinished", "2026-10-23T021320Z"),
    ]
