"""`regnum logs inspect`: what a segment file holds and where it is damaged, without a broker."""

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from regnum_client.command import main
from regnum_records.build import CodecName, build_batch
from regnum_records.header import assign
from regnum_records.record import NewRecord
from regnum_testing.command_here import Ran


def batch(base_offset: int, *, records: int = 3, codec: CodecName = "none") -> bytes:
    made = build_batch(
        [
            NewRecord(value=b"value" * 20, key=None if number % 2 else b"\xff", headers=(("h", b"1"),))
            for number in range(records)
        ],
        timestamp_ms=1_700_000_000_000,
        codec=codec,
        producer_id=7,
        producer_epoch=2,
        base_sequence=base_offset,
    )
    return bytes(assign(made, base_offset=base_offset, leader_epoch=4))


def inspect(*arguments: str | Path) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    hook = sys.excepthook
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(["logs", "inspect", *map(str, arguments)])
    finally:
        sys.excepthook = hook
    return Ran(status, out.getvalue(), err.getvalue())


def lines(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.out.splitlines()]


def kinds(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["kind"] for row in rows]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    file = tmp_path / f"{100:020d}.log"
    file.write_bytes(batch(100) + batch(103, codec="zstd") + batch(106))
    return file


def test_a_whole_segment(segment: Path) -> None:
    ran = inspect(segment, "-o", "jsonl")
    assert (ran.status, ran.err) == (0, "")
    *batches, file = lines(ran)
    assert kinds(batches) == ["batch"] * 3
    size = batches[1]["position"]
    assert batches[0] == {
        "kind": "batch",
        "file": str(segment),
        "position": 0,
        "bytes": size,
        "base_offset": 100,
        "last_offset": 102,
        "leader_epoch": 4,
        "producer_id": 7,
        "producer_epoch": 2,
        "base_sequence": 100,
        "records": 3,
        "codec": "none",
        "control": False,
        "crc_ok": True,
        "base_timestamp_ms": 1_700_000_000_000,
        "max_timestamp_ms": 1_700_000_000_000,
        "problem": None,
    }
    assert batches[1]["codec"] == "zstd"
    bytes_in_all = segment.stat().st_size
    assert file == {
        "kind": "file",
        "file": str(segment),
        "bytes": bytes_in_all,
        "batches": 3,
        "records": 9,
        "first_offset": 100,
        "next_offset": 109,
        "problems": 0,
        "readable_bytes": bytes_in_all,
        "readable_next_offset": 109,
    }
    assert json.loads(inspect(segment, "-o", "json").out) == [*batches, file]


def test_for_people_a_batch_is_a_line_and_a_file_a_sentence(segment: Path) -> None:
    ran = inspect(segment)
    head, first, *_ = ran.out.splitlines()
    assert head.split()[:4] == ["POSITION", "BYTES", "OFFSETS", "EPOCH"]
    assert first.split()[2:10] == ["100-102", "4", "7/2", "from", "100", "3", "none", "ok"]
    assert "2023-11-14 22:13:20.000Z" in first
    assert ran.err.startswith(f"{segment}: 3 batches, 9 records (offsets 100 to 108), ")


def test_records_are_decoded_where_they_are_wanted(segment: Path) -> None:
    rows = lines(inspect(segment, "--records", "-o", "jsonl"))
    assert kinds(rows) == [*["batch", "record", "record", "record"] * 3, "file"]
    assert rows[1] == {
        "kind": "record",
        "file": str(segment),
        "position": 0,
        "offset": 100,
        "timestamp_ms": 1_700_000_000_000,
        "key_base64": "/w==",
        "value": "value" * 20,
        "headers": [{"key": "h", "value": "1"}],
    }
    table = inspect(segment, "--records").out.splitlines()
    assert table[0].split() == ["POSITION", "OFFSET", "TIME", "KEY", "VALUE", "HEADERS", "PROBLEM"]
    assert len(table) == 10
    assert "base64:/w==" in table[1]
    assert "value...  h=1" in table[1]


