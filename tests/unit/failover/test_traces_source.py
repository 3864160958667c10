"""What a task reads of files, by the rows it makes: without Spark."""

import gzip
import json
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path

import cramjam
import pytest
from regnum_failover.objects.store import ObjectGoneError, StoreUnreachableError
from regnum_failover.traces.listing import in_folder
from regnum_failover.traces.options import present
from regnum_failover.traces.packs import apart
from regnum_failover.traces.pieces import documents_of_piece, of_path, of_pieces
from regnum_failover.traces.plan import TraceFile, parts_of
from regnum_failover.traces.planned import Planned, read_plan, write_plan
from regnum_failover.traces.span_rows import rows_of
from regnum_insight.spans.documents import Torn, documents_of
from regnum_insight.spans.growth import Piece
from regnum_insight.spans.intake import Tally
from regnum_testing.otlp_lines import broker_failover, line

REQUESTS = [json.dumps({"resourceSpans": [], "n": n, "x": "x" * n}) for n in range(12)]


def documents(path: Path, part_bytes: int) -> list[object]:
    """All documents of a file that is cut, in the order of its pieces."""
    parts = parts_of([TraceFile(str(path), path.stat().st_size)], part_bytes=part_bytes)
    return [document for part in parts for piece in part for document in documents_of_piece(piece, of_path)]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_wherever_a_file_is_cut_each_line_is_read_once(tmp_path, end):
    torn = [*REQUESTS[:3], "nonsense", *REQUESTS[3:5], REQUESTS[5][:9], *REQUESTS[6:8], "", *REQUESTS[8:]]
    file = tmp_path / "a.jsonl"
    file.write_bytes((end or "\n").join(torn).encode() + end.encode())
    whole = list(documents_of(file))
    assert len([one for one in whole if isinstance(one, Torn)]) == 2
    for part_bytes in range(1, file.stat().st_size + 2):
        assert documents(file, part_bytes) == whole, part_bytes


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress("\n".join(REQUESTS).encode()),
        bytes(cramjam.zstd.compress("\n".join(REQUESTS).encode())),
        json.dumps(json.loads(REQUESTS[9]), indent=2).encode() * 3,
        f"[{','.join(REQUESTS)}]".encode(),
    ],
    ids=["gzip", "zstd", "over lines", "a list"],
)
def test_a_file_without_a_document_on_each_line_is_read_once_as_a_whole(tmp_path, content):
    file = tmp_path / "a"
    file.write_bytes(content)
    assert documents(file, 16) == list(documents_of(file))


def test_an_object_in_pieces_is_a_file():
    content = bytes(range(256)) * 50
    for size in (1, 7, 5000, 20_000):
        file = of_pieces(iter([content[at : at + size] for at in range(0, len(content), size)]))
        assert (file.peek(5)[:5], file.read()) == (content[:5], content)


def rows(pieces: Sequence[Piece], opened=of_path) -> tuple[list[str], Tally]:
    """The traces of spans, and what was told."""
    made = [row for batch in rows_of(pieces, opened) for row in batch.to_pylist()]
    (told,) = [row["span"] for row in made if row["trace_id"] is None]
    return [row["trace_id"] for row in made if row["trace_id"] is not None], pickle.loads(told)  # noqa: S301 - made here


def test_a_task_tells_what_it_read_and_what_it_could_not(tmp_path):
    (tmp_path / "a.jsonl").write_text(f"{line(broker_failover(1, 0))}\nnonsense\n", encoding="utf-8")
    traces, tally = rows([Piece(f"{tmp_path}/a.jsonl"), Piece(f"{tmp_path}/gone.jsonl"), Piece(str(tmp_path))])
    assert set(traces) == {f"{1:032x}"}
    assert (tally.files_n, tally.files_unread_n, tally.documents_torn_n) == (3, 2, 1)
    assert [one.file for one in tally.aside] == ["a.jsonl", "gone.jsonl", tmp_path.name]
    assert tally.spans_n == len(broker_failover(1, 0))


def test_spans_of_a_trace_that_lie_together_are_one_row_and_in_a_stream_each_is_one(tmp_path):
    """Its end is that of the latest; in a stream what ends apart may belong to two sessions."""
    spans = [line(broker_failover(number, 0)) for number in (1, 2, 1)]
    (tmp_path / "a.jsonl").write_text("".join(f"{text}\n" for text in spans), encoding="utf-8")
    piece, moment_us = Piece(f"{tmp_path}/a.jsonl"), 2 * 10**15
    (batch,), (streamed,) = rows_of([piece], of_path), rows_of([piece], of_path, moment_us=moment_us)
    alone = [row for row in streamed.to_pylist() if row["trace_id"]]
    for row in batch.to_pylist()[:-1]:
        of_it = [one for one in alone if one["trace_id"] == row["trace_id"]]
        assert list(apart(row["span"])) == [one["span"] for one in of_it]
        assert row["ended"] == max(one["ended"] for one in of_it)
    assert [row["trace_id"] for row in batch.to_pylist()] == [*dict.fromkeys(one["trace_id"] for one in alone), None]
    assert len(alone) > 20


def test_pieces_of_a_file_are_one_file_and_none_is_empty(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join([*REQUESTS, line(broker_failover(1, 0)), *REQUESTS]), encoding="utf-8")
    told = [rows(part)[1] for part in parts_of([TraceFile(str(file), file.stat().st_size)], part_bytes=400)]
    assert len(told) > 3
    assert (sum(one.files_n for one in told), [one.files_empty for one in told]) == (1, [[]] * len(told))


def of_script(*pieces: bytes | Exception) -> Iterator[bytes]:
    for piece in pieces:
        if isinstance(piece, Exception):
            raise piece
        yield piece


def test_an_object_that_went_away_is_set_aside_and_a_store_that_is_away_ends_the_task():
    good = line(broker_failover(1, 0)).encode()
    scripts = {"a": (good,), "b": (ObjectGoneError("gone"),), "c": (good[:50], StoreUnreachableError("it broke off"))}

    def opened(key: str, begin: int):
        assert begin == 0
        return of_pieces(present(of_script(*scripts[key])))

    traces, tally = rows([Piece("a"), Piece("b")], opened)
    assert (set(traces), tally.files_unread_n) == ({f"{1:032x}"}, 1)
    assert tally.aside[0].reason == "the file cannot be read: it went away while others were read"
    with pytest.raises(StoreUnreachableError, match="broke off"):
        rows([Piece("c")], opened)


def test_a_plan_is_read_as_it_was_written(tmp_path):
    (tmp_path / "n\u00e4me:1 [a]{b}*?.jsonl").write_text("{}", encoding="utf-8")
    (tmp_path / ".hidden.jsonl").write_text("{}", encoding="utf-8")
    (tmp_path / ".other").write_text("{}", encoding="utf-8")
    listing = in_folder(str(tmp_path))
    pieces = [[Piece(file.name), Piece(file.name, 1, file.size)] for file in listing.files]
    planned = Planned(parts=pieces, keys={listing.files[0].name: "1:2"}, kept_at="s3://b", kept="k")
    write_plan(planned, tmp_path / "plan")
    assert read_plan(tmp_path / "plan") == planned
    assert [Path(file.name).name[0] for file in listing.files] == [".", "n"]
