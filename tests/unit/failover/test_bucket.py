"""Traces out of a bucket and results into one, over HTTP against the S3 of the testing kit."""

import gzip
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from regnum_failover.objects.address import BucketAddress, parse
from regnum_failover.objects.leaving import clear, leave
from regnum_failover.objects.s3 import S3ObjectStore
from regnum_failover.objects.store import NoTracesError, StoreError, StoreUnreachableError
from regnum_failover.traces.listing import Listing, in_bucket
from regnum_failover.traces.pieces import documents_of_piece, of_pieces
from regnum_failover.traces.plan import parts_of
from regnum_testing.s3_server import Bucket, served

ADDRESS = BucketAddress(bucket="traces-of-ours", prefix="regnum")
NOW_S = 1_795_400_000.0


@pytest.fixture(autouse=True)
def nobody_elses_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def bucket() -> Bucket:
    return Bucket(page=3)


@pytest.fixture
def variables(bucket: Bucket) -> Iterator[dict[str, str]]:
    with served(bucket) as told:
        yield told


@pytest.fixture
def store(variables: dict[str, str]) -> S3ObjectStore:
    return S3ObjectStore(ADDRESS, variables, timeout_s=30)


def listed(store: S3ObjectStore) -> Listing:
    return in_bucket(store, ADDRESS, now_s=NOW_S, days=30)


def read(store: S3ObjectStore, part_bytes: int = 10_000) -> list[object]:
    """Every document below the prefix, as tasks read them."""
    return [
        document
        for part in parts_of(listed(store).files, part_bytes=part_bytes)
        for piece in part
        for document in documents_of_piece(piece, lambda key, begin: of_pieces(store.read(key, begin)))
    ]


def test_a_bucket_as_the_collector_fills_it_is_read_piece_by_piece(bucket, store):
    """Names as awss3 has them, one request in each object without an end of line, packed or not; and files of lines."""
    wanted = [{"resourceSpans": [], "n": n} for n in range(2000)]
    lines = [json.dumps(one) for one in wanted]
    for n in range(8):
        key = f"regnum/year=2026/month=11/day=22/hour=0{n % 2}/minute=1{n}/traces_Zk{n}bY83s.json"
        packed = n % 2 == 0
        bucket.put(key + ".gz" * packed, gzip.compress(lines[n].encode()) if packed else lines[n].encode(), NOW_S - n)
    bucket.put("regnum/election-1.jsonl", "\n".join(lines[12:]).encode(), NOW_S)
    # Two members, as appending to a packed file leaves them.
    bucket.put("regnum/b.jsonl.gz", b"".join(gzip.compress(f"{one}\n".encode()) for one in lines[8:12]), NOW_S)
    bucket.put("regnum/traces_1.picture", b"\x0a", NOW_S)
    bucket.put("regnum/old.json", b"{}", NOW_S - 31 * 86_400)
    bucket.put("regnum-of-others/x.json", b"{}", NOW_S)
    documents = sorted(read(store), key=lambda one: one["n"])
    assert documents == wanted
    notes = listed(store).notes
    assert [note.split(" ")[0] for note in notes] == ["10", "1", "1"]
    assert "older than 30 days" in notes[1]
    assert "no OTLP by their names" in notes[2]


def test_what_breaks_off_is_read_on_and_is_there_once(bucket, store):
    bucket.put("regnum/a.jsonl", b"".join(b'{"n": %d}\n' % n for n in range(300_000)), NOW_S)
    bucket.breaks["regnum/a.jsonl"] = [2_000_000, 1_000_000]
    assert [one["n"] for one in read(store, 2**30)] == list(range(300_000))
    assert bucket.breaks["regnum/a.jsonl"] == []


@pytest.mark.parametrize(
    ("key", "age_days", "words"),
    [
        ("elsewhere/x.json", 0, "below regnum/: no object at all"),
        ("regnum/x.json", 40, r"of the last 30 days below regnum/; 1 objects are older \(--days\)"),
        ("regnum/x.picture", 0, "no name that ends in .json.*have the collector write otlp_json"),
    ],
)
def test_no_traces_is_said_with_what_there_is_instead(bucket, store, key, age_days, words):
    bucket.put(key, b"{}", NOW_S - age_days * 86_400)
    with pytest.raises(NoTracesError, match=words):
        listed(store)


def test_refusals_say_what_to_do_and_never_the_secret(bucket, variables, tmp_path, monkeypatch):
    # Whom the library asks in a cloud for credentials: here, somebody who has none.
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", variables["AWS_ENDPOINT_URL_S3"])
    bucket.denied = lambda method, _key: method != "GET"
    good = S3ObjectStore(ADDRESS, variables, timeout_s=30)
    nameless = {name: value for name, value in variables.items() if "KEY" not in name}
    secret = {**variables, "AWS_SECRET_ACCESS_KEY": "my-own-secret"}
    calls = {
        "no such bucket": lambda: list(S3ObjectStore(parse("s3://other-bucket"), variables, timeout_s=30).objects("")),
        "allow s3:ListBucket .* s3:PutObject": lambda: good.write("x", b""),
        "no rights": lambda: good.remove("x"),
        "does not take these credentials": lambda: list(S3ObjectStore(ADDRESS, secret, timeout_s=30).objects("")),
        r"there are no credentials.*AWS_SHARED_CREDENTIALS_FILE": lambda: list(
            S3ObjectStore(ADDRESS, nameless, timeout_s=30).objects("")
        ),
        "is no URL; write AWS_ENDPOINT_URL_S3": lambda: S3ObjectStore(
            ADDRESS, {**variables, "AWS_ENDPOINT_URL_S3": "nonsense"}, timeout_s=1
        ),
        "AWS_CA_BUNDLE.* cannot be read": lambda: S3ObjectStore(
            ADDRESS, {**variables, "AWS_CA_BUNDLE": str(tmp_path / "none")}, timeout_s=1
        ),
    }
    for words, call in calls.items():
        with pytest.raises(StoreError, match=words) as caught:
            call()
        assert "my-own-secret" not in str(caught.value)
        assert variables["AWS_SECRET_ACCESS_KEY"] not in str(caught.value)