def test_damage_has_a_position_and_what_is_behind_it_is_shown(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    second = len(batch(100))
    data[second + 8] = 0x40  # its length is a gigabyte now
    segment.write_bytes(data)
    ran = inspect(segment, "-o", "jsonl")
    rows = lines(ran)
    assert kinds(rows) == ["batch", "damage", "batch", "file"]
    assert (rows[1]["position"], rows[1]["bytes"]) == (second, rows[2]["position"] - second)
    assert (rows[3]["readable_bytes"], rows[3]["readable_next_offset"], rows[3]["next_offset"]) == (second, 103, 109)
    assert (ran.status, ran.error["code"], ran.error["metadata"]) == (
        1,
        "LOG_DAMAGED",
        {"file": str(segment), "readable_bytes": str(second)},
    )
    people = inspect(segment)
    assert people.status == 1
    assert f"readable up to byte {second} (offsets 100 to 102)" in people.err
    assert "the file ends after" in people.out


def test_a_flipped_bit_in_a_value_is_damage(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[100] ^= 1
    segment.write_bytes(data)
    ran = inspect(segment, "-o", "jsonl")
    first = lines(ran)[0]
    assert (ran.status, first["crc_ok"], "checksum" in first["problem"]) == (1, False, True)
    assert lines(ran)[-1]["readable_bytes"] == 0
    assert lines(ran)[-1]["readable_next_offset"] is None


def test_what_only_decoding_can_find_is_found_by_decoding(tmp_path: Path) -> None:
    """The checksum is right, and the head says the wrong codec: a defect of whoever wrote it."""
    import google_crc32c  # noqa: PLC0415

    data = bytearray(batch(0))
    data[22] = 4
    data[17:21] = google_crc32c.value(bytes(data[21:])).to_bytes(4, "big")
    file = tmp_path / "copy.log"
    file.write_bytes(data)
    assert inspect(file).status == 0
    ran = inspect(file, "--records", "-o", "jsonl")
    assert (ran.status, "zstd" in lines(ran)[0]["problem"]) == (1, True)


def test_a_folder_is_all_its_segments(segment: Path) -> None:
    (segment.parent / f"{109:020d}.log").write_bytes(batch(109)[:-1])
    (segment.parent / f"{109:020d}.index").write_bytes(b"")
    for guest in (".nfs01.log", "109.log", "notes.log"):
        (segment.parent / guest).write_bytes(b"something else")
    (segment.parent / f"{209:020d}.log").mkdir()
    ran = inspect(segment.parent, "-o", "jsonl")
    assert [row["problems"] for row in lines(ran) if row["kind"] == "file"] == [0, 1]
    assert (ran.status, "1 of 2 files are damaged" in str(ran.error["message"])) == (1, True)


def test_what_is_no_segment_is_said(tmp_path: Path) -> None:
    (tmp_path / "0.index").write_bytes(b"")
    assert inspect(tmp_path / "0.index").status == 2
    assert "no segments" in inspect(tmp_path).err
    missing = inspect(tmp_path / "missing.log", "-o", "json")
    assert (missing.status, missing.error["code"]) == (1, "SYSTEM_ERROR")
    (tmp_path / "empty.log").write_bytes(b"")
    assert inspect(tmp_path / "empty.log").status == 0


def test_the_first_batches_are_shown_before_the_last_are_read(tmp_path: Path) -> None:
    """A gigabyte of a segment would neither fit into memory nor be waited for: `| head` ends it early."""
    file = tmp_path / f"{0:020d}.log"
    with file.open("wb") as segment:
        for number in range(20_000):
            segment.write(batch(number, records=1))
    command = "import sys; from regnum_client.command import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", command, "logs", "inspect", str(file), "-o", "jsonl"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["base_offset"] == 0
        process.stdout.close()
        assert process.wait() == 0


def test_neither_broker_nor_grpc_is_loaded(segment: Path) -> None:
    code = (
        "import sys; from regnum_client.command import main; status = main(); "
        "print(status, sorted({'grpc', 'regnum_broker'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, "logs", "inspect", str(segment)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-1] == "0 []"
