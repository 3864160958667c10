"""The overlays of deploy/k8s and the combinations of components that make sense, and what tests read out of them."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

K8S: Final = Path(__file__).resolve().parents[4] / "deploy" / "k8s"
"""The manifests."""
SETTINGS: Final = {
    "election": ("regnum_election.settings", "ElectionSettings"),
    "quota": ("regnum_quota.settings", "QuotaSettings"),
    "metadata": ("regnum_metadata.settings", "MetadataSettings"),
    "broker": ("regnum_broker.settings", "BrokerSettings"),
}
"""Where each service's settings are."""
CLUSTER: Final = {
    "coordination": "etcd://etcd-0.store:2379,etcd-1.store:2379/regnum?user=regnum&password_file=/etc/regnum/store/password",
    "storageClass": "fast",
    "zoneA": "eu-1a",
    "zoneB": "eu-1b",
    "zoneC": "eu-1c",
    "tracesBucket": "traces-of-ours",
    "tracesRegion": "eu-west-1",
    "tracesEndpoint": "https://s3.eu-west-1.amazonaws.com",
    "tracesBackend": "tempo.monitoring:4317",
    "failoversImage": "registry.example/regnum-failovers:0.2.0",
}
"""What the ConfigMap regnum-cluster of an overlay says."""
COMBINATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "base": (),
    "overlays/dev": (),
    "overlays/production": (),
    "overlays/dev external": ("external-store",),
    "overlays/production external": ("external-store", "store-secret", "required-spread", "storage-class"),
    "overlays/production zookeeper": ("zookeeper", "required-spread", "storage-class"),
    "overlays/production autoscaling": ("autoscaling",),
    "overlays/production zones": ("required-spread", "zones", "storage-class"),
    "overlays/dev traces": ("traces", "failovers"),
    "overlays/dev bucket": ("traces", "failovers", "object-store"),
    "overlays/dev operator": ("traces", "failovers", "trace-backend", "spark-operator"),
    "overlays/production bucket operator": (
        *("traces", "failovers", "object-store", "trace-backend", "spark-operator", "storage-class"),
    ),
    "overlays/tls": (),
    "overlays/production everything": (
        *(
            "cert-manager",
            "kafka",
            "console",
            "traces",
            "failovers",
            "prometheus-operator",
            "grafana",
            "zones",
            "storage-class",
        ),
    ),
    "overlays/dev closed": ("tls", "access", "kafka", "console"),
    "overlays/production zones first": ("zones", "zookeeper", "required-spread", "storage-class"),
}
"""Folder and what makes the name unique: components, in their order."""
SCALED_MAX: Final = 6
"""Pods of what is scaled by load, at most: such a workload says no number itself."""
WORKLOADS: Final = frozenset({"StatefulSet", "Deployment", "CronJob", "ScheduledSparkApplication"})
"""Kinds that have Pods."""


def write_overlay(at: Path, name: str) -> Path:
    """The overlay of a combination, as an operator would write it; the folder itself where it has no components."""
    folder, components = K8S / name.partition(" ")[0], COMBINATIONS[name]
    if not components:
        return folder
    told = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(folder, at)],
        "components": [os.path.relpath(K8S / "components" / one, at) for one in components],
        "configMapGenerator": [
            {
                "name": "regnum-cluster",
                "literals": [f"{key}={value}" for key, value in CLUSTER.items()],
                "options": {
                    "disableNameSuffixHash": True,
                    "annotations": {"config.kubernetes.io/local-config": "true"},
                },
            }
        ],
    }
    (at / "kustomization.yaml").write_text(yaml.safe_dump(told), encoding="utf-8")
    return at


def of(objects: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    """The objects of these kinds."""
    return [item for item in objects if item["kind"] in kinds]


def component(item: Mapping[str, Any]) -> str:
    """What an object belongs to: `broker`, `etcd` and the like."""
    name: str = item["metadata"]["labels"]["app.kubernetes.io/component"]
    return name


def template(item: Mapping[str, Any]) -> dict[str, Any]:
    """The template of the Pods of a workload."""
    above = {"CronJob": ("jobTemplate", "spec"), "ScheduledSparkApplication": ("template", "driver")}
    spec = item["spec"]
    for part in above.get(item["kind"], ()):
        spec = spec[part]
    found: dict[str, Any] = spec["template"]
    return found


def containers(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All containers of the Pods of a workload."""
    pod = template(item)["spec"]
    return [*pod.get("initContainers", ()), *pod["containers"]]


def services(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The StatefulSets of our own services."""
    return [item for item in of(objects, "StatefulSet") if component(item) in SETTINGS]


def pods(item: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Names and indexes of the Pods of a StatefulSet."""
    start = item["spec"].get("ordinals", {}).get("start", 0)
    indexes = range(start, start + item["spec"].get("replicas", SCALED_MAX))
    return [(f"{item['metadata']['name']}-{index}", index) for index in indexes]


def environment(objects: list[dict[str, Any]], item: Mapping[str, Any], pod: str, index: int) -> dict[str, str]:
    """The variables of a Pod with one container, as Kubernetes fills them in: by those that stand before them only."""
    fields = {
        "metadata.name": pod,
        "metadata.namespace": "regnum",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(index),
    }
    (container,) = template(item)["spec"]["containers"]
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        (shared,) = [
            one for one in of(objects, "ConfigMap") if one["metadata"]["name"] == source["configMapRef"]["name"]
        ]
        found.update(shared["data"])
    for variable in container.get("env", ()):
        if "value" in variable:
            found[variable["name"]] = re.sub(
                r"\$\((\w+)\)", lambda use: found.get(use[1], use[0]), str(variable["value"])
            )
        else:
            found[variable["name"]] = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
    return found


def has(name: str, one: str) -> bool:
    """Whether a combination has a component, by itself or in its folder."""
    closed = name.startswith(("overlays/production", "overlays/tls"))
    return one in COMBINATIONS[name] or (closed and one in {"tls", "etcd-tls", "access"})


def claims(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every claim of a volume, also those that StatefulSets make."""
    for item in of(objects, "StatefulSet"):
        yield from item["spec"].get("volumeClaimTemplates", ())
    yield from of(objects, "PersistentVolumeClaim")


def cpus(text: str) -> float:
    """A quantity of CPUs as a number."""
    return int(text[:-1]) / 1000 if text.endswith("m") else float(text)


def claimed_cpus(objects: list[dict[str, Any]]) -> float:
    """What all Pods claim together, a job that runs now and then among them."""
    return sum(
        int(item["spec"].get("replicas", 1))
        * sum(cpus(one["resources"]["requests"]["cpu"]) for one in containers(item))
        for item in of(objects, *WORKLOADS)
    )