def test_credentials_of_a_mounted_file_are_used_and_a_wrong_file_is_named(bucket, variables, tmp_path):
    file = tmp_path / "credentials"
    told = {name: value for name, value in variables.items() if "ACCESS" not in name}
    told["AWS_SHARED_CREDENTIALS_FILE"] = str(file)
    key_id, secret = variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"]
    file.write_text(f"[default]\naws_access_key_id = {key_id}\naws_secret_access_key = {secret}\n", encoding="utf-8")
    bucket.put("regnum/x.json", b"{}")
    assert [one.key for one in S3ObjectStore(ADDRESS, told, timeout_s=30).objects("regnum")] == ["regnum/x.json"]
    with pytest.raises(StoreError, match=r"no section \[other\]"):
        S3ObjectStore(ADDRESS, {**told, "AWS_PROFILE": "other"}, timeout_s=1)
    file.write_text(f"{secret}\n", encoding="utf-8")
    with pytest.raises(StoreError, match="has no section") as caught:
        S3ObjectStore(ADDRESS, told, timeout_s=1)
    assert secret not in str(caught.value)


def test_a_store_that_is_silent_is_given_up(bucket, variables):
    bucket.silent = threading.Event()
    with pytest.raises(StoreUnreachableError, match=r"does not answer; is the address right"):
        list(S3ObjectStore(ADDRESS, variables, timeout_s=0.2).objects("regnum"))


def results(folder: Path, files: int = 4) -> Path:
    (folder / "failovers").mkdir(parents=True)
    for n in range(files):
        (folder / "failovers" / f"part-{n}.parquet").write_bytes(b"x" * n)
    (folder / "failovers" / ".part-0.parquet.crc").write_bytes(b"0")
    (folder / "report.txt").write_text("it was 196 ms\n", encoding="utf-8")
    return folder


def in_time() -> None:
    return None


def test_results_lie_in_the_bucket_and_the_mark_comes_last(bucket, store, tmp_path):
    leave(store, ADDRESS, "2026-11-23T021700Z", results(tmp_path / "out"), in_time=in_time)
    below = "regnum/2026-11-23T021700Z"
    assert set(bucket.objects) == {
        *(f"{below}/failovers/part-{n}.parquet" for n in range(4)), f"{below}/report.txt", f"{below}/_SUCCESS",
    }  # fmt: skip
    writes = [key for method, key in bucket.asked if method == "PUT"]
    assert (writes[-1], len(writes)) == (f"{below}/_SUCCESS", 6)
    listed = {one["name"]: one["bytes"] for one in json.loads(bucket.objects[f"{below}/_SUCCESS"].content)["files"]}
    assert listed == {**{f"failovers/part-{n}.parquet": n for n in range(4)}, "report.txt": 14}


@pytest.mark.parametrize("which", range(5))
def test_results_of_which_one_file_did_not_arrive_have_no_mark(bucket, store, tmp_path, which):
    folder = results(tmp_path / "out")
    names = [*(f"failovers/part-{n}.parquet" for n in range(4)), "report.txt"]
    bucket.denied = lambda method, key: method == "PUT" and key.endswith(names[which])
    with pytest.raises(StoreError, match="no rights"):
        leave(store, ADDRESS, "2026-11-23T021700Z", folder, in_time=in_time)
    assert not [key for key in bucket.objects if key.endswith("_SUCCESS")]


def test_a_large_file_goes_in_parts_and_arrives_whole(bucket, store, tmp_path):
    content = bytes(range(256)) * 50_000
    (tmp_path / "large").write_bytes(content)
    store.write("regnum/large", tmp_path / "large")
    assert bucket.objects["regnum/large"].content == content
    assert ("POST", "regnum/large") in bucket.asked


def test_a_run_that_is_there_is_not_written_over(bucket, store, tmp_path):
    bucket.put("regnum/2026-11-23T021700Z/report.txt", b"theirs")
    with pytest.raises(StoreError, match=r"is there already.*run it again"):
        leave(store, ADDRESS, "2026-11-23T021700Z", results(tmp_path / "out"), in_time=in_time)
    assert {key: one.content for key, one in bucket.objects.items()} == {
        "regnum/2026-11-23T021700Z/report.txt": b"theirs"
    }


def test_old_runs_go_mark_first_and_nothing_else_does(bucket, store):
    for key in (
        "2026-10-01/a",
        "2026-10-01/_SUCCESS",
        "2026-10-02T000000Z/half",
        "2026-11-22T021700Z/a",
        "mine/2026-10-01/a",
    ):
        bucket.put(f"regnum/{key}", b"")
    bucket.put("2026-10-01/a", b"")
    assert clear(store, ADDRESS, now_s=NOW_S, keep_days=30) == ["2026-10-01", "2026-10-02T000000Z"]
    assert set(bucket.objects) == {"regnum/2026-11-22T021700Z/a", "regnum/mine/2026-10-01/a", "2026-10-01/a"}
    removed = [key for method, key in bucket.asked if method == "DELETE"]
    assert removed[:2] == ["regnum/2026-10-01/_SUCCESS", "regnum/2026-10-01/a"]
