"""The lines of trace files: OTLP/JSON as the collector's file exporter writes it."""

import base64
import json
import resource
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from regnum_telemetry import json_lines
from regnum_telemetry.otel import OtelTracer
from regnum_telemetry.tracing import FILES_MAX_BYTES, Kind


def _spans() -> tuple[ReadableSpan, ...]:
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = OtelTracer(provider)
    root = tracer.start("root", at_unix_nano=1_800_000_000_000_000_001, attributes={"big": 2**53 + 1, "yes": True})
    child = tracer.start("child", parent=root.context, kind=Kind.SERVER, links=[root.context], attributes={"text": "t"})
    child.fail("UNAVAILABLE")
    child.end()
    root.end(1_800_000_000_500_000_002)
    return memory.get_finished_spans()


def _lines(data: bytes) -> list[dict[str, Any]]:
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def test_ids_are_hex_everywhere_enums_are_integers_and_large_integers_are_text() -> None:
    spans = _spans()
    (line,) = _lines(json_lines.encode(spans))
    assert list(line) == ["resourceSpans"]
    (resource,) = line["resourceSpans"]
    made = {span["name"]: span for scope in resource["scopeSpans"] for span in scope["spans"]}
    root, child = made["root"], made["child"]
    by_name = {span.name: span for span in spans}
    assert root["traceId"] == f"{by_name['root'].context.trace_id:032x}"  # type: ignore[union-attr]
    assert root["spanId"] == f"{by_name['root'].context.span_id:016x}"  # type: ignore[union-attr]
    assert "parentSpanId" not in root
    assert child["traceId"] == root["traceId"]
    assert child["parentSpanId"] == root["spanId"]
    (link,) = child["links"]
    assert (link["traceId"], link["spanId"]) == (root["traceId"], root["spanId"])
    assert root["startTimeUnixNano"] == "1800000000000000001"
    assert root["endTimeUnixNano"] == "1800000000500000002"
    attributes = {item["key"]: item["value"] for item in root["attributes"]}
    assert attributes == {"big": {"intValue": str(2**53 + 1)}, "yes": {"boolValue": True}}
    assert (root["kind"], child["kind"]) == (1, 2)
    assert child["status"] == {"code": 2}
    assert root["status"] == {}


def _as_opentelemetry(spans: Any) -> Any:
    """By OpenTelemetry's own encoder and protobuf's JSON, with ids as OTLP has them."""

    def hexed(item: Any) -> Any:
        if isinstance(item, list):
            return [hexed(one) for one in item]
        if not isinstance(item, dict):
            return item
        ids = {"traceId", "spanId", "parentSpanId"}
        return {key: base64.b64decode(one).hex() if key in ids else hexed(one) for key, one in item.items()}

    return hexed(MessageToDict(encode_spans(spans), use_integers_for_enums=True))


