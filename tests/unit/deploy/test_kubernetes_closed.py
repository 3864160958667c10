"""Manifests are closed unless opened: what callers show, what they may do, what is written down, and who is let in."""

import base64
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from cryptography import x509
from regnum_service.settings import load
from regnum_testing.kustomize import build
from regnum_testing.kustomize.overlays import (
    K8S,
    SETTINGS,
    WORKLOADS,
    component,
    containers,
    environment,
    of,
    pods,
    services,
    template,
)

CLOSED: Final = ("overlays/production", "overlays/tls")
OPEN: Final = ("base", "overlays/dev")
PROCESSES: Final = ("broker", "election", "metadata", "quota")
SCRIPT: Final = K8S / "components" / "tls" / "secrets-to-try.sh"
STORES: Final = {"etcd": 2379, "zookeeper": 2181}
"""Where members of a store listen for clients."""


def _restore_pod() -> dict[str, Any]:
    """The Pod of the page, which CronJobs for backups are like."""
    text = (K8S.parents[1] / "docs" / "operations" / "kubernetes.md").read_text()
    (pod,) = [one for one in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "name: regnum-restore" in one]
    read: dict[str, Any] = yaml.safe_load(pod)
    return read


def _mounted(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Secrets by the folder in which a Pod's container has them."""
    secrets = {volume["name"]: volume["secret"] for volume in pod["volumes"] if "secret" in volume}
    (container,) = pod["containers"]
    return {one["mountPath"]: secrets[one["name"]] for one in container["volumeMounts"] if one["name"] in secrets}


def test_callers_show_certificates_have_rights_and_leave_lines(
    objects: list[dict[str, Any]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not name.startswith(CLOSED):
        return
    assert {component(item) for item in services(objects)} == set(PROCESSES)
    for item in services(objects):
        told = environment(objects, item, *pods(item)[0])
        with monkeypatch.context() as patch:
            for key, value in told.items():
                if key.startswith("REGNUM_"):
                    patch.setenv(key, value)
            module, kind = SETTINGS[component(item)]
            settings = load(getattr(__import__(module, fromlist=[kind]), kind), [])
        assert not settings.allow_plaintext_beyond_loopback
        assert settings.authorizer == "acl"
        named = {value for key, value in told.items() if key.endswith("SUPER_USERS")}
        everybody = {one for names in named for one in names.split(";")}
        assert everybody >= {f"User:CN=regnum-{process}" for process in PROCESSES} | {"User:CN=admin"}
        assert settings.audit_log_export == "stdout"
        assert not settings.allow_everyone_if_no_acl_found
        if component(item) == "quota":
            continue
        assert settings.client_tls_client_auth == "required"
        (container,) = containers(item)
        secret = Path(told["REGNUM_DELEGATION_TOKEN_SECRET_FILE"])
        (mount,) = [one for one in container["volumeMounts"] if one["mountPath"] == str(secret.parent)]
        (volume,) = [one for one in template(item)["spec"]["volumes"] if one["name"] == mount["name"]]
        assert volume["secret"]["defaultMode"] == 0o440
        assert secret.name in {one["path"] for one in volume["secret"]["items"]}
        # Readable by the group that is the process' own, and by no other (regnum_service.tls.private_files).
        security = template(item)["spec"]["securityContext"]
        assert security["fsGroup"] == security["runAsGroup"]


def test_policies_name_namespaces_by_the_label_that_their_pods_carry_too(objects: list[dict[str, Any]]) -> None:
    outside = set()
    for policy in of(objects, "NetworkPolicy"):
        for rule in policy["spec"].get("ingress", ()):
            assert rule["from"], "an empty list lets everybody in"
            for peer in rule["from"]:
                assert peer["podSelector"], "an empty selector is every Pod"
                if "namespaceSelector" in peer:
                    assert peer["namespaceSelector"] == peer["podSelector"]
                    outside.add(next(iter(peer["podSelector"]["matchLabels"])))
    assert outside == {"regnum.io/client", "regnum.io/metrics"}


def test_a_pod_for_backups_and_restores_is_let_in_to_the_store_and_is_in_nobodys_budget_or_service(
    objects: list[dict[str, Any]],
) -> None:
    # A disruption budget that selects a Pod of a Job, which nothing scales, lets no node be drained.
    pages = K8S.parents[1] / "docs" / "operations"
    labels = _restore_pod()["metadata"]["labels"]
    assert all(f"{key}: {value}" in (pages / "recovery.md").read_text() for key, value in labels.items())
    for kind, where in (("PodDisruptionBudget", "selector"), ("Service", "selector"), ("NetworkPolicy", "podSelector")):
        for item in of(objects, kind):
            selector = item["spec"][where]
            wanted = selector if kind == "Service" else selector["matchLabels"]
            assert not wanted.items() <= labels.items(), f"{kind} {item['metadata']['name']}"
    members = [item for item in of(objects, *WORKLOADS) if component(item) in STORES]
    let_in = {
        (policy["metadata"]["name"], port["port"])
        for policy in of(objects, "NetworkPolicy")
        for rule in policy["spec"].get("ingress", ())
        for port in rule["ports"]
        if any(peer["podSelector"].get("matchLabels") == labels for peer in rule["from"])
    }
    assert let_in == {(item["metadata"]["name"], STORES[component(item)]) for item in members}


def test_a_pod_for_backups_and_restores_has_the_files_of_the_stores_url_as_election_processes_have_them(
    objects: list[dict[str, Any]],
) -> None:
    pod = _restore_pod()["spec"]
    (election,) = [template(item)["spec"] for item in services(objects) if component(item) == "election"]
    (settings,) = [item["data"] for item in of(objects, "ConfigMap") if item["metadata"]["name"] == "regnum"]
    named = {str(Path(file).parent) for file in re.findall(r"=(/[^&]+)", settings["REGNUM_COORDINATION"])}
    for folder, secret in _mounted(election).items():
        assert folder not in named or _mounted(pod)[folder] == secret | {"optional": True}
    for key in ("runAsUser", "runAsGroup", "fsGroup"):
        assert pod["securityContext"][key] == election["securityContext"][key]


def test_what_is_open_says_so_in_its_first_line_and_nothing_else_does() -> None:
    said = {
        str(path.parent.relative_to(K8S))
        for path in K8S.rglob("kustomization.yaml")
        if path.read_text(encoding="utf-8").startswith("# Open")
    }
    assert said == {*OPEN, "components/zookeeper"}
    for name in OPEN:
        (shared,) = [item for item in of(build(K8S / name), "ConfigMap") if item["metadata"]["name"] == "regnum"]
        assert shared["data"]["REGNUM_ALLOW_PLAINTEXT_BEYOND_LOOPBACK"] == "true"


def test_etcd_is_reached_over_tls_with_certificates_by_its_clients_and_its_peers() -> None:
    objects = build(K8S / "overlays/production")
    (store,) = [item for item in of(objects, "StatefulSet") if component(item) == "etcd"]
    told = environment(objects, store, *pods(store)[0])
    assert told["ETCD_CLIENT_CERT_AUTH"] == told["ETCD_PEER_CLIENT_CERT_AUTH"] == "true"
    for key, value in told.items():
        if re.search("_(LISTEN|ADVERTISE)_(CLIENT|PEER)_URLS|_INITIAL_ADVERTISE", key):
            assert value.startswith("https://"), key


def test_certificates_to_try_are_the_secrets_that_are_mounted_by_the_names_that_cert_manager_gives(
    tmp_path: Path,
) -> None:
    made = subprocess.run(["bash", SCRIPT, tmp_path / "certs"], capture_output=True, check=True, text=True, timeout=60)
    secrets = {one["metadata"]["name"]: one for one in yaml.safe_load_all(made.stdout) if one}
    objects = build(K8S / "overlays/production")
    mounted = {
        volume["secret"]["secretName"]: {one["key"] for one in volume["secret"].get("items", ())}
        for item in of(objects, *WORKLOADS)
        for volume in template(item)["spec"]["volumes"]
        if "secret" in volume
    }
    for name, keys in mounted.items():
        assert keys <= set(secrets[name]["data"])
    asked = {
        one["spec"]["secretName"]: one["spec"]
        for one in yaml.safe_load_all(
            (K8S / "components" / "cert-manager" / "certificates.yaml").read_text(encoding="utf-8")
        )
        if one["kind"] == "Certificate" and not one["spec"].get("isCA")
    }
    assert set(asked) <= set(secrets)
    for name, spec in asked.items():
        certificate = x509.load_pem_x509_certificate(base64.b64decode(secrets[name]["data"]["tls.crt"]))
        assert certificate.subject.rfc4514_string() == f"CN={spec['commonName']}"
        try:
            hosts = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            hosts = x509.SubjectAlternativeName([])
        assert hosts.get_values_for_type(x509.DNSName) == spec.get("dnsNames", [])
    again = subprocess.run(["bash", SCRIPT, tmp_path / "certs"], capture_output=True, check=False, timeout=60)
    assert again.returncode == 1, "keys that are in use are never overwritten"
