"""A folder that grows, and the steps of a stream over it: without Spark."""

import gzip
import json
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import cramjam
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from regnum_failover.traces.options import Options
from regnum_failover.traces.pieces import documents_of_piece, of_identity, of_path
from regnum_failover.traces.plan import parts_between
from regnum_failover.traces.source import TracesStreamReader
from regnum_failover.traces.span_rows import rows_of
from regnum_insight.spans.documents import Torn
from regnum_insight.spans.growth import Piece, look_at_folder, pieces_since
from regnum_telemetry import conventions as names
from regnum_testing.otlp_lines import Spans, at, broker_failover, line


class Steps:
    """Looks at a folder again and again, and has what came since."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.offsets: dict[str, int] = {}
        self.seen: list[Any] = []

    def step(self, part_bytes: int = 2**20) -> list[Any]:
        """Documents that came."""
        files = look_at_folder(self.folder, self.offsets)
        end = {key: file.size for key, file in files.items()}
        keys = {file.name: file.inode for file in files.values()}
        pieces = pieces_since(self.offsets, end, files)
        self.offsets = end
        came = [
            document
            for part in parts_between(pieces, part_bytes=part_bytes)
            for piece in part
            for document in documents_of_piece(piece, of_identity(keys))
        ]
        self.seen += came
        return came


def documents(count: int) -> list[dict[str, Any]]:
    return [{"resourceSpans": [], "n": n, "x": "x" * (n % 7)} for n in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_each_line_is_read_once_whenever_it_came_and_however_it_is_cut(tmp_path, seed):
    """Half lines wait for their other half; a file that is set aside under another name goes on as it is."""
    chance = random.Random(seed)
    wanted = documents(300)
    text = "".join(f"{json.dumps(one)}\n" for one in wanted).encode()
    steps, at, aside = Steps(tmp_path), 0, 0
    path = tmp_path / "regnum-broker-1.jsonl"
    while at < len(text):
        until = at + chance.randrange(1, 900)
        with path.open("ab") as file:
            file.write(text[at:until])
        at = until
        if chance.random() < 0.2 and text[:at].endswith(b"\n"):
            aside += 1
            path.rename(tmp_path / f"regnum-broker-1.{aside:06d}.jsonl")
        if chance.random() < 0.6:
            steps.step(part_bytes=chance.randrange(20, 500))
    steps.step()
    assert sorted(steps.seen, key=lambda one: one["n"]) == wanted
    assert steps.step() == []


def test_a_file_that_is_begun_anew_is_read_from_its_beginning(tmp_path):
    path, steps = tmp_path / "a.jsonl", Steps(tmp_path)
    path.write_text("".join(f"{json.dumps(one)}\n" for one in documents(9)), encoding="utf-8")
    assert len(steps.step()) == 9
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(b'{"resourceSpans": [], "n": 99}\n')
    assert [one["n"] for one in steps.step()] == [99]


def test_a_file_that_got_the_inode_of_one_that_is_gone_is_read_whole(tmp_path):
    """As on file systems that give an inode out again at once; both files are of one process."""
    steps, path = Steps(tmp_path), tmp_path / "a.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in documents(3)), encoding="utf-8")
    assert len(steps.step()) == 3
    next_file = [{**one, "n": one["n"] + 100} for one in documents(9)]
    with path.open("r+b") as file:
        file.truncate(0)
        file.write("".join(f"{json.dumps(one)}\n" for one in next_file).encode())
    assert steps.step() == next_file
    assert steps.step() == []


@pytest.mark.parametrize("pack", [gzip.compress, lambda text: bytes(cramjam.zstd.compress(text))])
def test_a_packed_file_that_got_the_inode_of_one_that_is_gone_is_read(tmp_path, pack):
    """Both are of one process, so that what they hold begins alike."""
    steps, path = Steps(tmp_path), tmp_path / "a.json.gz"
    for trace in (1, 2):
        with path.open("r+b" if path.exists() else "wb") as file:
            file.truncate(0)
            file.write(pack(f"{line(broker_failover(trace, 0.0))}\n".encode()))
        assert len(steps.step()) == 1
        assert steps.step() == []


def test_what_was_read_before_inodes_had_the_checksum_of_a_line_beside_them_is_not_read_again(tmp_path):
    steps, path = Steps(tmp_path), tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(documents(1)[0])}\n", encoding="utf-8")
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(b'{"resourceSpans": [], "n": 1}'))
    stats = [path.stat(), (tmp_path / "b.json.gz").stat()]
    steps.offsets = {f"{stat.st_dev}:{stat.st_ino}": stat.st_size for stat in stats}
    # A step that was planned before, and is carried out now.
    (whole, _) = sorted(pieces_since({}, steps.offsets, look_at_folder(tmp_path, {})))
    assert (whole.file, whole.end) == (str(path), stats[0].st_size)
    assert steps.step() == []
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(documents(2)[1])}\n")
    assert steps.step() == documents(2)[1:]


def test_what_is_packed_is_read_once_and_what_is_over_lines_as_a_whole(tmp_path):
    steps = Steps(tmp_path)
    packed = gzip.compress(b'{"resourceSpans": [], "n": 1, "x": "%s"}' % random.Random(1).randbytes(400).hex().encode())
    (tmp_path / "a.json.gz").write_bytes(packed)
    (tmp_path / "b.json").write_text(json.dumps({"resourceSpans": [], "n": 2}, indent=1) + "\n", encoding="utf-8")
    (tmp_path / "empty").touch()
    assert sorted(one["n"] for one in steps.step()) == [1, 2]
    with (tmp_path / "a.json.gz").open("ab") as file:
        file.write(b"more")
    assert not [one for one in steps.step() if not isinstance(one, Torn)]


@pytest.mark.parametrize("first", [b'{"resourceSpans":[{"reso\n', b"\n", b'{"resource\n\n{"re\n'])
def test_a_file_whose_first_line_is_torn_or_empty_is_read_on(tmp_path, first):
    path, steps = tmp_path / "a.jsonl", Steps(tmp_path)
    path.write_bytes(first)
    steps.step()
    for one in documents(6):
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(one)}\n")
        assert [came for came in steps.step() if not isinstance(came, Torn)] == [one]


def test_a_file_that_was_set_aside_or_removed_after_the_look_is_found_or_said(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(documents(1)[0])}\n", encoding="utf-8")
    files = look_at_folder(tmp_path, {})
    opened = of_identity({file.name: file.inode for file in files.values()})
    path.rename(tmp_path / "a.000001.jsonl")
    path.write_text("another\n", encoding="utf-8")
    assert list(documents_of_piece(Piece(str(path), 0, None), opened)) == documents(1)
    path.unlink()
    assert list(documents_of_piece(Piece(str(path), 0, None), opened)) == documents(1), "no other has its name yet"
    (tmp_path / "a.000001.jsonl").unlink()
    with pytest.raises(FileNotFoundError):
        list(documents_of_piece(Piece(str(path), 0, None), opened))


def test_a_folder_is_looked_through_only_for_files_that_were_set_aside(tmp_path):
    for number in range(20):
        (tmp_path / f"{number}.jsonl").write_text("{}\n", encoding="utf-8")
    keys = {file.name: file.inode for file in look_at_folder(tmp_path, {}).values()}
    opened, looks, looking = of_identity(keys), [], True

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if looking and event == "os.scandir":
            looks.append(str(arguments[0]))

    # (There is no way to take a hook away.)
    sys.addaudithook(heard)
    for path in keys:
        opened(path, 0).close()
    assert looks == []
    (tmp_path / "7.jsonl").rename(tmp_path / "7.000001.jsonl")
    opened(f"{tmp_path}/7.jsonl", 0).close()
    looking = False
    assert looks == [str(tmp_path)]


def test_the_clock_of_a_stream_goes_on_for_a_while_after_news_and_then_rests(tmp_path):
    now = 1_800_000_000.0
    reader = TracesStreamReader(Options.of({"path": str(tmp_path)}), tick_s=60, now_s=lambda: now)
    offset = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert offset == {"clock_s": now, "files": {}}
    spans = Spans(1)
    spans.add(names.OUTAGE, 0, 5)
    (tmp_path / "a.jsonl").write_text(f"{line(broker_failover(2, 0))}\n{line(spans.made)}\n", encoding="utf-8")
    now += 3600
    end = reader.latestOffset(offset, ReadAllAvailable())
    made = [row for part in reader.partitions(offset, end) for batch in reader.read(part) for row in batch.to_pylist()]
    (told,) = [row for row in made if row["trace_id"] is None]
    assert told["ended"].timestamp() == now
    assert pickle.loads(told["span"]).spans_n == len(broker_failover(2, 0)) + 1  # noqa: S301 - made here
    assert {row["trace_id"] for row in made} == {None, f"{1:032x}", f"{2:032x}"}
    # A query that goes on from its checkpoint plans the step that was not finished without a look.
    again = TracesStreamReader(Options.of({"path": str(tmp_path)}), tick_s=60, now_s=lambda: now)
    assert [part.pieces for part in again.partitions(offset, end)] == [
        part.pieces for part in reader.partitions(offset, end)
    ]
    now += 30
    offset = reader.latestOffset(end, ReadAllAvailable())
    assert offset == {**end, "clock_s": now}
    (ticking,) = reader.partitions(end, offset)
    assert ticking.pieces == ()
    now += 60
    assert reader.latestOffset(offset, ReadAllAvailable()) == offset


def test_no_span_of_a_stream_ends_after_its_step(tmp_path):
    """A clock that is ahead takes the watermark no further than the step's: what others record then is not late."""
    now = at(0) // 10**9 + 7
    reader = TracesStreamReader(Options.of({"path": str(tmp_path)}), tick_s=60, now_s=lambda: now)
    spans = Spans(1)
    spans.add(names.OUTAGE, 0, 500)
    spans.add(names.OUTAGE, 0, 365 * 86_400_000)
    (tmp_path / "a.jsonl").write_text(f"{line(spans.made)}\n", encoding="utf-8")
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    made = [row for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(row["ended"].timestamp() for row in made) == [at(500) / 1e9, now, now]
    # In a batch there is no moment, and a span has its own end.
    (read,) = rows_of([Piece(f"{tmp_path}/a.jsonl")], of_path)
    assert max(row["ended"] for row in read.to_pylist() if row["trace_id"]).timestamp() > now


def test_a_pattern_is_looked_at_as_the_folders_and_files_that_it_matches(tmp_path):
    for name in ("a/1.jsonl", "b/2.jsonl", "b/3.json", "c.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"resourceSpans": []}\n', encoding="utf-8")

    def looked(place: str) -> set[str]:
        return {Path(file.name).name for file in Options.of({"path": f"{tmp_path}/{place}"}).look({}, 0.0).values()}

    assert looked("*/*.jsonl") == {"1.jsonl", "2.jsonl"}
    assert looked("[bc]*") == {"2.jsonl", "3.json", "c.jsonl"}
    assert looked("") == {"1.jsonl", "2.jsonl", "3.json", "c.jsonl"}
    assert looked("none*") == set()
    # What comes to a folder later is news of a pattern, too.
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "4.jsonl").write_text('{"resourceSpans": []}\n', encoding="utf-8")
    assert looked("*/*.jsonl") == {"1.jsonl", "2.jsonl", "4.jsonl"}
