"""Samples of stacks by place of the data path."""

import os
from pathlib import Path

import pytest
from regnum_bench.data_path import places_markdown
from regnum_bench.places import OTHER, OUTSIDE, by_place, each_us
from regnum_bench.processor_time import of_threads

WRITER = ["Thread._bootstrap (threading.py:988)", "LogWriter._work (regnum_broker/writer.py:90)"]


def test_a_sample_counts_for_the_innermost_frame_that_is_known() -> None:
    stacks = [
        ([*WRITER, "_append (regnum_broker/serving/produce_appends.py:283)"], 3),
        ([*WRITER, "accepted_batch (regnum_records/check.py:70)", "value (google_crc32c/cext.py:1)"], 2),
        ([*WRITER, "Disk.pwritev (regnum_broker/log/disk/system_calls.py:39)"], 1),
        (["run (x.py:1)", "Connection._send (regnum_broker/kafka/connection.py:1)"], 4),
        (["ContactWatch._look (regnum_broker/cluster/contacts.py:66)"], 5),
    ]
    assert by_place(stacks) == {
        "append": 3,
        "check of batches": 2,
        "append: system calls": 1,
        "Kafka's protocol": 4,
        OTHER: 5,
    }


def test_samples_share_out_what_pythons_threads_have_spent_and_the_largest_is_first() -> None:
    found = each_us({"append": 50, "fetch": 10}, python_s=0.6, outside_s=0.4, batches=1_000)
    assert list(found.items()) == [("append", 500.0), (OUTSIDE, 400.0), ("fetch", 100.0)]


def test_threads_are_told_apart_by_their_names(tmp_path: Path) -> None:
    for number, name, ticks in ((7, "python", 100), (8, "event_engine", 30), (9, "python", 20)):
        folder = tmp_path / "7" / "task" / str(number)
        folder.mkdir(parents=True)
        (folder / "comm").write_text(f"{name}\n")
        (folder / "stat").write_text(f"{number} ({name}) S" + " 0" * 10 + f" {ticks} 0" + " 0" * 30)
    (tmp_path / "7" / "comm").write_text("python\n")
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert of_threads(7, tmp_path) == (pytest.approx(120 * tick_s), pytest.approx(30 * tick_s))
    assert of_threads(6, tmp_path) == (0.0, 0.0)


def test_the_table_has_a_column_for_each_broker_and_the_sums() -> None:
    page = places_markdown({"places": {"produce_grpc_rf3": {"broker-1": {"append": 10.4}, "broker-2": {"fetch": 2.0}}}})
    assert page.splitlines() == [
        "**produce, grpc, rf3**, microseconds of a batch",
        "",
        "| place | broker-1 | broker-2 |",
        "|---|---:|---:|",
        "| append | 10 | 0 |",
        "| fetch | 0 | 2 |",
        "| all, less what is there at rest | 10 | 2 |",
    ]
