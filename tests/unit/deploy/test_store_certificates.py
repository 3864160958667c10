"""Whose certificates count where in etcd of the overlay with TLS: clients and members have authorities apart."""

from pathlib import Path

import yaml
from regnum_testing.kustomize import build
from regnum_testing.kustomize.overlays import K8S, component, containers, environment, of, template

FILES = ("ETCD_PEER_CERT_FILE", "ETCD_PEER_KEY_FILE", "ETCD_PEER_TRUSTED_CA_FILE")


def test_no_certificate_of_a_process_counts_among_members_of_etcd() -> None:
    objects = build(K8S / "overlays" / "tls")
    (etcd,) = [item for item in of(objects, "StatefulSet") if component(item) == "etcd"]
    (container,) = containers(etcd)
    told = environment(objects, etcd, "regnum-etcd-0", 0)
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {one["name"]: one.get("secret", {}).get("secretName") for one in template(etcd)["spec"]["volumes"]}

    def secret(variable: str) -> str:
        return str(volumes[mounts[str(Path(told[variable]).parent)]])

    assert {secret(variable) for variable in FILES} == {"regnum-etcd-peer-tls"}
    assert secret("ETCD_TRUSTED_CA_FILE") == secret("ETCD_CERT_FILE") == "regnum-etcd-tls"
    assert (told["ETCD_CLIENT_CERT_AUTH"], told["ETCD_PEER_CLIENT_CERT_AUTH"]) == ("true", "true")


def test_the_authority_of_members_signs_nothing_else() -> None:
    made = yaml.safe_load_all((K8S / "components" / "cert-manager" / "certificates.yaml").read_text())
    signed: dict[str, set[str]] = {}
    for item in made:
        if item["kind"] == "Certificate":
            signed.setdefault(item["spec"]["issuerRef"]["name"], set()).add(item["spec"]["secretName"])
    assert signed["regnum-etcd-peer"] == {"regnum-etcd-peer-tls"}
    assert "regnum-etcd-tls" in signed["regnum-cluster"]
