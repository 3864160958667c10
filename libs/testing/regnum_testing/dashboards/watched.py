"""What watches clusters of one machine, as deploy/observability has it, on ports of its own."""

import importlib.util
import json
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from subprocess import Popen
from types import ModuleType
from typing import Final

from regnum_local.cluster import LocalCluster

from regnum_testing.ports import unused_port

FOLDER: Final = Path(__file__).resolve().parents[4] / "deploy" / "observability"


@cache
def run_module() -> ModuleType:
    """``deploy/observability/run.py``."""
    spec = importlib.util.spec_from_file_location("observability_run", FOLDER / "run.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def prometheus(clusters: Iterable[LocalCluster], folder: Path) -> Iterator[str]:
    """A Prometheus that scrapes all processes of some clusters; its URL."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"name": row.name, "addresses": {kind: str(place) for kind, place in row.addresses.items()}}
        for cluster in clusters
        for row in cluster.status()
    ]
    (folder / "targets.json").write_text(json.dumps(run_module().targets({"processes": rows})), encoding="utf-8")
    address = f"127.0.0.1:{unused_port()}"
    command = [
        f"--web.listen-address={address}" if option.startswith("--web.listen-address") else option
        for option in run_module().prometheus_command(folder)
    ]
    with _running(command, folder / "prometheus.log"):
        yield f"http://{address}"


@contextmanager
def collector(folder: Path, *, backend: str, zipkin: str) -> Iterator[str]:
    """A collector of spans: files below a folder, and what is named besides; its address for OTLP over gRPC."""
    (folder / "traces").mkdir(parents=True)
    address = f"127.0.0.1:{unused_port()}"
    places = folder / "places.yaml"
    http = f"127.0.0.1:{unused_port()}"
    places.write_text(
        f"receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '{address}'}}, http: {{endpoint: '{http}'}}}}}}}}\n",
        encoding="utf-8",
    )
    about = {"TRACES_DIR": str(folder / "traces"), "TRACES_BACKEND": backend, "ZIPKIN": zipkin}
    command = [*run_module().collector_command(backend=backend, zipkin=zipkin), f"--config={places}"]
    with _running(command, folder / "collector.log", **about):
        yield address


@contextmanager
def _running(command: Sequence[str], log: Path, **environment: str) -> Iterator[None]:
    with log.open("wb") as written:
        process = Popen(command, env={**os.environ, **environment}, stdout=written, stderr=written)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
