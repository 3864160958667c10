"""Every overlay of deploy/k8s, and the combinations of components that make sense: valid, and about the services."""

import importlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from regnum_broker.settings import BrokerSettings
from regnum_coordination.drivers.etcd.address import EtcdAddress
from regnum_coordination.drivers.zookeeper.address import ZooKeeperAddress
from regnum_service.settings import ServiceSettings, load
from regnum_testing.kustomize import KustomizeError, build
from regnum_testing.kustomize.overlays import (
    CLUSTER,
    COMBINATIONS,
    K8S,
    SCALED_MAX,
    SETTINGS,
    WORKLOADS,
    claimed_cpus,
    claims,
    component,
    containers,
    environment,
    has,
    of,
    pods,
    services,
    template,
)

VERSIONS: Final = sorted({tuple(map(int, name.split("."))) for name in kubernetes_validate.utils.all_versions()})[-3:]
"""The three newest that the schemas are here of."""
CUSTOM: Final = frozenset({"Issuer", "Certificate", "PodMonitor", "PrometheusRule", "ScheduledSparkApplication"})
"""Kinds that clusters have by their operators: tests of their own hold what they are for."""


@cache
def _schema(file: str, version: str) -> Resource:
    # As kubernetes_validate reads them, which does so again for every object: 10 ms each time.
    return Resource.from_contents(
        kubernetes_validate.utils.schema_contents(
            f"kubernetes-json-schema/v{version}-local-strict/{file}.json", version
        )
    )


@cache
def _errors(text: str, version: str) -> tuple[str, ...]:
    """What a schema has against an object."""
    item = json.loads(text)
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", item["apiVersion"])
    schema = _schema(f"{item['kind'].lower()}-{group}", version)
    registry = schema @ (_schema("_definitions", version) @ Registry())
    found = Draft202012Validator(schema.contents, registry=registry).iter_errors(item)
    return tuple(f"{error.json_path}: {error.message}" for error in found)


@pytest.fixture(scope="module", autouse=True)
def schemas_are_forgotten() -> Iterator[None]:
    """They are a hundred thousand objects, through which each collection of later modules would go."""
    yield
    _schema.cache_clear()
    _errors.cache_clear()


def test_what_a_schema_does_not_know_is_found() -> None:
    (account, *_) = of(build(K8S / "base"), "ServiceAccount")
    version = ".".join(map(str, VERSIONS[-1]))
    assert _errors(json.dumps(account), version) == ()
    for wrong in ({**account, "automount": True}, {**account, "automountServiceAccountToken": "no"}):
        (told,) = _errors(json.dumps(wrong), version)
        assert "automount" in told
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, version, strict=True)


def test_every_object_is_valid_in_the_three_newest_versions(objects: list[dict[str, Any]]) -> None:
    assert len(VERSIONS) == 3
    for item in objects:
        for version in () if item["kind"] in CUSTOM else VERSIONS:
            assert _errors(json.dumps(item, sort_keys=True), ".".join(map(str, version))) == ()
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "regnum", item["metadata"]["name"]


@pytest.mark.skipif("KUBECTL" not in os.environ, reason="KUBECTL names no kubectl to compare with")
def test_kubectl_makes_the_same_of_it(overlay: Path, objects: list[dict[str, Any]]) -> None:
    command = [os.environ["KUBECTL"], "kustomize", str(overlay)]
    made = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    real = [item for item in yaml.safe_load_all(made) if item]

    def by_name(items: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
        return {(item["kind"], item["metadata"]["name"]): item for item in items}

    assert by_name(real) == by_name(objects)


def test_what_is_not_of_this_kustomize_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("namePrefix: x-\n", encoding="utf-8")
    with pytest.raises(KustomizeError, match="namePrefix"):
        build(tmp_path)


def test_a_component_without_its_setting_does_not_build(tmp_path: Path) -> None:
    for one, missing in (("external-store", "coordination"), ("zones", "zoneA"), ("storage-class", "storageClass")):
        told = {
            "resources": [os.path.relpath(K8S / "base", tmp_path)],
            "components": [os.path.relpath(K8S / "components" / one, tmp_path)],
            "configMapGenerator": [
                {"name": "regnum-cluster", "literals": ["x=y"], "options": {"disableNameSuffixHash": True}}
            ],
        }
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(told), encoding="utf-8")
        with pytest.raises(KustomizeError, match=missing):
            build(tmp_path)


