"""The nightly job over traces: from a volume or a bucket, as a CronJob or by the Spark operator."""

import copy
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from regnum_failover.__main__ import parser
from regnum_failover.objects.address import is_bucket, parse
from regnum_failover.objects.selection import SUFFIXES
from regnum_testing.kustomize.overlays import CLUSTER, K8S, component, containers, environment, has, of, template

ROOT: Final = K8S.parents[1]
JOBS: Final = ("CronJob", "ScheduledSparkApplication")
CREDENTIALS: Final = "/etc/regnum/object-store/credentials"


def job_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (job,) = of(objects, *JOBS)
    return job


def arguments(objects: list[dict[str, Any]], job: Mapping[str, Any]) -> list[str]:
    """What the job is given, variables filled in as Kubernetes does."""
    (container,) = containers(job)
    told = container["args"] if job["kind"] == "CronJob" else job["spec"]["template"]["arguments"]
    known = environment(objects, job, "", 0)
    return [re.sub(r"\$\((\w+)\)", lambda use: known[use[1]], one) for one in told]


def test_there_is_one_job_where_it_was_asked_for(objects: list[dict[str, Any]], name: str) -> None:
    kinds = [item["kind"] for item in of(objects, *JOBS)]
    assert kinds == ["ScheduledSparkApplication" if has(name, "spark-operator") else "CronJob"] * has(name, "failovers")


def test_the_job_understands_its_arguments_and_keeps_what_it_says(objects: list[dict[str, Any]], name: str) -> None:
    if not has(name, "failovers"):
        return
    told = parser().parse_args(arguments(objects, job_of(objects)))
    assert (told.keep_days, told.no_traces_is_fine) == (30, True)
    assert is_bucket(told.out) or told.each_run
    assert is_bucket(told.traces) == is_bucket(told.out) == has(name, "object-store")


