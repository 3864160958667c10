"""The benchmarks run: the smallest shapes, whose figures say nothing."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from regnum_bench.result import load

pytestmark = pytest.mark.integration

ROOT: Final = Path(__file__).parents[2]


async def bench(*words: str, ends_with: set[int]) -> dict[str, Any]:
    """What the command prints as JSON."""
    command = [sys.executable, "-m", "regnum_bench", *words, "-o", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "bench")}
    done = await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, timeout=110
    )
    assert done.returncode in ends_with, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return value


@pytest.mark.full
async def test_a_batch_of_writes_is_measured_beside_yardsticks(tmp_path: Path) -> None:
    # Status 1 is a limit that was not kept, which so few writes cannot tell.
    report = await bench(
        *("write_batch", "--records", "400", "--repetitions", "1", "--save", str(tmp_path)), ends_with={0, 1}
    )
    figures, details = report["figures"], report["details"]
    assert (report["shape"]["coordination"], report["shape"]["records"], details["conflicts"]) == ("etcd", 400, 1)
    assert len(details["yardsticks"]) == 2
    ratio = figures["write_batch_s"]["median"] / figures["by_hand_s"]["median"]
    assert figures["to_by_hand_ratio"]["median"] == pytest.approx(ratio, rel=0.05)
    assert load(tmp_path / "write_batch-etcd.json").to_json() == report


@pytest.mark.full
@pytest.mark.parametrize("store", ["etcd", "zookeeper"])
async def test_everything_in_a_store_is_read_as_an_election_process_reads_it(store: str) -> None:
    report = await bench(
        *("load", "--coordination", store, "--topics", "120", "--partitions", "3", "--repetitions", "2"),
        *("--warm-up", "0", "--settle-s", "0"),
        ends_with={0},
    )
    # It ends with status 1 unless it has read all topics and all states.
    assert len(report["figures"]["load_s"]["values"]) == 2
    assert report["figures"]["load_s"]["min"] > 0
    assert report["figures"][f"load_cpu_{store}_s"]["min"] >= 0
    assert report["shape"]["partitions_total"] == 360


@pytest.mark.full
async def test_a_failover_is_measured_with_its_stages() -> None:
    report = await bench(
        *("failover", "--topics", "3", "--partitions", "4", "--affected", "5", "--elections", "2", "--metadata", "1"),
        *("--repetitions", "1", "--warm-up", "0", "--settle-s", "0.5", "--deadline-s", "60"),
        ends_with={0},
    )
    figures = {name: spread["median"] for name, spread in report["figures"].items()}
    # A preferred replica leads a new partition, so that the shape says what is moved.
    assert figures["leaders_moved"] == 5
    stages = ("detection", "fence", "decision", "store_write", "become_leader", "dispatch", "metadata")
    assert sum(figures[f"{stage}_ms"] for stage in stages) == pytest.approx(figures["traced_total_ms"], rel=1e-3)
    # Looking comes after the fact: no client sees a leader before it is written. The traces go on from there, until the
    # last acknowledgement is back, which may be later than what the client saw.
    written_ms = figures["notice_ms"] + sum(figures[f"{stage}_ms"] for stage in stages[:4])
    assert 0 < written_ms <= figures["from_kill_s"] * 1000 + 50
    assert report["machine"]["cpus"] >= 1
    assert report["commit"].keys() == {"id", "dirty"}


@pytest.mark.full
async def test_a_storm_is_measured_until_no_directory_is_left(tmp_path: Path) -> None:
    report = await bench(
        *("storm", "--topics", "6", "--partitions", "2", "--batch", "2", "--elections", "1", "--metadata", "1"),
        *("--repetitions", "1", "--warm-up", "0", "--settle-s", "0.5", "--deadline-s", "60", "--work", str(tmp_path)),
        ends_with={0},
    )
    figures = {name: spread["median"] for name, spread in report["figures"].items()}
    # Every replica had a directory, and all of them are gone: of 12 partitions with 3 replicas.
    assert figures["directories_count"] == 36
    assert 0 < figures["create_answers_s"] <= figures["create_all_leaders_on_all_brokers_s"]
    assert 0 < figures["delete_s"] <= figures["delete_known_everywhere_s"]
    assert not list(tmp_path.iterdir())


@pytest.mark.full
@pytest.mark.parametrize("store", ["etcd", "zookeeper"])
async def test_a_reassignment_is_measured_forth_and_back_and_nothing_is_lost(store: str) -> None:
    # Status 1 is a limit that was not kept, or a machine that others use: so small a move cannot tell.
    report = await bench(
        *("reassignment", "--coordination", store, "--partitions", "8", "--size-mb", "4", "--throttle-mb-s", "2"),
        *("--rate", "40", "--elections", "1", "--metadata", "1", "--repetitions", "2", "--settle-s", "0.2"),
        *("--deadline-s", "60"),
        ends_with={0, 1},
    )
    figures = {name: spread["values"] for name, spread in report["figures"].items()}
    assert report["details"]["lost"] == 0
    assert not [complaint for complaint in report["complaints"] if "harmed" in complaint or "given up" in complaint]
    # Four megabytes, and on the way back what was written meanwhile besides.
    assert 4e6 < figures["moved_bytes"][0] < figures["moved_bytes"][1] < 6e6
    assert min(figures["arrival_s"]) > 0
    for when in ("before", "during"):
        assert 0 < figures[f"{when}_p50_ms"][0] <= figures[f"{when}_p99_ms"][0]
    assert report["details"]["arrived_mb"][0][0] == 0


@pytest.mark.full
async def test_a_listing_is_measured_with_its_pages() -> None:
    report = await bench(
        *("listing", "--brokers", "1", "--topics", "2100", "--repetitions", "1", "--warm-up", "0", "--settle-s", "0"),
        ends_with={0, 1},
    )
    figures = {name: spread["median"] for name, spread in report["figures"].items()}
    # It ends without figures unless all topics are listed. A page has 2,000 of them.
    assert figures["pages_count"] == figures["whole_pages_count"] == 2
    assert 0 < figures["list_cpu_command_s"] <= figures["list_s"] * report["machine"]["cpus"]
    assert 0 < figures["page_p50_ms"] <= figures["page_max_ms"]
    assert 0 < figures["page_mean_bytes"] < figures["whole_page_mean_bytes"]


@pytest.mark.full
async def test_a_push_of_metadata_is_measured_at_receivers() -> None:
    report = await bench(
        *("propagate", "--brokers", "5", "--topics", "4", "--partitions", "10", "--changes", "3", "--applying", "2"),
        ends_with={0},
    )
    figures = {name: spread["median"] for name, spread in report["figures"].items()}
    # What everybody was sent is the whole, and a change is a part of it.
    assert 0 < figures["change_bytes"] < figures["payload_bytes"]
    assert figures["full_push_s"] > 0
    assert 0 < figures["change_p50_ms"] <= figures["change_p99_ms"]
    assert report["notes"][0].startswith("2 of 5 receivers read every byte")


@pytest.mark.full
async def test_a_controller_and_a_metadata_process_are_measured_while_brokers_arrive() -> None:
    report = await bench(
        *("publish", "--brokers", "8", "--topics", "4", "--partitions", "10", "--changes", "3", "--applying", "2"),
        *("--deadline-s", "60", "--settle-s", "0.2"),
        ends_with={0},
    )
    figures = {name: spread["median"] for name, spread in report["figures"].items()}
    # One payload for the arrival of all of them, and one for each change, against one for each of two receivers.
    assert [figures[f"shared_{size}_full_payloads_count"] for size in (1, 2, 8)] == [1, 1, 1]
    assert figures["each_2_full_payloads_count"] == 2
    for size in (1, 2, 8):
        assert figures[f"shared_{size}_payloads_per_change"] == figures[f"shared_{size}_versions_per_change"]
    assert figures["each_2_payloads_per_change"] == 2 * figures["each_2_versions_per_change"]
    # The image of 8 brokers names more than that of one, and both are of 40 partitions.
    assert 1_000 < figures["shared_1_payload_bytes"] < figures["shared_8_payload_bytes"] < 4_000
    for name in ("metadata", "controller"):
        assert figures[f"shared_8_{name}_baseline_bytes"] > 2**20
        worst = [figures[f"shared_{size}_{name}_ratio"] for size in (1, 2, 8)]
        first = [figures["first_publication_ratio"]] if name == "controller" else []
        assert figures[f"{name}_ratio"] == max(*worst, *first)
        assert figures[f"{name}_with_connections_ratio"] >= 0
    # Eight connections take something, whatever is sent over them.
    assert figures["shared_8_metadata_connections_bytes"] > 0
    assert figures["metadata_with_connections_ratio"] > figures["metadata_ratio"]
    assert report["notes"][0].startswith("brokers are played: 3 hold all replicas")


@pytest.mark.full
async def test_admissions_are_measured_at_a_quota_process() -> None:
    report = await bench("admit", "--records", "400", "--repetitions", "1", "--warm-up", "0", ends_with={0})
    figures = {name: spread["median"] for name, spread in report["figures"].items()}
    assert 0 < figures["call_p50_ms"] <= figures["call_p99_ms"]
    assert min(figures["admissions_per_s"], figures["ledger_per_s"], figures["bucket_per_s"]) > 0


@pytest.mark.full
async def test_traffic_is_measured_over_tls_beside_plaintext() -> None:
    shape = ("--records", "400", "--partitions", "2", "--batch-bytes", "16384", "--elections", "1", "--metadata", "1")
    told = ("--tls", "1", "--repetitions", "1", "--warm-up", "0", "--settle-s", "0")
    report = await bench("traffic", *shape, *told, ends_with={0})
    figures = {name: spread["median"] for name, spread in report["figures"].items()}
    for name in ("produce_mb_s", "consume_mb_s", "consume_batches_mb_s", "hop_mb_s"):
        assert min(figures[name], figures[f"tls_{name}"]) > 0
    ratio = figures["tls_produce_mb_s"] / figures["produce_mb_s"]
    assert figures["tls_produce_of_plain_ratio"] == pytest.approx(ratio, rel=0.01)


@pytest.mark.full
async def test_bytes_are_measured_beside_a_raw_hop() -> None:
    shape = ("--records", "400", "--partitions", "2", "--batch-bytes", "16384", "--elections", "1", "--metadata", "1")
    report = await bench("consume", *shape, "--repetitions", "1", "--warm-up", "0", "--settle-s", "0", ends_with={0})
    figures = {name: spread["median"] for name, spread in report["figures"].items()}
    ratio = figures["consume_mb_s"] / figures["hop_mb_s"]
    assert figures["consume_of_hop_ratio"] == pytest.approx(ratio, rel=0.01)
    assert figures["sdk_consume_mb_s"] > 0


@pytest.mark.full
async def test_sigterm_ends_it_with_all_that_it_started(tmp_path: Path) -> None:
    words = ("admit", "--records", "100000000", "--work", str(tmp_path), "-o", "json")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "regnum_bench", *words),
        env={**os.environ, "PYTHONPATH": str(ROOT / "bench")},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        said = await process.stderr.readuntil(b"starting etcd")
        process.send_signal(signal.SIGTERM)
        said += await process.stderr.read()
        assert await process.wait() == 130, said.decode()
    assert b"stopped; nothing of it was kept" in said
    folders = {str(path).encode() for path in tmp_path.iterdir()}
    for other in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = other.read_bytes()
        except OSError:
            continue
        assert not any(folder in line for folder in folders), line