def test_every_variable_is_a_setting_and_every_process_would_start(
    objects: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for item in services(objects):
        module, kind = SETTINGS[component(item)]
        settings_class: type[ServiceSettings] = getattr(importlib.import_module(module), kind)
        for pod, index in pods(item):
            told = environment(objects, item, pod, index)
            assert not [value for value in told.values() if "$(" in value], "a variable before the one that it uses"
            own = {key: value for key, value in told.items() if key.startswith("REGNUM_")}
            assert {key.removeprefix("REGNUM_").lower() for key in own} <= set(settings_class.model_fields)
            with monkeypatch.context() as patch:
                for key, value in own.items():
                    patch.setenv(key, value)
                settings = load(settings_class, [])
            assert getattr(settings, f"{component(item)}_id") == index
            assert settings.session_timeout_s >= 6
            assert getattr(settings, "internal_advertised", "").startswith(
                f"{pod}.regnum-{component(item)}.regnum.svc:"
            )


def test_probes_ask_where_nobody_speaks_tls(objects: list[dict[str, Any]]) -> None:
    for item in services(objects):
        told = environment(objects, item, *pods(item)[0])
        (container,) = containers(item)
        ports = {container[kind]["grpc"]["port"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
        assert ports == {int(told["REGNUM_HEALTH_LISTEN"].rpartition(":")[2])}
        assert ports <= {port["containerPort"] for port in container["ports"]}


def test_with_tls_every_listener_and_every_call_has_its_files(objects: list[dict[str, Any]], name: str) -> None:
    if not has(name, "tls"):
        return
    for item in services(objects):
        told = environment(objects, item, *pods(item)[0])
        (container,) = containers(item)
        listeners = ("INTERNAL",) if component(item) == "quota" else ("INTERNAL", "CLIENT")
        files = {told[f"REGNUM_{one}_TLS_{file}"] for one in listeners for file in ("CERTIFICATE", "KEY", "CA")}
        files |= set(re.findall(r"(?:ca|cert|key)=([^&]+)", told["REGNUM_COORDINATION"]))
        if has(name, "etcd-tls") and not has(name, "external-store") and not has(name, "zookeeper"):
            assert "&cert=/etc/regnum/tls/tls.crt" in told["REGNUM_COORDINATION"]
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume.get("secret") for volume in template(item)["spec"]["volumes"]}
        for file in files:
            folder, _, key = file.rpartition("/")
            secret = volumes[mounts[folder]]
            assert secret is not None
            # A file of root's that the group may read, which is ours by fsGroup.
            assert secret["defaultMode"] == 0o440
            assert key in {one["path"] for one in secret.get("items", ())} or (
                "items" not in secret and key in {"tls.crt", "tls.key", "ca.crt"}
            )
        assert told["REGNUM_ALLOW_PLAINTEXT_BEYOND_LOOPBACK"] == "false"
        assert component(item) == "quota" or told["REGNUM_CLIENT_TLS_CLIENT_AUTH"] == "required"


def test_certificates_have_the_names_that_are_called_and_become_the_secrets_that_are_mounted(
    objects: list[dict[str, Any]], name: str
) -> None:
    if not has(name, "cert-manager"):
        return
    made = {item["spec"]["secretName"]: item["spec"] for item in of(objects, "Certificate")}
    mounted = {
        volume["secret"]["secretName"]
        for item in of(objects, *WORKLOADS)
        for volume in template(item)["spec"]["volumes"]
        if "secret" in volume
    }
    # The secret of tokens is no certificate: an operator makes it.
    assert mounted - {"regnum-tokens"} <= set(made)
    issuers = {item["metadata"]["name"]: item["spec"] for item in of(objects, "Issuer")}
    assert {spec["issuerRef"]["name"] for spec in made.values()} == set(issuers)
    assert issuers["regnum-client"] != issuers["regnum-cluster"]
    for item in of(objects, "StatefulSet"):
        spec = made[f"regnum-{component(item)}-tls"]
        assert spec["issuerRef"]["name"] == "regnum-cluster"
        assert {"server auth", "client auth"} <= set(spec["usages"])
        for pod, index in pods(item):
            told = environment(objects, item, pod, index)
            called = {
                value.rpartition(":")[0].rpartition("//")[2]
                for key, value in told.items()
                if key.endswith("_ADVERTISED") or (key.startswith("ETCD_") and "ADVERTISE" in key)
            }
            for host in called:
                # gRPC takes a wildcard for the first part of three at least.
                assert host in spec["dnsNames"] or f"*.{host.partition('.')[2]}" in spec["dnsNames"]
                assert host in spec["dnsNames"] or host.count(".") >= 2
    for service in of(objects, "Service"):
        if service["spec"].get("clusterIP") != "None" and component(service) == "broker":
            assert f"{service['metadata']['name']}.regnum.svc" in made["regnum-broker-tls"]["dnsNames"]
    for spec in made.values():
        # A client of gRPC's writes an error on stderr for a name of two parts and a wildcard that comes before it.
        hosts = spec.get("dnsNames", [])
        assert hosts == sorted(hosts, key=lambda host: host.startswith("*"))


def test_ids_are_unique_over_all_pods_of_a_service(objects: list[dict[str, Any]]) -> None:
    for service in SETTINGS:
        ids = [index for item in services(objects) if component(item) == service for _, index in pods(item)]
        assert len(ids) == len(set(ids)) >= 1
    brokers = [item for item in services(objects) if component(item) == "broker"]
    assert sum(item["spec"]["replicas"] for item in brokers) >= 3


def test_every_zone_has_its_rack_on_its_nodes_and_ids_of_its_own(objects: list[dict[str, Any]], name: str) -> None:
    brokers = [item for item in services(objects) if component(item) == "broker"]
    if "zones" not in COMBINATIONS[name]:
        assert len(brokers) == 1
        return
    racks = {}
    for item in brokers:
        (pod, index), *_ = pods(item)
        rack = environment(objects, item, pod, index)["REGNUM_RACK"]
        affinity = template(item)["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert affinity["nodeSelectorTerms"] == [
            {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [rack]}]}
        ]
        # Nobody rolls all zones at once: each waits until somebody lets it.
        assert item["spec"]["updateStrategy"]["rollingUpdate"]["partition"] == 1000
        assert item["spec"]["selector"]["matchLabels"]["regnum.io/zone"] == item["metadata"]["name"][-1]
        racks[rack] = index
    assert racks == {"eu-1a": 0, "eu-1b": 1000, "eu-1c": 2000}


