"""The components for traces, Prometheus and Grafana fit the services, and one another."""

import json
from typing import Any, Final

import yaml
from regnum_telemetry.scraping import PATH
from regnum_telemetry.setup import Destination, choose
from regnum_testing import prometheus_rule
from regnum_testing.dashboards.__main__ import files
from regnum_testing.kustomize.overlays import (
    CLUSTER,
    component,
    containers,
    environment,
    has,
    of,
    pods,
    services,
    template,
)

PVC: Final = "PersistentVolumeClaim"


def test_spans_go_where_the_collector_listens_and_writes_what_the_job_reads(
    objects: list[dict[str, Any]], name: str
) -> None:
    shared = {item["metadata"]["name"]: item["data"] for item in of(objects, "ConfigMap")}
    if not has(name, "traces"):
        assert choose(shared["regnum"], has_folder=False) is Destination.NOWHERE
        return
    assert choose(shared["regnum"], has_folder=False) is Destination.COLLECTOR
    (collector,) = [item for item in of(objects, "Deployment") if component(item) == "collector"]
    (container,) = containers(collector)
    told = yaml.safe_load(shared["regnum-collector"]["collector.config.yaml"])
    (service,) = [item for item in of(objects, "Service") if component(item) == "collector"]
    (port,) = service["spec"]["ports"]
    endpoint = f"http://{service['metadata']['name']}:{port['port']}"
    assert shared["regnum"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == endpoint
    assert told["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] == f"0.0.0.0:{port['targetPort']}"
    probed = {container[kind]["httpGet"]["port"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {f"0.0.0.0:{one}" for one in probed} == {told["extensions"]["health_check"]["endpoint"]}
    first, *more = container["args"]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert first == "--config=/etc/collector/collector.config.yaml"
    assert len(more) == has(name, "trace-backend")
    assert all(arg.removeprefix("--config=").rpartition("/")[0] in mounted for arg in container["args"])
    if not has(name, "object-store"):
        # Retention: what the rotation leaves fits on the volume, with room; the job reads names that end so.
        file = told["exporters"]["file"]
        assert file["path"].endswith(".jsonl")
        kept_mb = file["rotation"]["max_megabytes"] * (file["rotation"]["max_backups"] + 1)
        size = {item["metadata"]["name"]: item["spec"]["resources"]["requests"]["storage"] for item in of(objects, PVC)}
        assert kept_mb <= 0.8 * 1024 * int(size["regnum-traces"].removesuffix("Gi"))
    assert collector["spec"]["strategy"] == {"type": "Recreate"}
    pipelines = told["service"]["pipelines"]
    assert set(pipelines) == {"traces"}
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipelines["traces"][kind]) == set(told[kind])


def test_spans_go_on_to_a_back_end_by_a_pipeline_of_their_own(objects: list[dict[str, Any]], name: str) -> None:
    if not has(name, "trace-backend"):
        return
    shared = {item["metadata"]["name"]: item["data"] for item in of(objects, "ConfigMap")}
    first = yaml.safe_load(shared["regnum-collector"]["collector.config.yaml"])
    second = yaml.safe_load(shared["regnum-collector-backend"]["backend.config.yaml"])
    # The collector puts maps of several files together, and takes a list from the last one that has it.
    ((pipeline, told),) = second["service"]["pipelines"].items()
    assert pipeline not in first["service"]["pipelines"]
    for kind in ("receivers", "processors", "exporters"):
        assert not set(first[kind]) & set(second.get(kind, {}))
        assert set(told[kind]) <= set(first[kind]) | set(second.get(kind, {}))
    (collector,) = [item for item in of(objects, "Deployment") if component(item) == "collector"]
    assert second["exporters"]["otlp/backend"]["endpoint"] == "${env:TRACES_BACKEND}"
    assert environment(objects, collector, "", 0)["TRACES_BACKEND"] == CLUSTER["tracesBackend"]


def test_prometheus_scrapes_all_services_by_the_name_of_their_port(objects: list[dict[str, Any]], name: str) -> None:
    if not has(name, "prometheus-operator"):
        assert of(objects, "PodMonitor", "PrometheusRule") == []
        return
    (monitor,) = of(objects, "PodMonitor")
    (term,) = monitor["spec"]["selector"]["matchExpressions"]
    for item in services(objects):
        assert term["operator"] == "In"
        assert template(item)["metadata"]["labels"][term["key"]] in term["values"]
        (container,) = containers(item)
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        (port,) = [one["containerPort"] for one in container["ports"] if one["name"] == endpoint["port"]]
        assert endpoint["path"] == PATH
        told = environment(objects, item, *pods(item)[0])
        assert told["REGNUM_METRICS_LISTEN"] == f"0.0.0.0:{port}"


def test_the_rules_of_the_operator_are_those_of_prometheus() -> None:
    assert prometheus_rule.main([]) == 0, "run `make proto`"
    made = yaml.safe_load(prometheus_rule.OBJECT.read_text(encoding="utf-8"))
    assert made["spec"] == yaml.safe_load(prometheus_rule.RULES.read_text(encoding="utf-8"))


def test_the_dashboards_are_those_of_grafana(objects: list[dict[str, Any]], name: str) -> None:
    found = [item for item in of(objects, "ConfigMap") if item["metadata"]["name"] == "regnum-dashboards"]
    assert len(found) == has(name, "grafana")
    for item in found:
        assert item["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert set(item["data"]) == {path.name for path in files()}
        assert all(json.loads(said)["panels"] for said in item["data"].values())
        # A ConfigMap holds 1 MiB.
        assert sum(map(len, item["data"].values())) < 900_000
