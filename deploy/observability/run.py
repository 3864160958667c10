"""Watch a cluster of `regnum up` on this machine: Prometheus with the alert rules, and a collector of traces.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317 regnum up       # without it spans go to files, as ever
    python deploy/observability/run.py [--data-dir DIR] [--out DIR] [--traces-backend HOST:PORT] [--zipkin URL]

Programs that are not on the machine are named and left out (Prometheus: Debian's package; the collector:
otelcol-contrib). `regnum status` says every few seconds which processes there are, so that what is started later is
scraped as well. Ends with Ctrl-C, and what it started with it.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
BACKEND: Final = HERE.parent / "k8s" / "components" / "trace-backend" / "backend.config.yaml"
LOOK_S: Final = 5.0
"""Pause between two looks for processes."""
WHERE: Final = {
    "prometheus": "http://127.0.0.1:9090",
    "otelcol-contrib": "OTLP on 127.0.0.1:4317 (gRPC) and 4318 (HTTP); files in traces/ below --out",
}
"""Where each program answers, as it is printed."""


def targets(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What Prometheus reads of a status: each process with the name of its job."""
    return [
        {"targets": [one["addresses"]["metrics"]], "labels": {"job": f"regnum-{one['name'].rpartition('-')[0]}"}}
        for one in status.get("processes", ())
        if one.get("addresses", {}).get("metrics")
    ]


def collector_command(*, backend: str, zipkin: str) -> list[str]:
    """How the collector is started: a file for each place where spans go."""
    files = [HERE / "collector.yaml", *([BACKEND] if backend else []), *([HERE / "zipkin.yaml"] if zipkin else [])]
    return ["otelcol-contrib", *(f"--config={file}" for file in files)]


def prometheus_command(out: Path) -> list[str]:
    """How Prometheus is started; writes its configuration."""
    told = (HERE / "prometheus.yaml").read_text(encoding="utf-8")
    told = told.replace("../prometheus/alerts.yaml", str(HERE.parent / "prometheus" / "alerts.yaml"))
    (out / "prometheus.yaml").write_text(told.replace("TARGETS", str(out / "targets.json")), encoding="utf-8")
    return [
        "prometheus",
        f"--config.file={out / 'prometheus.yaml'}",
        f"--storage.tsdb.path={out / 'prometheus'}",
        "--web.listen-address=127.0.0.1:9090",
        "--enable-feature=exemplar-storage",
        "--log.level=warn",
    ]


def look(data_dir: str | None, out: Path) -> int:
    """Write down which processes there are; how many."""
    command = ["regnum", "status", "-o", "json", *(["--data-dir", data_dir] if data_dir else [])]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    found = targets(json.loads(asked.stdout)) if asked.stdout.strip() else []
    fresh = out / "targets.new"
    fresh.write_text(json.dumps(found), encoding="utf-8")
    # (Prometheus reads it at any moment.)
    fresh.rename(out / "targets.json")
    return len(found)


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description="Prometheus and a collector of traces for a cluster of `regnum up`.")
    parser.add_argument("--data-dir", help="folder of the cluster, as of regnum up")
    parser.add_argument("--out", type=Path, default=Path("observability"), help="folder for data and trace files")
    parser.add_argument("--traces-backend", default="", help="HOST:PORT of Jaeger or Tempo (OTLP over gRPC)")
    parser.add_argument("--zipkin", default="", help="URL of Zipkin, http://HOST:9411")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run until a signal, or until one of the programs ends; the exit status."""
    told = parsed(arguments)
    out: Path = told.out.resolve()
    traces = out / "traces"
    traces.mkdir(parents=True, exist_ok=True)
    commands = {
        "prometheus": prometheus_command(out),
        "otelcol-contrib": collector_command(backend=told.traces_backend, zipkin=told.zipkin),
    }
    for missing in [name for name in commands if shutil.which(name) is None]:
        del commands[missing]
        print(f"no {missing} on this machine: left out")  # noqa: T201
    print(f"processes of the cluster: {look(told.data_dir, out)}")  # noqa: T201
    environment = {
        **os.environ,
        "TRACES_DIR": str(traces),
        "TRACES_BACKEND": told.traces_backend,
        "ZIPKIN": told.zipkin,
    }
    running = [subprocess.Popen(command, env=environment) for command in commands.values()]  # noqa: S603
    for name in commands:
        print(f"{name}: {WHERE[name]}", flush=True)  # noqa: T201
    try:
        while running and all(one.poll() is None for one in running):
            time.sleep(LOOK_S)
            look(told.data_dir, out)
    except KeyboardInterrupt:
        return 0
    finally:
        for one in running:
            one.send_signal(signal.SIGINT)
        for one in running:
            one.wait()
    return 1


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        # (A shell has what runs in its background ignore the first; the second would leave what was started.)
        signal.signal(number, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
