"""The manifests of deploy/k8s/base: valid, and about the services as they are."""

import importlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from regnum_coordination.drivers.etcd.address import EtcdAddress
from regnum_service.server import LIVENESS
from regnum_service.settings import ServiceSettings, load
from regnum_telemetry.scraping import PATH

BASE = Path(__file__).parents[3] / "deploy" / "k8s" / "base"
SETTINGS = {
    "election": ("regnum_election.settings", "ElectionSettings"),
    "quota": ("regnum_quota.settings", "QuotaSettings"),
    "metadata": ("regnum_metadata.settings", "MetadataSettings"),
    "broker": ("regnum_broker.settings", "BrokerSettings"),
}
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((BASE / "kustomization.yaml").read_text(encoding="utf-8"))


def objects() -> Iterator[dict[str, Any]]:
    for name in KUSTOMIZATION["resources"]:
        yield from yaml.load_all((BASE / name).read_text(encoding="utf-8"), yaml.CSafeLoader)


def of(kind: str) -> list[dict[str, Any]]:
    return [item for item in objects() if item["kind"] == kind]


def component(item: Mapping[str, Any]) -> str:
    return item["metadata"]["labels"]["app.kubernetes.io/component"]


WORKLOADS = {component(item): item for item in of("StatefulSet")}


def container(name: str) -> dict[str, Any]:
    (only,) = WORKLOADS[name]["spec"]["template"]["spec"]["containers"]
    return only


def ports(name: str) -> set[int]:
    return {port["containerPort"] for port in container(name)["ports"]}


def environment(name: str) -> dict[str, str]:
    """The variables of the container in the Pod with index 0, as Kubernetes fills them in."""
    fields = {
        "metadata.name": f"regnum-{name}-0",
        "metadata.namespace": "regnum",
        "metadata.labels['apps.kubernetes.io/pod-index']": "0",
    }
    (shared,) = of("ConfigMap")
    found: dict[str, str] = dict(shared["data"])
    for variable in container(name)["env"]:
        if "value" in variable:
            found[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda use: found[use[1]], variable["value"])
        else:
            found[variable["name"]] = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
    return found


def settings_class(name: str) -> type[ServiceSettings]:
    module, kind = SETTINGS[name]
    chosen: type[ServiceSettings] = getattr(importlib.import_module(module), kind)
    return chosen


@pytest.mark.parametrize("item", list(objects()), ids=lambda item: f"{item['kind']}-{item['metadata']['name']}")
def test_every_object_is_valid(item):
    kubernetes_validate.validate(item, "1.34", strict=True)
    assert item["metadata"]["labels"]["app.kubernetes.io/part-of"] == "regnum"


def test_every_file_is_in_the_kustomization():
    assert sorted(KUSTOMIZATION["resources"]) == sorted(
        path.name for path in BASE.glob("*.yaml") if path.name != "kustomization.yaml"
    )


def test_every_service_is_there():
    assert set(WORKLOADS) == {*SETTINGS, "etcd"}


UNSET = frozenset({"kafka_listen", "kafka_advertised"})
"""Not of the base: without TLS this listener is refused an address that other Pods reach."""


@pytest.mark.parametrize("name", list(SETTINGS))
def test_variables_are_settings_and_make_a_service_start(name, monkeypatch):
    told = {key: value for key, value in environment(name).items() if key.startswith("REGNUM_")}
    kind = settings_class(name)
    assert {key.removeprefix("REGNUM_").lower() for key in told} <= set(kind.model_fields)
    for key, value in told.items():
        monkeypatch.setenv(key, value)
    settings = load(kind, [])
    for field in kind.model_fields:
        if field.endswith("_advertised") and field not in UNSET:
            host, _, port = getattr(settings, field).partition(":")
            assert host == f"regnum-{name}-0.regnum-{name}.regnum.svc"
            assert int(port) in ports(name)
            assert getattr(settings, field.replace("_advertised", "_listen")) == f"0.0.0.0:{port}"


@pytest.mark.parametrize("name", list(SETTINGS))
def test_every_listener_is_a_port(name):
    listened = {int(value.rpartition(":")[2]) for key, value in environment(name).items() if key.endswith("_LISTEN")}
    fields = [name for name in settings_class(name).model_fields if name.endswith("_listen") and name not in UNSET]
    assert {"metrics_listen", "health_listen"} <= set(fields)
    assert len(listened) == len(fields)
    assert listened == ports(name)


