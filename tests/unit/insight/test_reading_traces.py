"""Every spelling of OTLP that writers have, and files that are torn, packed, foreign or not there."""

import base64
import gzip
import json
import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from regnum_insight.engine import analyse
from regnum_insight.spans.documents import DOCUMENT_BYTES_MAX, Torn, documents_of, documents_on
from regnum_insight.spans.intake import Intake, read_folder
from regnum_insight.spans.otlp import ALL
from regnum_insight.spans.span import Kind, Span
from regnum_insight.spans.zstd_frames import may_exceed
from regnum_testing.change_traces import ChangeTrace
from regnum_testing.otlp_lines import Spans, line


def read(path: Path) -> tuple[Intake, list[Span]]:
    intake = read_folder(path, ALL)
    return intake, [span for spans in intake.traces() for span in spans]


def document() -> dict[str, Any]:
    """One request with every span of a change, as the product writes it."""
    spans = [span for of in ChangeTrace().documents().values() for span in of]
    return json.loads(line(spans, service="regnum-broker", instance="2"))


def spans_in(of: dict[str, Any]) -> list[dict[str, Any]]:
    return of["resourceSpans"][0]["scopeSpans"][0]["spans"]


def test_a_span_is_read_as_it_was_written(tmp_path):
    one = Spans(0xAB).add("x", 1, 2, text="a", number=5, truth=True)
    one |= {"kind": 3, "parentSpanId": "00000000000000ff", "links": [{"traceId": f"{9:032x}", "spanId": f"{8:016x}"}]}
    (tmp_path / "a.jsonl").write_text(line([one], service="regnum-broker", instance="2"), encoding="utf-8")
    _, (span,) = read(tmp_path)
    assert (span.trace_id, span.name, span.kind, span.process) == (f"{0xAB:032x}", "x", Kind.CLIENT, "broker 2")
    assert (span.parent_id, span.links) == ("00000000000000ff", ((f"{9:032x}", f"{8:016x}"),))
    assert span.attributes == {"text": "a", "number": "5", "truth": "true"}
    assert span.end_ns - span.start_ns == 1_000_000


@pytest.mark.parametrize("kind", [None, 9, -1, "SPAN_KIND_OF_A_LATER_RELEASE", "9", 2.5, []])
def test_a_span_whose_kind_is_missing_or_unknown_is_read_as_one_without(tmp_path, kind):
    one = Spans(1).add("x", 1, 2) | {"kind": kind}
    (tmp_path / "a.jsonl").write_text(line([one]), encoding="utf-8")
    _, (span,) = read(tmp_path)
    assert (span.name, span.kind) == ("x", Kind.UNSPECIFIED)


def capitals(of: dict[str, Any]) -> dict[str, Any]:
    for span in spans_in(of):
        span |= {"traceId": span["traceId"].upper(), "spanId": span["spanId"].upper()}
    return of


def in_base64(of: dict[str, Any]) -> dict[str, Any]:
    for span in spans_in(of):
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in span:
                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    return of


def kinds_by_name(of: dict[str, Any]) -> dict[str, Any]:
    for span in spans_in(of):
        span |= {"kind": f"SPAN_KIND_{Kind(span['kind']).name}", "status": {"code": "STATUS_CODE_OK"}}
    return of


def numbers_as_numbers(of: dict[str, Any]) -> dict[str, Any]:
    for span in spans_in(of):
        span |= {"startTimeUnixNano": int(span["startTimeUnixNano"]), "endTimeUnixNano": int(span["endTimeUnixNano"])}
        span["kind"] = float(span["kind"])
        for pair in span["attributes"]:
            if "intValue" in pair["value"]:
                pair["value"]["intValue"] = int(pair["value"]["intValue"])
    return of


def kinds_as_text(of: dict[str, Any]) -> dict[str, Any]:
    for span in spans_in(of):
        span["kind"] = str(span["kind"])
    return of


def snake_case(of: Any) -> Any:
    if isinstance(of, list):
        return [snake_case(item) for item in of]
    if not isinstance(of, dict):
        return of
    return {"".join(f"_{c.lower()}" if c.isupper() else c for c in key): snake_case(value) for key, value in of.items()}


def attributes_as_one_object(of: dict[str, Any]) -> dict[str, Any]:
    for span in spans_in(of):
        span["attributes"] = {pair["key"]: next(iter(pair["value"].values())) for pair in span["attributes"]}
    return of


def odd_fields(of: dict[str, Any]) -> dict[str, Any]:
    for span in spans_in(of):
        span |= {"events": 7, "links": "none", "status": [], "flags": {}, "droppedAttributesCount": "many"}
        span["attributes"] += [5, {"key": 3}, {"key": "x"}, {"key": "y", "value": {"arrayValue": None}}]
    return of


