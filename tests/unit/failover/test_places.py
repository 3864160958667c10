"""The job between its places: a folder for each run, or a bucket at both ends; as a process too."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from regnum_failover.objects.address import AddressError
from regnum_failover.objects.s3 import S3ObjectStore
from regnum_failover.objects.store import NoTracesError, StoreError
from regnum_failover.places import Clocks, target_of, traces_of
from regnum_failover.report import write_report
from regnum_failover.traces.planned import read_plan
from regnum_failover.traces.source import records_of
from regnum_testing.otlp_lines import broker_failover, line
from regnum_testing.s3_server import Bucket, served

pytestmark = pytest.mark.timeout(300)
NOW_S = 1_795_400_000.0
RUN = "2026-11-23T021320Z"
FOREIGN = ("mine", "2026-1-3", "2026-01-03T1234Z", "2026-10-1T00000Z")
"""Names that are no run's, some of which nearly are."""
CLOCKS = Clocks(now_s=lambda: NOW_S, monotonic_s=lambda: 0.0)


def nobody(_address: object) -> S3ObjectStore:
    raise AssertionError("a folder asks no store")


def run_folder(out: Path | str, keep_days: float | None = None):
    return target_of(str(out), nobody, CLOCKS, each_run=True, keep_days=keep_days, deadline_s=1)


def test_a_run_is_visible_at_once_and_old_ones_go(tmp_path):
    for name in ("2026-10-01", "2026-11-01T000000Z", "2026-10-02T000000Z.unfinished", *FOREIGN):
        (tmp_path / name / "failovers").mkdir(parents=True)
    (tmp_path / "2026-09-01").symlink_to(tmp_path / "mine")
    with run_folder(tmp_path, keep_days=30) as target:
        (Path(target.folder) / "failovers").mkdir()
        assert target.named == str(tmp_path / RUN)
        assert not (tmp_path / RUN).exists()
        assert target.finish(lambda: "report\n") == ["2026-10-01", "2026-10-02T000000Z.unfinished"]
    assert {path.name for path in (tmp_path / RUN).iterdir()} == {"_SUCCESS", "failovers", "report.txt"}
    assert (tmp_path / RUN / "report.txt").read_text("utf-8") == "report\n"
    assert {path.name for path in tmp_path.iterdir()} == {RUN, "2026-11-01T000000Z", "2026-09-01", *FOREIGN}


def break_off(out: Path) -> None:
    with run_folder(out) as target:
        (Path(target.folder) / "half").touch()
        raise StoreError("the store went away")


def test_a_place_of_another_scheme_is_no_folder():
    with pytest.raises(AddressError, match="hdfs://a/out is neither a folder nor a bucket"), run_folder("hdfs://a/out"):
        pass