def test_the_store_is_where_the_services_look(objects: list[dict[str, Any]]) -> None:
    (shared,) = [item for item in of(objects, "ConfigMap") if item["metadata"]["name"] == "regnum"]
    url = shared["data"]["REGNUM_COORDINATION"]
    address = EtcdAddress.parse(url) if url.startswith("etcd:") else ZooKeeperAddress.parse(url)
    stores = [item for item in of(objects, "StatefulSet") if component(item) not in SETTINGS]
    if url == CLUSTER["coordination"]:
        assert stores == []
        assert [item for item in objects if "etcd" in item["metadata"]["name"]] == []
        return
    (store,) = stores
    hosts = [f"{pod}.{store['spec']['serviceName']}" for pod, _ in pods(store)]
    assert [host for host, _ in address.endpoints] == hosts
    (container,) = containers(store)
    assert {port for _, port in address.endpoints} <= {port["containerPort"] for port in container["ports"]}
    if component(store) == "etcd":
        told = environment(objects, store, *pods(store)[0])
        members = told["ETCD_INITIAL_CLUSTER"].split(",")
        assert [member.partition("=")[0] for member in members] == [pod for pod, _ in pods(store)]
        assert [member.partition("//")[2] for member in members] == [f"{host}:2380" for host in hosts]
        assert members[0].partition("=")[2] == told["ETCD_INITIAL_ADVERTISE_PEER_URLS"]