@pytest.mark.parametrize("name", list(SETTINGS))
def test_probes_ask_a_listener_about_a_service_it_has(name):
    probes = {kind: container(name)[kind]["grpc"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    (health,) = [port["containerPort"] for port in container(name)["ports"] if port["name"] == "health"]
    assert environment(name)["REGNUM_HEALTH_LISTEN"] == f"0.0.0.0:{health}"
    # The listener that is open first and never over TLS, which the kubelet's probes do not speak.
    assert {probe["port"] for probe in probes.values()} == {health}
    assert probes["startupProbe"]["service"] == probes["livenessProbe"]["service"] == LIVENESS
    served = "".join(
        path.read_text(encoding="utf-8")
        for path in Path(importlib.import_module(f"regnum_{name}").__path__[0]).rglob("*.py")
    )
    assert f'"{probes["readinessProbe"]["service"]}"' in served


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_a_process_that_hangs_is_back_within_45_s_and_one_that_is_slow_for_15_s_is_left_alone(name):
    live = container(name)["livenessProbe"]
    silence_s = live["periodSeconds"] * (live["failureThreshold"] - 1) + live["timeoutSeconds"]
    found_s = live["periodSeconds"] + silence_s
    assert silence_s >= 15
    # A start, until its first answer and until the next question of readiness.
    restarted_s = 7 + container(name)["readinessProbe"]["periodSeconds"]
    assert found_s + live["terminationGracePeriodSeconds"] + restarted_s <= 45


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_who_does_not_hear_is_not_waited_for_as_long_as_who_hands_over(name):
    grace_s = WORKLOADS[name]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    hook_s = container(name)["lifecycle"]["preStop"]["sleep"]["seconds"]
    for probe in ("startupProbe", "livenessProbe"):
        # The hook's sleep is part of it; the kubelet then waits for 2 s at least.
        assert hook_s + 2 <= container(name)[probe]["terminationGracePeriodSeconds"] < grace_s


@pytest.mark.parametrize("name", list(SETTINGS))
def test_a_cold_start_is_no_warning(name):
    start = container(name)["startupProbe"]
    # The kubelet dials again within one try: 0, 1, 2.6 and 5.2 s after it began.
    assert start["timeoutSeconds"] >= 8
    assert start["periodSeconds"] == 1
    assert "initialDelaySeconds" not in start


def test_etcd_is_probed_where_it_answers():
    metrics = environment("etcd")["ETCD_LISTEN_METRICS_URLS"]
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert metrics.endswith(f":{container('etcd')[kind]['httpGet']['port']}")


def test_the_store_is_three_members_of_a_release_that_keeps_what_it_wrote():
    image = next(image for image in KUSTOMIZATION["images"] if image["name"] == container("etcd")["image"])
    assert tuple(map(int, image["newTag"].removeprefix("v").split("."))) >= (3, 5, 6)
    address = EtcdAddress.parse(environment("broker")["REGNUM_COORDINATION"])
    members = [f"regnum-etcd-{index}.regnum-etcd" for index in range(WORKLOADS["etcd"]["spec"]["replicas"])]
    assert [host for host, _ in address.endpoints] == members
    assert environment("etcd")["ETCD_MAX_TXN_OPS"] == str(address.max_txn_ops)
    peers = environment("etcd")["ETCD_INITIAL_CLUSTER"].split(",")
    assert peers == [f"{member.partition('.')[0]}=http://{member}:2380" for member in members]
    assert environment("etcd")["ETCD_INITIAL_ADVERTISE_PEER_URLS"] == f"http://{members[0]}:2380"


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_pods_are_restricted(name):
    pod = WORKLOADS[name]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    held = container(name)["securityContext"]
    assert (held["allowPrivilegeEscalation"], held["readOnlyRootFilesystem"]) == (False, True)
    assert held["capabilities"] == {"drop": ["ALL"]}
    assert container(name)["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_names_ports_and_disruptions_belong_together(name):
    workload = WORKLOADS[name]
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
    services = [item for item in of("Service") if component(item) == name]
    assert workload["spec"]["serviceName"] in {item["metadata"]["name"] for item in services}
    for service in services:
        assert service["spec"]["selector"].items() <= labels.items()
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports(name)
    (budget,) = [item for item in of("PodDisruptionBudget") if component(item) == name]
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    account = workload["spec"]["template"]["spec"]["serviceAccountName"]
    assert account in {item["metadata"]["name"] for item in of("ServiceAccount") if component(item) == name}
    (policy,) = [item for item in of("NetworkPolicy") if item["metadata"]["name"] == f"regnum-{name}"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    open_ports = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    # Probes come from the node, which policies let through.
    assert open_ports == ports(name) - {2381, 9465}


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_what_is_written_to_lies_on_a_volume(name):
    mounts = {mount["mountPath"] for mount in container(name)["volumeMounts"]}
    for key in ("REGNUM_RUN_DIR", "REGNUM_DATA_DIR"):
        folder = environment(name).get(key) if name in SETTINGS else None
        assert folder is None or any(Path(folder).is_relative_to(mount) for mount in mounts)
    claims = WORKLOADS[name]["spec"].get("volumeClaimTemplates", [])
    assert bool(claims) == (name in {"broker", "etcd"})


@pytest.mark.parametrize("name", list(SETTINGS))
def test_prometheus_finds_the_metrics_where_they_are(name):
    annotations = WORKLOADS[name]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/scrape"] == "true"
    assert annotations["prometheus.io/path"] == PATH
    assert environment(name)["REGNUM_METRICS_LISTEN"] == f"0.0.0.0:{annotations['prometheus.io/port']}"
    (port,) = [port for port in container(name)["ports"] if port["name"] == "metrics"]
    assert str(port["containerPort"]) == annotations["prometheus.io/port"]


def test_a_broker_knows_how_long_it_may_take_to_stop():
    """Else it is killed while it serves on, or goes though it could wait: one is changed and the other forgotten."""
    grace_s = WORKLOADS["broker"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    before_the_signal_s = container("broker")["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert float(environment("broker")["REGNUM_TERMINATION_GRACE_S"]) == grace_s - before_the_signal_s
