"""What watches a cluster of one machine: processes by their status, files of the collector that fit one another."""

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[3] / "deploy" / "observability"
PROMTOOL = shutil.which("promtool")


@pytest.fixture(scope="module")
def run() -> ModuleType:
    spec = importlib.util.spec_from_file_location("observability_run", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_processes_that_show_metrics_are_scraped_under_the_names_of_their_services(run: ModuleType) -> None:
    status = {
        "processes": [
            {"name": "store", "addresses": {"client": "127.0.0.1:1"}},
            {"name": "broker-12", "addresses": {"client": "127.0.0.1:2", "metrics": "127.0.0.1:3"}},
            {"name": "election-1", "addresses": {"metrics": "127.0.0.1:4"}},
            {"name": "quota-1", "addresses": {}},
        ]
    }
    assert run.targets(status) == [
        {"targets": ["127.0.0.1:3"], "labels": {"job": "regnum-broker"}},
        {"targets": ["127.0.0.1:4"], "labels": {"job": "regnum-election"}},
    ]
    assert run.targets({}) == []


@pytest.mark.parametrize(("backend", "zipkin"), [("", ""), ("h:4317", ""), ("", "http://h:9411"), ("h:1", "http://h")])
def test_files_of_the_collector_fit_one_another(run: ModuleType, backend: str, zipkin: str) -> None:
    program, *options = run.collector_command(backend=backend, zipkin=zipkin)
    assert program == "otelcol-contrib"
    files: list[dict[str, Any]] = [
        yaml.safe_load(Path(option.removeprefix("--config=")).read_text(encoding="utf-8")) for option in options
    ]
    assert len(files) == 1 + bool(backend) + bool(zipkin)
    known = {
        kind: {name for file in files for name in file.get(kind, ())}
        for kind in ("receivers", "processors", "exporters")
    }
    pipelines = [one for file in files for one in file["service"]["pipelines"].items()]
    assert len(dict(pipelines)) == len(pipelines) == len(files)
    for _, pipeline in pipelines:
        assert all(set(pipeline[kind]) <= known[kind] for kind in known)


def test_what_is_not_on_the_machine_is_named(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    regnum = tmp_path / "regnum"
    regnum.write_text("#!/bin/sh\necho '{}'\n", encoding="utf-8")
    regnum.chmod(0o755)
    assert run.main(["--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().out
    assert "no prometheus on this machine" in said
    assert "no otelcol-contrib on this machine" in said
    assert (tmp_path / "out" / "targets.json").read_text(encoding="utf-8") == "[]"


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool here (Debian: apt-get install prometheus)")
def test_prometheus_takes_its_configuration(run: ModuleType, tmp_path: Path) -> None:
    assert PROMTOOL is not None
    run.prometheus_command(tmp_path)
    (tmp_path / "targets.json").write_text("[]", encoding="utf-8")
    ran = subprocess.run(
        [PROMTOOL, "check", "config", str(tmp_path / "prometheus.yaml")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