def test_the_job_reads_the_volume_of_the_collector_on_its_node(objects: list[dict[str, Any]], name: str) -> None:
    if not has(name, "failovers"):
        return
    job = job_of(objects)
    (collector,) = [item for item in of(objects, "Deployment") if component(item) == "collector"]

    def claimed(item: Mapping[str, Any]) -> dict[str, str]:
        volumes = {one["name"]: one["persistentVolumeClaim"]["claimName"] for one in template(item)["spec"]["volumes"]
                   if "persistentVolumeClaim" in one}  # fmt: skip
        (container,) = containers(item)
        return {
            volumes[mount["name"]]: mount["mountPath"]
            for mount in container["volumeMounts"]
            if mount["name"] in volumes
        }

    there = {item["metadata"]["name"] for item in of(objects, "PersistentVolumeClaim")}
    if has(name, "object-store"):
        assert (claimed(collector), claimed(job), there) == ({}, {}, set())
        assert "affinity" not in template(job)["spec"]
        return
    assert claimed(collector).keys() == {"regnum-traces"}
    assert claimed(job) == {"regnum-traces": "/traces", "regnum-failovers": "/out"}
    assert there == {"regnum-traces", "regnum-failovers"}
    assert arguments(objects, job)[:2] == ["/traces", "/out"]
    near = template(job)["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["topologyKey"] for term in near] == ["kubernetes.io/hostname"]
    assert near[0]["labelSelector"]["matchLabels"].items() <= template(collector)["metadata"]["labels"].items()


def test_the_collector_writes_to_the_bucket_what_the_job_reads_there(objects: list[dict[str, Any]], name: str) -> None:
    if not has(name, "object-store"):
        return
    job = job_of(objects)
    (collector,) = [item for item in of(objects, "Deployment") if component(item) == "collector"]
    (shared,) = [item for item in of(objects, "ConfigMap") if item["metadata"]["name"] == "regnum-collector"]
    told = yaml.safe_load(shared["data"]["collector.config.yaml"])
    known = environment(objects, collector, "", 0)
    exporter = told["exporters"]["awss3"]
    uploader = {
        key: re.sub(r"\$\{env:(\w+)\}", lambda use: known[use[1]], value) if isinstance(value, str) else value
        for key, value in exporter["s3uploader"].items()
    }
    traces, out = map(parse, arguments(objects, job)[:2])
    assert (uploader["s3_bucket"], uploader["s3_prefix"]) == (traces.bucket, traces.prefix)
    assert traces.bucket == out.bucket == CLUSTER["tracesBucket"]
    # Neither reads what the other writes.
    assert not out.prefix.startswith(traces.prefix)
    assert not traces.prefix.startswith(out.prefix)
    assert (exporter["marshaler"], uploader["compression"]) == ("otlp_json", "gzip")
    assert ".json.gz" in SUFFIXES
    assert uploader["s3_force_path_style"]
    own = environment(objects, job, "", 0)
    for variables in (known, own):
        assert variables["AWS_REGION"] == CLUSTER["tracesRegion"]
        assert variables["AWS_ENDPOINT_URL_S3"] == CLUSTER["tracesEndpoint"]
        assert variables["AWS_SHARED_CREDENTIALS_FILE"] == CREDENTIALS
    assert (uploader["endpoint"], uploader["region"]) == (CLUSTER["tracesEndpoint"], CLUSTER["tracesRegion"])
    for item in (job, collector):
        (container,) = containers(item)
        (mount,) = [one for one in container["volumeMounts"] if CREDENTIALS.startswith(f"{one['mountPath']}/")]
        (volume,) = [one for one in template(item)["spec"]["volumes"] if one["name"] == mount["name"]]
        assert volume["secret"] == {"secretName": "regnum-object-store", "defaultMode": 0o440}


def test_only_with_a_bucket_may_they_call_anybody(objects: list[dict[str, Any]], name: str) -> None:
    if not has(name, "failovers"):
        return
    policies = {item["metadata"]["name"]: item["spec"] for item in of(objects, "NetworkPolicy")}
    for who in ("regnum-collector", "regnum-failovers"):
        assert "Egress" in policies[who]["policyTypes"]
        reaches = has(name, "object-store") or (who == "regnum-collector" and has(name, "trace-backend"))
        assert bool(policies[who].get("egress")) == reaches
    assert not policies["regnum-failovers"].get("ingress")


@cache
def crd() -> Draft202012Validator:
    """The operator's own schema, in which nothing may be that it does not name."""
    schema = yaml.safe_load((Path(__file__).parent / "crds" / "scheduledsparkapplication.yaml").read_text("utf-8"))
    return Draft202012Validator(_closed(schema))


def _closed(schema: Any) -> Any:
    """An API server prunes what a schema does not name, and kubectl refuses it."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        closed["additionalProperties"] = False
    return closed


def pod_errors(pod_template: Mapping[str, Any]) -> list[str]:
    """What Kubernetes would have against a template of Pods; the operator's schema says nothing of it."""
    version = ".".join(
        map(str, max(tuple(map(int, one.split("."))) for one in kubernetes_validate.utils.all_versions()))
    )
    definitions = Resource.from_contents(
        kubernetes_validate.utils.schema_contents(
            f"kubernetes-json-schema/v{version}-local-strict/_definitions.json", version
        )
    )
    registry: Registry[Any] = definitions @ Registry()
    schema = {"$ref": f"{definitions.id()}#/$defs/io.k8s.api.core.v1.PodTemplateSpec"}
    return [error.message for error in Draft202012Validator(schema, registry=registry).iter_errors(pod_template)]


def test_the_application_is_valid_by_the_schema_of_its_operator(objects: list[dict[str, Any]], name: str) -> None:
    if not has(name, "spark-operator"):
        return
    job = job_of(objects)
    assert [error.message for error in crd().iter_errors(job)] == []
    assert pod_errors(template(job)) == []


def wrong_applications(right: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    def changed(*path: str, to: Any) -> dict[str, Any]:
        result = copy.deepcopy(dict(right))
        place = result
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = to
        return result

    return [
        ("sparkVersionn", changed("spec", "template", "sparkVersionn", to="4")),
        ("spark.ui.enabled", changed("spec", "template", "sparkConf", to={"spark.ui.enabled": "x", "n": 1})),
        ("minimum", changed("spec", "template", "executor", "instances", to=0)),
        ("clusterr", changed("spec", "template", "mode", to="clusterr")),
        ("schedule", {**right, "spec": {"template": right["spec"]["template"]}}),
    ]


def test_the_schema_refuses_what_the_operator_would(objects: list[dict[str, Any]], name: str) -> None:
    if not has(name, "spark-operator"):
        return
    for words, wrong in wrong_applications(job_of(objects)):
        assert [error.message for error in crd().iter_errors(wrong)] != [], words
    pod = copy.deepcopy(template(job_of(objects)))
    pod["spec"]["containers"][0]["securityContext"]["runAsUsr"] = 1
    assert any("runAsUsr" in message for message in pod_errors(pod))


def test_the_driver_s_pod_is_the_job_s_and_starts_by_the_entry_point(objects: list[dict[str, Any]], name: str) -> None:
    if not has(name, "spark-operator"):
        return
    spec = job_of(objects)["spec"]["template"]
    pod = template(job_of(objects))
    (container,) = pod["spec"]["containers"]
    # By this name the operator, and Spark, know which container is the driver's; what it runs is theirs to say.
    assert container["name"] == "spark-kubernetes-driver"
    assert not {"command", "args"} & set(container)
    assert pod["spec"]["serviceAccountName"] == spec["driver"]["serviceAccount"]
    assert spec["image"] == CLUSTER["failoversImage"]
    (locked,) = re.findall(r"^pyspark==(\S+)", (ROOT / "requirements.lock").read_text("utf-8"), flags=re.MULTILINE)
    assert spec["sparkVersion"] == locked
    # No Pods but the driver's, so that its account needs no rights.
    assert spec["sparkConf"]["spark.kubernetes.driver.master"] == "local[*]"
    assert pod["spec"]["automountServiceAccountToken"] is False
    dockerfile = (ROOT / "deploy/docker/failovers.Dockerfile").read_text("utf-8")
    file = spec["mainApplicationFile"].removeprefix("local://")
    assert f"cp /src/analysis/failover/job.py {file.replace('/opt', '')}" in dockerfile
    assert json.loads(re.findall(r"^ENTRYPOINT (.*)$", dockerfile, flags=re.MULTILINE)[0]) == ["/opt/entrypoint.sh"]


def test_nothing_of_the_job_belongs_to_another_component(objects: list[dict[str, Any]], name: str) -> None:
    if has(name, "failovers"):
        assert component(job_of(objects)) == "failovers"


@pytest.mark.parametrize("missing", ["tracesBucket", "tracesRegion", "tracesEndpoint", "failoversImage"])
def test_every_value_that_readers_must_say_is_in_the_page(missing: str) -> None:
    assert f"`{missing}`" in (K8S / "README.md").read_text("utf-8")
