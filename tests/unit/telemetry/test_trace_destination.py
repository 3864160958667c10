"""Where spans go: settings and OpenTelemetry's own variables."""

import http.server
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from regnum_client.traces import start_traces as client_traces
from regnum_service.settings import ServiceSettings
from regnum_service.traces import start_traces
from regnum_telemetry import setup, tracing
from regnum_telemetry.setup import Destination, choose
from regnum_testing.waiting import DEADLINE_S

HTTP = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}


@pytest.mark.parametrize(
    ("environ", "has_folder", "expected"),
    [
        ({}, False, Destination.NOWHERE),
        ({}, True, Destination.FILE),
        ({"OTEL_TRACES_EXPORTER": "none"}, True, Destination.NOWHERE),
        ({"OTEL_TRACES_EXPORTER": " OTLP "}, True, Destination.COLLECTOR),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, False, Destination.COLLECTOR),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, True, Destination.COLLECTOR),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4317"}, True, Destination.COLLECTOR),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, True, Destination.FILE),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_TRACES_EXPORTER": "none"}, True, Destination.NOWHERE),
        ({**HTTP, "OTEL_TRACES_EXPORTER": "otlp"}, True, Destination.COLLECTOR_HTTP),
        ({**HTTP, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True, Destination.COLLECTOR_HTTP),
        ({**HTTP, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/x"}, True, Destination.COLLECTOR_HTTP),
        (
            {**HTTP, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc", "OTEL_TRACES_EXPORTER": "otlp"},
            True,
            Destination.COLLECTOR,
        ),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "", "OTEL_TRACES_EXPORTER": "otlp"}, True, Destination.COLLECTOR),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, True, Destination.FILE),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}, True, Destination.NOWHERE),
    ],
)
def test_the_destination(environ: dict[str, str], has_folder: bool, expected: Destination) -> None:
    assert choose(environ, has_folder=has_folder) is expected


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            "_PROTOCOL is 'http/json'; there are grpc and http/protobuf",
        ),
        ({**HTTP, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "udp"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is 'udp'"),
        ({**HTTP, "OTEL_EXPORTER_OTLP_ENDPOINT": "c:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT is 'c:4318'; over HTTP"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER is 'zipkin'; there are otlp and none"),
    ],
)
def test_what_means_nothing_is_refused_with_words(
    environ: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"OTEL_TRACES_EXPORTER": "otlp", **environ}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        start_traces("regnum-broker", 1, ServiceSettings(coordination="etcd://h"))
    assert (ended.value.code, says in capsys.readouterr().err) == (2, True)


def test_an_application_goes_on_without_spans(caplog: pytest.LogCaptureFixture) -> None:
    client_traces("app", {"OTEL_TRACES_EXPORTER": "zipkin"})
    assert "no spans are recorded: OTEL_TRACES_EXPORTER is 'zipkin'" in caplog.text


@pytest.mark.parametrize(
    ("variables", "path"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "{url}"}, "/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "{url}/below/"}, "/below/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "{url}/mine", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, "/mine"),
    ],
)
def test_spans_go_over_http(variables: dict[str, str], path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: queue.Queue[tuple[str, str | None, bytes]] = queue.Queue()

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            taken.put((self.path, self.headers["content-type"], body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        for name, value in {**HTTP, **variables}.items():
            monkeypatch.setenv(name, value.format(url=f"http://127.0.0.1:{server.server_port}"))
        before = tracing.tracer()
        telemetry = setup.start("regnum-broker", "7", traces_dir=None)
        try:
            tracing.tracer().start("span").end()
            told, kind, body = taken.get(timeout=DEADLINE_S)
        finally:
            telemetry.close()
            tracing.use(before)
            server.shutdown()
    assert (told, kind) == (path, "application/x-protobuf")
    assert b"regnum-broker" in body


@pytest.mark.parametrize(
    ("service", "file"),
    [("regnum-broker", "regnum-broker-7.jsonl"), ("../worker:1", "~2E.~2Fworker~3A1-7.jsonl")],
)
def test_a_process_names_itself_in_its_file(service: str, file: str, tmp_path: Path) -> None:
    before = tracing.tracer()
    telemetry = setup.start(service, "7", traces_dir=tmp_path, environ={})
    try:
        tracing.tracer().start("span").end()
    finally:
        telemetry.close()
        tracing.use(before)
    (line,) = (tmp_path / file).read_text("utf-8").splitlines()
    (resource,) = json.loads(line)["resourceSpans"]
    told = {item["key"]: item["value"].get("stringValue") for item in resource["resource"]["attributes"]}
    assert (told["service.name"], told["service.instance.id"]) == (service, "7")
    assert (telemetry.exported, telemetry.dropped) == (1, 0)


def test_spans_of_a_process_that_is_killed_are_in_its_file(tmp_path: Path) -> None:
    """Nothing is left to the end of the process."""
    program = (
        "import os, pathlib, signal, sys, time\n"
        "from regnum_telemetry import setup, tracing\n"
        "telemetry = setup.start('victim', '1', traces_dir=pathlib.Path(sys.argv[1]), environ={})\n"
        "tracing.tracer().start('last words').end()\n"
        "deadline = time.monotonic() + 50.0\n"
        "while not telemetry.exported and time.monotonic() < deadline: time.sleep(0.005)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, env=dict(os.environ), timeout=60)
    assert done.returncode == -9
    assert b"last words" in (tmp_path / "victim-1.jsonl").read_bytes()


def test_the_sdk_and_the_command_do_not_import_opentelemetry() -> None:
    program = (
        "import sys, regnum_client, regnum_client.command; print([m for m in sys.modules if 'opentelemetry' in m])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"