def test_services_budgets_accounts_and_policies_are_of_the_pods_that_there_are(objects: list[dict[str, Any]]) -> None:
    accounts = {item["metadata"]["name"] for item in of(objects, "ServiceAccount")}
    used = set()
    for item in of(objects, *WORKLOADS):
        pod = template(item)
        used.add(pod["spec"]["serviceAccountName"])
        if item["kind"] in {"StatefulSet", "Deployment"}:
            assert item["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        if item["kind"] == "StatefulSet":
            assert [one for one in of(objects, "Service") if one["metadata"]["name"] == item["spec"]["serviceName"]]
    assert used == accounts
    for kind, where in (("Service", "selector"), ("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        for item in of(objects, kind):
            selector = item["spec"][where]
            wanted = selector if kind == "Service" else selector["matchLabels"]
            chosen = [
                one for one in of(objects, *WORKLOADS) if wanted.items() <= template(one)["metadata"]["labels"].items()
            ]
            assert chosen, f"{kind} {item['metadata']['name']} is of nobody"
            if kind == "PodDisruptionBudget":
                assert item["spec"]["maxUnavailable"] == 1
                assert chosen == [one for one in of(objects, *WORKLOADS) if component(one) == component(item)]


def test_policies_open_the_ports_that_are_served_and_to_nobody_else(objects: list[dict[str, Any]]) -> None:
    denied = [item for item in of(objects, "NetworkPolicy") if item["metadata"]["name"] == "regnum-deny"]
    assert [item["spec"]["podSelector"] for item in denied] == [
        {"matchLabels": {"app.kubernetes.io/part-of": "regnum"}}
    ]
    for item in of(objects, *WORKLOADS):
        labels = template(item)["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "regnum"
        opened = {
            port["port"]
            for policy in of(objects, "NetworkPolicy")
            if policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
            for rule in policy["spec"].get("ingress", ())
            for port in rule["ports"]
            if rule["from"]
        }
        served = {port["containerPort"]: port["name"] for one in containers(item) for port in one.get("ports", ())}
        # Probes come from the node, which policies let through.
        assert opened == {port for port, what in served.items() if what != "health"} - {2381}


def test_services_may_call_whom_they_call_and_nobody_else(objects: list[dict[str, Any]]) -> None:
    """Who stands by watches who acts at its internal listener: quota processes among themselves, too.

    A watch that a policy drops notices no death before a session ends; one that it rejects looks like a death.
    """
    calls = {
        ("broker", "broker"): {9093},
        ("broker", "election"): {9095, 9096, 9097},
        ("election", "broker"): {9093},
        ("election", "election"): {9096, 9097},
        ("election", "metadata"): {9100},
        ("election", "quota"): {9098},
        ("metadata", "broker"): {9093},
        ("quota", "quota"): {9098},
    }
    opened: dict[tuple[str, str], set[int]] = {}
    for item in of(objects, "NetworkPolicy"):
        called = item["spec"]["podSelector"]["matchLabels"].get("app.kubernetes.io/name", "").removeprefix("regnum-")
        for rule in item["spec"].get("ingress", ()):
            for peer in rule["from"]:
                name = peer["podSelector"].get("matchLabels", {}).get("app.kubernetes.io/name", "")
                if {called, name.removeprefix("regnum-")} <= set(SETTINGS):
                    pair = (name.removeprefix("regnum-"), called)
                    opened.setdefault(pair, set()).update(port["port"] for port in rule["ports"])
    assert opened == calls


def test_pods_are_restricted_and_know_no_secret_by_environment(objects: list[dict[str, Any]]) -> None:
    (namespace,) = of(objects, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for item in of(objects, *WORKLOADS):
        pod = template(item)["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        for one in containers(item):
            held = one["securityContext"]
            assert (held["allowPrivilegeEscalation"], held["readOnlyRootFilesystem"]) == (False, True)
            assert held["capabilities"] == {"drop": ["ALL"]}
            assert re.fullmatch(r"[^:@]+:v?\d+(\.\d+)+(\.dev\d+)?", one["image"]), (
                "a version, and not whatever is newest"
            )
            assert "cpu" not in one["resources"]["limits"]
            assert one["resources"]["limits"]["memory"]
            assert not [source for source in one.get("envFrom", ()) if "secretRef" in source]
            assert not [var for var in one.get("env", ()) if "secretKeyRef" in var.get("valueFrom", {})]


def test_requests_fit(objects: list[dict[str, Any]], name: str) -> None:
    # A tenth of the smallest node is for what it runs anyway: names, and an agent or two.
    assert claimed_cpus(objects) <= (1.8 if name.startswith("overlays/dev") else 7.5)


def test_what_clients_may_make_a_broker_hold_is_below_its_limit_of_memory(
    objects: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is counted for clients takes four times as much at the worst (269 MiB for 64, decision 38)."""
    brokers = [item for item in services(objects) if component(item) == "broker"]
    assert brokers
    for item in brokers:
        (one,) = containers(item)
        with monkeypatch.context() as patch:
            for key, value in environment(objects, item, *pods(item)[0]).items():
                if key.startswith("REGNUM_"):
                    patch.setenv(key, value)
            told = load(BrokerSettings, [])
        held = 4 * told.queued_max_request_bytes + told.queued_max_incoming_bytes
        besides = told.index_cache_bytes + told.log_cleaner_dedupe_buffer_bytes + 80 * 2**20
        limit = one["resources"]["limits"]["memory"]
        assert limit.endswith("Gi")
        assert held + besides < int(limit.removesuffix("Gi")) * 2**30


def test_whoever_has_a_priority_has_one_that_is_there(objects: list[dict[str, Any]], name: str) -> None:
    classes = {item["metadata"]["name"]: item["value"] for item in of(objects, "PriorityClass")}
    asked = {component(item): template(item)["spec"].get("priorityClassName") for item in of(objects, "StatefulSet")}
    if name.startswith(("base", "overlays/dev")):
        assert set(asked.values()) == {None}
        return
    value = {service: classes[priority] for service, priority in asked.items() if priority}
    assert value["broker"] > value["election"] == value["metadata"] == value["quota"]
    assert all(value[store] > value["broker"] for store in {"etcd", "zookeeper"} & set(value))
    assert set(asked) == set(value)


def test_the_storage_class_is_said_once_for_every_volume(objects: list[dict[str, Any]], name: str) -> None:
    wanted = CLUSTER["storageClass"] if "storage-class" in COMBINATIONS[name] else None
    assert {claim["spec"].get("storageClassName") for claim in claims(objects)} == {wanted}


def test_production_is_three_of_each_majority_spread_over_nodes_and_zones(
    objects: list[dict[str, Any]], name: str
) -> None:
    if name.startswith(("base", "overlays/dev")):
        return
    wanted = "DoNotSchedule" if "required-spread" in COMBINATIONS[name] else "ScheduleAnyway"
    for item in of(objects, "StatefulSet"):
        spread = {one["topologyKey"]: one for one in template(item)["spec"]["topologySpreadConstraints"]}
        assert set(spread) == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}
        for one in spread.values():
            assert one["labelSelector"]["matchLabels"].items() <= template(item)["metadata"]["labels"].items()
            assert (one["maxSkew"], one["whenUnsatisfiable"]) == (1, wanted)
        assert item["spec"]["minReadySeconds"] == 10
        assert item["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == 1
        if component(item) in {"etcd", "zookeeper", "election"}:
            assert item["spec"]["replicas"] == 3


def test_only_metadata_processes_are_scaled_by_load_and_only_where_their_number_is_nobody_elses(
    name: str, objects: list[dict[str, Any]]
) -> None:
    scaled = of(objects, "HorizontalPodAutoscaler")
    without = [component(item) for item in of(objects, "StatefulSet", "Deployment") if "replicas" not in item["spec"]]
    if "autoscaling" not in COMBINATIONS[name]:
        assert (scaled, without) == ([], [])
        return
    (scaler,) = scaled
    assert without == ["metadata"]
    spec = scaler["spec"]
    (target,) = [
        item
        for item in of(objects, spec["scaleTargetRef"]["kind"])
        if item["metadata"]["name"] == spec["scaleTargetRef"]["name"]
    ]
    assert component(target) == "metadata"
    assert scaler["metadata"].get("namespace") == target["metadata"].get("namespace")
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, SCALED_MAX)
    requests = [one["resources"]["requests"] for one in template(target)["spec"]["containers"]]
    assert all("cpu" in one for one in requests), "a share of nothing is never exceeded"


def test_files_of_the_stores_secret_are_there_for_every_service_and_readable(
    objects: list[dict[str, Any]], name: str
) -> None:
    for item in services(objects):
        (container,) = containers(item)
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert ("/etc/regnum/store" in mounts) == has(name, "store-secret")
        for volume in template(item)["spec"]["volumes"]:
            if volume["name"] == mounts.get("/etc/regnum/store"):
                assert volume["secret"] == {"secretName": "regnum-store", "defaultMode": 0o440}