def old_scopes(of: dict[str, Any]) -> dict[str, Any]:
    of["resourceSpans"][0]["instrumentationLibrarySpans"] = of["resourceSpans"][0].pop("scopeSpans")
    return of


SPELLINGS = [
    capitals, in_base64, kinds_by_name, numbers_as_numbers, kinds_as_text, snake_case, attributes_as_one_object,
    odd_fields, old_scopes,
]  # fmt: skip


def as_protobuf(of: dict[str, Any]) -> bytes:
    return ParseDict(in_base64(of), TracesData()).SerializeToString()


def framed(message: bytes) -> bytes:
    return struct.pack(">I", len(message)) + message


def text(of: dict[str, Any]) -> bytes:
    return json.dumps(of).encode()


FORMS = {
    "a line": lambda of: text(of) + b"\n",
    "pretty-printed": lambda of: json.dumps(of, indent=2).encode(),
    "pretty-printed twice": lambda of: (json.dumps(of, indent=2) + "\n").encode() * 2,
    "a list": lambda of: b"[" + text(of) + b"]",
    "a list over lines": lambda of: b"[\n" + text(of) + b",\n" + text(of) + b"\n]\n",
    "a pretty-printed list": lambda of: json.dumps([of], indent=4).encode(),
    "two on a line": lambda of: text(of) + text(of),
    "with a mark before": lambda of: b"\xef\xbb\xbf" + text(of),
    "with carriage returns": lambda of: text(of) + b"\r\n",
    "gzip": lambda of: gzip.compress(text(of)),
    "zstd": lambda of: bytes(cramjam.zstd.compress(text(of))),
    "protobuf": as_protobuf,
    "protobuf in frames": lambda of: framed(as_protobuf(of)) * 2,
    "JSON in frames": lambda of: framed(text(of)),
    "zstd in frames": lambda of: framed(bytes(cramjam.zstd.compress(text(of)))),
    "zstd protobuf in frames": lambda of: framed(bytes(cramjam.zstd.compress(as_protobuf(of)))),
    "gzip of gzip": lambda of: gzip.compress(gzip.compress(text(of))),
    "gzip of zstd": lambda of: gzip.compress(bytes(cramjam.zstd.compress(text(of)))),
    "gzip of frames": lambda of: gzip.compress(framed(as_protobuf(of))),
    "behind a torn line": lambda of: text(of)[:700] + b"\n" + text(of) + b"\n",
    "behind a torn line without an end": lambda of: text(of)[:700] + text(of) + b"\n",
    "before a torn line": lambda of: text(of) + b"\n" + text(of)[:700],
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_gives_the_same_changes(tmp_path, spelling):
    (tmp_path / "plain").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "plain" / "a.jsonl").write_bytes(text(document()))
    (tmp_path / "other" / "a.jsonl").write_bytes(text(spelling(document())))
    assert analyse(tmp_path / "other").changes == analyse(tmp_path / "plain").changes
    assert len(analyse(tmp_path / "plain").changes) == 1


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_file_gives_the_same_changes(tmp_path, form):
    (tmp_path / "plain").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "plain" / "a.jsonl").write_bytes(text(document()))
    (tmp_path / "other" / "whatever").write_bytes(FORMS[form](document()))
    found = analyse(tmp_path / "other")
    assert found.changes == analyse(tmp_path / "plain").changes
    assert found.intake.documents_torn_n == ("torn" in form)


@pytest.mark.parametrize("packing", [gzip.compress, lambda data: bytes(cramjam.zstd.compress(data))])
def test_a_file_that_is_packed_hundreds_of_times_over_is_set_aside(tmp_path, packing):
    data = text(document())
    for _ in range(300):
        data = packing(data)
    (tmp_path / "deep").write_bytes(data)
    (tmp_path / "whole.jsonl").write_bytes(text(document()))
    found = analyse(tmp_path)
    assert (len(found.changes), [one.file for one in found.intake.aside]) == (1, ["deep"])