def test_a_run_that_is_not_finished_leaves_nothing(tmp_path):
    with pytest.raises(StoreError, match="went away"):
        break_off(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_from_a_bucket_to_a_bucket(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bucket = Bucket()
    spans = broker_failover(1, 0)
    bucket.put("traces/year=2026/month=11/day=22/traces_a.json.gz", gzip.compress(line(spans[:3]).encode()), NOW_S)
    bucket.put("traces/year=2026/month=11/day=22/traces_b.json", line(spans[3:]).encode(), NOW_S)
    bucket.put("traces/year=2026/month=11/day=22/traces_c.json", b'{"resourceSpans": [', NOW_S)
    with served(bucket) as variables:

        def opened(address):
            return S3ObjectStore(address, variables, timeout_s=30)

        into = target_of(f"s3://{bucket.name}/out", opened, CLOCKS, each_run=False, keep_days=30, deadline_s=60)
        with into as target, traces_of(f"s3://{bucket.name}/traces", opened, CLOCKS, days=30) as traces:
            records = records_of(spark, traces.place, plan=traces.plan, **variables)
            report = write_report(records, target.folder, named=target.named, notes=traces.notes)
            assert target.finish(report.to_text) == []
    assert list(tmp_path.iterdir()) == []
    (row,) = report.failovers
    tally = report.tally
    assert (row["total_ms"], tally.spans_n, tally.documents_torn_n) == (206, len(spans), 1)
    assert [one.file for one in tally.aside] == ["traces_c.json"]
    text = bucket.objects[f"out/{RUN}/report.txt"].content.decode()
    assert f"tables below s3://{bucket.name}/out/{RUN}" in text
    assert f"3 objects of s3://{bucket.name}/traces, " in text
    listed = json.loads(bucket.objects[f"out/{RUN}/_SUCCESS"].content)["files"]
    assert {f"out/{RUN}/{one['name']}" for one in listed} | {f"out/{RUN}/_SUCCESS"} == {
        key for key in bucket.objects if key.startswith("out/")
    }
    assert {one["name"].partition("/")[0] for one in listed} == {"failovers", "stages", "malformed", "report.txt"}


AWKWARD = ("worker:1.jsonl", "_billing.jsonl", ".hidden.jsonl", "a[1]{b}*?.jsonl", "n\u00e4me-1.jsonl", "a\nb\\.jsonl")
PLAIN = ("regnum-broker-1.jsonl", "team~2Fbilling-7.jsonl", "with space.jsonl")


def test_files_with_any_name_are_read_and_what_is_none_is_counted(spark, tmp_path):
    """Whatever wrote them, also in folders below."""
    folder = tmp_path / "run:1 [a]" / "traces"
    (folder / "below").mkdir(parents=True)
    for number, name in enumerate((*PLAIN, *AWKWARD, "below/x.jsonl")):
        (folder / name).write_text(line(broker_failover(number + 1, 0)), encoding="utf-8")
    (folder / "folder.jsonl").mkdir()
    (folder / "gone.jsonl").symlink_to(folder / "nowhere")
    (folder / "notes.txt").write_text("something else")
    with traces_of(f"{folder}/", nobody, CLOCKS, days=30) as traces:
        found = write_report(records_of(spark, traces.place, plan=traces.plan), str(tmp_path / "out"))
    assert len(found.changes) == len((*PLAIN, *AWKWARD)) + 1
    assert (found.tally.files_n, found.tally.documents_torn_n) == (len((*PLAIN, *AWKWARD)) + 2, 1)
    # A pattern finds what a shell would find by it.
    with traces_of(f"{tmp_path}/run:1 ?a]/traces/*er*.jsonl", nobody, CLOCKS, days=30) as traces:
        names = [Path(piece.file).name for part in read_plan(Path(traces.plan)).parts for piece in part]
    assert names == ["regnum-broker-1.jsonl", "worker:1.jsonl"]
    (tmp_path / "empty").mkdir()
    for place, words in ((f"{tmp_path}/empty", "there are no traces at"), ("hdfs://x/y", "write s3://BUCKET/PREFIX")):
        with pytest.raises(NoTracesError, match=words), traces_of(place, nobody, CLOCKS, days=30):
            pass


def job(*arguments: str, variables: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "regnum_failover", *arguments],
        env={**inherited, "SPARK_LOCAL_IP": "127.0.0.1", **(variables or {})},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip


def test_wrong_arguments_are_refused_before_anything_is_made(tmp_path):
    for wrong, words in (
        (("traces", str(tmp_path / "out"), "--keep-days", "30"), "--each-run"),
        (("traces", "s3://bucket/x", "--follow"), "--follow into a bucket needs a folder for --checkpoint"),
        (("s3://B", str(tmp_path / "out")), "names no bucket; write s3://BUCKET/PREFIX"),
        (("s3://bucket/x", str(tmp_path / "out"), "--days", "0"), "--days"),
    ):
        done = job(*wrong)
        assert done.returncode != 0
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17")
def test_the_command_from_bucket_to_bucket_and_from_folder_to_runs(tmp_path):
    bucket = Bucket()
    with served(bucket) as variables:
        places = (f"s3://{bucket.name}/traces", f"s3://{bucket.name}/out")
        missing = job(*places, variables=variables)
        assert (missing.returncode, missing.stdout) == (3, "")
        assert "there are no traces below traces/: no object at all" in missing.stderr
        assert job(*places, "--no-traces-is-fine", variables=variables).returncode == 0
        assert bucket.objects == {}
        bucket.put("traces/a.json", line(broker_failover(1, 0)).encode())
        done = job(*places, variables=variables)
        assert done.returncode == 0, done.stderr
        (report,) = [one.content.decode() for key, one in bucket.objects.items() if key.endswith("/report.txt")]
        assert done.stdout == report
        bucket.denied = lambda method, _key: method == "PUT"
        refused = job(*places, variables=variables)
        assert refused.returncode == 1
        assert "allow s3:ListBucket" in refused.stderr
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "a.jsonl").write_text(line(broker_failover(1, 0)), encoding="utf-8")
    done = job(str(tmp_path / "traces"), str(tmp_path / "out"), "--each-run", "--keep-days", "30")
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "out").iterdir()
    assert (run / "report.txt").read_text("utf-8") == done.stdout
    assert {path.name for path in run.iterdir()} == {"_SUCCESS", "failovers", "malformed", "report.txt", "stages"}