def test_a_line_says_what_opentelemetrys_own_encoder_says() -> None:
    memory = InMemorySpanExporter()
    provider = TracerProvider(
        resource=Resource({"service.name": "app", "n": 3, "args": ["a", "b"], "share": 0.5}),
        span_limits=SpanLimits(max_span_attributes=4, max_links=2),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = OtelTracer(provider)
    root = tracer.start('root \u20ac "quoted"', attributes={"x": 1.5, "inf": float("inf"), "no": False, "t": "\u20ac"})
    for kind in Kind:
        links = [root.context] * 3
        more = {str(number): number for number in range(-3, 3)}
        span = tracer.start(kind.value, parent=root.context, kind=kind, links=links, attributes=more)
        span.fail("WRONG")
        span.end()
    root.end()
    spans = memory.get_finished_spans()
    (line,) = _lines(json_lines.encode(spans))
    assert line == _as_opentelemetry(spans)
    assert all(one["droppedAttributesCount"] for one in line["resourceSpans"][0]["scopeSpans"][0]["spans"][:-1])


def test_each_batch_is_one_line_appended_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "traces" / "service-1.jsonl"
    path.parent.mkdir()
    path.write_bytes(b'{"resourceSpans":[]}\n')
    sink = json_lines.JsonLinesFile(path, bytes_max=FILES_MAX_BYTES)
    assert sink.export(_spans())
    assert sink.export(_spans())
    # Before it is closed: a process that is killed now leaves them behind.
    assert len(_lines(path.read_bytes())) == 3
    sink.close()


def test_a_folder_that_cannot_be_made_loses_the_spans_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    sink = json_lines.JsonLinesFile(tmp_path / "file" / "service-1.jsonl", bytes_max=FILES_MAX_BYTES)
    assert not sink.export(_spans())
    assert not sink.export(_spans())
    assert len(caplog.records) == 1
    sink.close()


def test_files_are_set_aside_and_all_of_them_together_stay_below_the_bound(tmp_path: Path) -> None:
    spans = _spans()
    line = len(json_lines.encode(spans))
    # Others of the same folder, whose names begin alike, stay.
    others = [tmp_path / name for name in ("s-1.jsonl.bak", "s-10.jsonl", "s-10.000001.jsonl", "s-1.x.jsonl")]
    for other in others:
        other.write_bytes(bytes(100 * line))
    bound = json_lines.PARTS * 3 * line
    names: set[str] = set()
    for _ in range(3):
        # The process is started anew, and goes on where it was.
        sink = json_lines.JsonLinesFile(tmp_path / "s-1.jsonl", bytes_max=bound)
        for _ in range(20):
            assert sink.export(spans)
            ours = sorted(set(tmp_path.iterdir()) - set(others))
            assert sum(file.stat().st_size for file in ours) <= bound
            names |= {file.name for file in ours}
        sink.close()
    assert [file.name for file in ours] == ["s-1.000017.jsonl", "s-1.000018.jsonl", "s-1.000019.jsonl", "s-1.jsonl"]
    assert all(len(_lines(file.read_bytes())) == 3 for file in ours)
    assert len(names) == 20
    assert all(other.stat().st_size == 100 * line for other in others)


def test_a_file_of_a_release_that_did_not_rotate_is_set_aside_and_goes_first(tmp_path: Path) -> None:
    spans = _spans()
    line = len(json_lines.encode(spans))
    (tmp_path / "s-1.jsonl").write_bytes(bytes(1000 * line))
    sink = json_lines.JsonLinesFile(tmp_path / "s-1.jsonl", bytes_max=40 * line)
    assert sink.export(spans)
    sink.close()
    assert [(file.name, file.stat().st_size) for file in tmp_path.iterdir()] == [("s-1.jsonl", line)]


@pytest.mark.parametrize("moved", [False, True])
def test_a_file_that_somebody_moves_or_removes_is_made_again(tmp_path: Path, moved: bool) -> None:
    path = tmp_path / "regnum-broker-1.jsonl"
    file, spans = json_lines.JsonLinesFile(path, bytes_max=FILES_MAX_BYTES), _spans()
    assert file.export(spans)
    if moved:
        path.rename(tmp_path / "kept")
    else:
        path.unlink()
    assert file.export(spans)
    assert file.export(spans)
    file.close()
    assert len(_lines(path.read_bytes())) == 2
    assert not moved or len(_lines((tmp_path / "kept").read_bytes())) == 1


def test_a_line_that_a_kill_tore_does_not_spoil_the_first_one_of_the_next_process(tmp_path: Path) -> None:
    path, torn = tmp_path / "regnum-broker-1.jsonl", b'{"resourceSpans":[{"reso'
    path.write_bytes(torn)
    file = json_lines.JsonLinesFile(path, bytes_max=FILES_MAX_BYTES)
    assert file.export(_spans())
    file.close()
    before, *lines = path.read_bytes().splitlines(keepends=True)
    assert before == torn + b"\n"
    assert len(_lines(b"".join(lines))) == 1


def test_a_line_that_found_room_for_its_beginning_alone_does_not_spoil_the_next(tmp_path: Path) -> None:
    """Files of this process may grow to a length, as if the disk had no more."""
    path = tmp_path / "traces.jsonl"
    sink = json_lines.JsonLinesFile(path, bytes_max=FILES_MAX_BYTES)
    spans = _spans()
    assert sink.export(spans)
    whole = path.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 100, before[1]))
    try:
        assert not sink.export(spans)
        assert not sink.export(spans)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.stat().st_size == whole + 100
    assert sink.export(spans)
    sink.close()
    first, torn, last = path.read_bytes().splitlines()
    assert json.loads(last) == json.loads(first)
    assert len(torn) == 100