def run_of_zeros(blocks: int) -> bytes:
    """The shortest way of zstd to say 128 KiB, so many times over."""
    frame, size = b"\x28\xb5\x2f\xfd\x00\x58", 2**17
    block = (size << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    last = (size << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\x00"
    return frame + block * (blocks - 1) + last


def test_a_file_that_would_fill_the_disk_is_set_aside(tmp_path):
    assert bytes(cramjam.zstd.decompress(run_of_zeros(3))) == bytes(3 * 2**17), "it is what zstd takes"
    path = tmp_path / "a.json.zst"
    # 8 GiB: to unpack it would take a minute.
    path.write_bytes(run_of_zeros(2**16))
    (torn,) = documents_of(path)
    assert torn.reason.startswith("it may unpack to more than ")


def test_a_former_format_of_zstd_is_set_aside(tmp_path):
    """The library unpacks it too: 8 bytes in a block of it become 128 KiB."""
    good = bytes(cramjam.zstd.compress(b"{}\n"))
    assert may_exceed(good + b"\x27\xb5\x2f\xfd" + bytes(40), 2**40)


def test_empty_blocks_are_looked_at_no_more_often_than_there_is_room():
    """Three bytes each, and nothing comes of them."""
    assert may_exceed(b"\x28\xb5\x2f\xfd\x00\x58" + bytes(3) * 2000, 2**20)


@pytest.mark.parametrize("outer", [gzip.compress, lambda data: bytes(cramjam.zstd.compress(data))])
def test_what_was_packed_twice_gives_no_more_than_its_file_may(tmp_path, outer):
    """A few KB: 64 MiB of zstd that say they are 64 GiB, and more than that of packed data in gzip."""
    path = tmp_path / "a"
    path.write_bytes(outer(run_of_zeros(2**19)))
    (torn,) = documents_of(path)
    assert torn.reason.startswith("it may unpack to more than 67,108,864 bytes"), torn
    path.write_bytes(gzip.compress(gzip.compress(b"\x28\xb5\x2f\xfd" + bytes(DOCUMENT_BYTES_MAX))))
    (torn,) = documents_of(path)
    assert torn.reason.startswith("it is packed twice, and 67,108,864 bytes"), torn


def test_a_file_of_zstd_that_was_flushed_after_each_line_is_read(tmp_path):
    of, packer = document(), cramjam.zstd.Compressor()
    packed = b""
    for position in range(600):
        packer.compress(text({**of, "x": position}) + b"\n")
        packed += bytes(packer.flush())
    path = tmp_path / "a.zst"
    path.write_bytes(packed + bytes(packer.finish()))
    assert len(list(documents_of(path))) == 600


@pytest.mark.parametrize("level", [1, 19])
@pytest.mark.parametrize("data", [b"", b"x", bytes(10**6), random.Random(1).randbytes(300_000), b"spans " * 10**5])
def test_how_much_zstd_unpacks_to_is_bounded_by_its_blocks(data, level):
    packed = bytes(cramjam.zstd.compress(data, level=level))
    again = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + packed * 2
    for frames, length in ((packed, len(data)), (again, 2 * len(data))):
        assert length == 0 or may_exceed(frames, length - 1)
        assert not may_exceed(frames, length + 2 * 2**17), "a block more for each frame at most"
    assert not may_exceed(packed[: len(packed) // 2], len(data) + 2**17)
    assert not may_exceed(b"no zstd at all", 0)


@pytest.mark.parametrize("packing", [gzip.compress, lambda data: bytes(cramjam.zstd.compress(data))])
def test_a_file_that_ends_within_its_packed_data_gives_what_came_before(tmp_path, packing):
    of = document()
    lines = b"".join(text({**of, "x": position}) + b"\n" for position in range(40))
    (tmp_path / "torn").write_bytes(packing(lines)[:-40])
    (tmp_path / "whole.jsonl").write_bytes(text(document()))
    found = analyse(tmp_path)
    assert len(found.changes) == 1
    assert any("compressed" in one.reason for one in found.intake.aside)


@pytest.mark.parametrize("name", ["a[1].jsonl", "a:b.jsonl", "a\\b.jsonl", "_billing.jsonl", "a b*.jsonl"])
def test_names_of_files_and_folders_mean_nothing(tmp_path, name):
    folder = tmp_path / "of [x]" / "c:d"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(text(document()))
    assert len(analyse(tmp_path).changes) == 1


def test_what_is_no_span_is_counted_with_its_reason(tmp_path):
    spans = Spans(9)
    bad = [
        spans.add("x", 5, 4),
        {**spans.add("x", 4, 5), "name": None},
        {**spans.add("x", 4, 5), "startTimeUnixNano": "soon"},
        {**spans.add("x", 4, 5), "spanId": "zz"},
        {**spans.add("x", 4, 5), "traceId": "0" * 32},
        "span",
    ]
    (tmp_path / "a.jsonl").write_text(line([*bad, spans.add("good", 1, 2)]), encoding="utf-8")
    intake, found = read(tmp_path)
    assert [span.name for span in found] == ["good"]
    assert intake.spans_refused_n == len(bad)
    assert len(intake.aside) == len(bad)


NO_IDS = (
    "00000000 0000001",
    " " * 16,
    "0x00000000000001",
    "1_00000000000000",
    "\uff10" * 15 + "\uff11",
    "\xe9" * 16,
    7,
)


@pytest.mark.parametrize("odd", NO_IDS)
def test_an_id_of_anything_but_digits_is_none(tmp_path, odd):
    spans = Spans(9)
    bad = spans.add("bad", 1, 2) | {"spanId": odd}
    orphan = spans.add("orphan", 1, 2) | {"parentSpanId": odd}
    (tmp_path / "a.jsonl").write_text(line([bad, orphan]), encoding="utf-8")
    intake, found = read(tmp_path)
    assert [(span.name, span.parent_id) for span in found] == [("orphan", "")]
    assert intake.spans_refused_n == 1


BEGIN = b'{"resourceSpans": 1'
HOSTILE = {
    "spaces on a torn document's next line": BEGIN + b"\n" + b" " * 50_000,
    "spaces behind a torn document": BEGIN + b" " * 50_000,
    "spaces behind brackets": BEGIN + (b"[" + b" " * 3000) * 60,
    "torn documents without lines": BEGIN * 50_000,
}


@pytest.mark.parametrize("form", HOSTILE)
def test_what_is_torn_takes_time_by_its_length(form):
    begun_s = time.process_time()
    found = list(documents_on(HOSTILE[form].splitlines(keepends=True)))
    assert found
    # Milliseconds. What grows with the square of the length took from ten seconds to days.
    assert time.process_time() - begun_s < 3


def test_what_is_torn_takes_no_memory_for_each_of_its_characters():
    torn = b'{"' + b"a" * 2**22
    tracemalloc.start()
    found = list(documents_on([torn]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [type(one) for one in found] == [Torn]
    assert peak < 32 * len(torn)


@pytest.mark.parametrize("packed", [
    framed(bytes(cramjam.zstd.compress(b" " * (DOCUMENT_BYTES_MAX + 1)))),
    gzip.compress(as_protobuf(document()) + bytes(DOCUMENT_BYTES_MAX), 1),
], ids=["zstd in a frame", "protobuf in gzip"])  # fmt: skip
def test_a_message_that_unpacks_beyond_the_bound_is_torn(tmp_path, packed):
    (tmp_path / "large").write_bytes(packed)
    (tmp_path / "whole.jsonl").write_bytes(text(document()))
    found = analyse(tmp_path)
    assert len(found.changes) == 1
    assert ["more than 67,108,864 bytes" in one.reason for one in found.intake.aside] == [True]


def nested(depth: int, innermost: Any, around: Callable[[Any], Any]) -> Any:
    for _ in range(depth):
        innermost = around(innermost)
    return innermost


DEEP = 450
"""Deeper than a function can call itself for each level, and not too deep for readers of JSON."""


@pytest.mark.parametrize("around", [
    lambda value: [value],
    lambda value: {"arrayValue": {"values": [value]}},
    lambda value: {"kvlistValue": {"values": [{"key": "k", "value": value}]}},
])  # fmt: skip
def test_a_value_that_is_too_deep_costs_itself(tmp_path, around):
    one = Spans(1).add("x", 1, 2, good="y")
    one["attributes"].append({"key": "deep", "value": nested(DEEP // 3, {"stringValue": "z"}, around)})
    one["attributes"].append({"key": "deeper", "value": nested(DEEP, {"stringValue": "z"}, lambda value: [value])})
    (tmp_path / "a.jsonl").write_text(line([one]), encoding="utf-8")
    _, (span,) = read(tmp_path)
    assert span.attributes["good"] == "y"


def test_documents_and_spans_that_are_too_deep_cost_themselves(tmp_path):
    deep = nested(DEEP * 2, 7, lambda value: [value])
    lines = [
        json.dumps(nested(DEEP * 2, document(), lambda value: [value])),
        line([deep, Spans(9).add("x", 1, 2) | {"name": deep}, Spans(9).add("good", 1, 2)]),
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    intake, found = read(tmp_path)
    assert len(found) == len(spans_in(document())) + 1
    assert intake.spans_refused_n == 2


@pytest.mark.parametrize("moment", ["9" * 5_000, "-" + "9" * 5_000, float("inf"), float("nan"), 1e300])
def test_a_time_that_no_clock_shows_costs_its_span(tmp_path, moment):
    spans = Spans(9)
    bad = spans.add("bad", 1, 2) | {"startTimeUnixNano": moment}
    (tmp_path / "a.jsonl").write_text(line([bad, spans.add("good", 1, 2)]), encoding="utf-8")
    intake, found = read(tmp_path)
    assert [span.name for span in found] == ["good"]
    assert intake.spans_refused_n == 1


def test_foreign_and_empty_files_end_nothing_and_are_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"resourceMetrics": []}\n7\n"x"\n', encoding="utf-8")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "zeros").write_bytes(bytes(100))
    (tmp_path / "deep").write_text("[" * 100_000, encoding="utf-8")
    (tmp_path / "good.jsonl").write_bytes(text(document()))
    found = analyse(tmp_path)
    assert len(found.changes) == 1
    assert {"metrics.jsonl", "picture.png", "deep", "zeros"} <= set(found.intake.files_empty)


def test_a_folder_that_is_not_there_or_has_no_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no "):
        analyse(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="no file"):
        analyse(tmp_path)
