"""Addresses of buckets, what of a listing is read, and names of runs: pure."""

import random

import pytest
from regnum_failover.objects.address import AddressError, is_bucket, parse
from regnum_failover.objects.selection import PART_BYTES_MAX, PART_OBJECTS_MAX, Found, parts, select
from regnum_failover.runs import expired, name_of

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


def test_the_newest_are_kept_and_what_is_left_out_is_counted():
    listing = [found(f"{n}.json", 1e9 + n) for n in range(100)]
    random.Random(1).shuffle(listing)
    chosen = select([*listing, found("report.txt")], since_s=1e9 + 10, objects_max=20, bytes_max=1000)
    assert [one.key for one in chosen.kept] == [f"{n}.json" for n in range(99, 79, -1)]
    assert (chosen.older_n, chosen.others_n) == (80, 1)


def test_bytes_are_a_limit_too_and_one_object_is_read_however_large():
    listing = [found("a.json", 1, 60), found("b.json.gz", 2, 60), found("c.jsonl", 3, 60), found("d.jsonl.gz", 4, 60)]
    assert [one.key for one in select(listing, since_s=0, objects_max=9, bytes_max=130).kept] == [
        "d.jsonl.gz",
        "c.jsonl",
    ]
    assert [one.key for one in select(listing, since_s=0, objects_max=9, bytes_max=1).kept] == ["d.jsonl.gz"]


def test_small_objects_share_files_newest_folder_first_and_none_is_there_twice():
    old = [found(f"t/hour=01/{n}.json", 1000 + n) for n in range(PART_OBJECTS_MAX + 1)]
    new = [found(f"t/hour=02/{n}.json", 9000 + n, PART_BYTES_MAX - 1) for n in range(2)]
    kept = select([*old, *new], since_s=0, objects_max=10_000, bytes_max=2**40).kept
    files = parts(kept)
    assert [(file.name, len(file.keys)) for file in files] == [
        ("000000-t_hour=02.jsonl", 1),
        ("000001-t_hour=02.jsonl", 1),
        ("000002-t_hour=01.jsonl", PART_OBJECTS_MAX),
        ("000003-t_hour=01.jsonl", 1),
    ]
    assert sorted(key for file in files for key in file.keys) == sorted(one.key for one in kept)


def test_names_of_files_have_nothing_that_a_pattern_or_a_path_reads():
    (file,) = parts([found("../../a*b?[c]{d}\\\n/" + "long" * 100 + "/x.json")])
    assert "/" not in file.name
    assert not set(file.name) & set("*?[]{}\\\n")
    assert len(file.name) < 120


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
