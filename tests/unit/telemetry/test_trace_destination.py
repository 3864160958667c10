"""Where spans go: settings and OpenTelemetry's own variables."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from regnum_telemetry import setup, tracing
from regnum_telemetry.setup import Destination, choose


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
        ({"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}, True, Destination.NOWHERE),
    ],
)
def test_the_destination(environ: dict[str, str], has_folder: bool, expected: Destination) -> None:
    assert choose(environ, has_folder=has_folder) is expected


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
    told = {item["key"]: item["value"]["stringValue"] for item in resource["resource"]["attributes"]}
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
