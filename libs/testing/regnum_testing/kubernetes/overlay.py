"""What an overlay says, as kubectl renders it."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

WORKLOADS: Final = frozenset({"StatefulSet", "Deployment"})


class OverlayError(Exception):
    """The overlay is none that can be judged. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """What the judge needs of it."""

    path: str
    text: str
    """All objects, as YAML."""
    namespace: str
    image: str
    """The brokers' image: it has the SDK that the load uses."""
    pods: int
    """How many there are when all is well."""
    cpu_requested: float
    """Processors that they claim together."""
    secrets: frozenset[str]
    """Secrets that its Pods mount."""
    own_certificates: bool
    """Whether it has them made: it has Certificates of cert-manager's."""

    @property
    def namespace_text(self) -> str:
        """Its namespace alone, as YAML."""
        objects = [one for one in yaml.safe_load_all(self.text) if one and one["kind"] == "Namespace"]
        return yaml.safe_dump_all(objects)

    @property
    def tls(self) -> bool:
        """Whether clients connect over TLS."""
        return "REGNUM_CLIENT_TLS_CERTIFICATE" in self.text


def read_overlay(path: str, text: str) -> Overlay:
    """Raises OverlayError when it has no brokers, or workloads in more than one namespace."""
    objects: list[Mapping[str, Any]] = [one for one in yaml.safe_load_all(text) if one]
    workloads = [one for one in objects if one["kind"] in WORKLOADS]
    namespaces = {one["metadata"].get("namespace", "default") for one in workloads}
    brokers = [one for one in workloads if component(one) == "broker"]
    if not brokers:
        raise OverlayError(
            f"{path} has no StatefulSet with app.kubernetes.io/component: broker; name an overlay of Regnum"
        )
    if len(namespaces) != 1:
        raise OverlayError(f"{path} has workloads in {', '.join(sorted(namespaces))}; the judge looks at one namespace")
    containers = brokers[0]["spec"]["template"]["spec"]["containers"]
    return Overlay(
        path=path,
        text=text,
        namespace=namespaces.pop(),
        image=next(one["image"] for one in containers if one["name"] == "broker"),
        pods=sum(one["spec"].get("replicas", 1) for one in workloads),
        secrets=frozenset(
            volume["secret"]["secretName"]
            for one in workloads
            for volume in one["spec"]["template"]["spec"].get("volumes") or ()
            if "secret" in volume
        ),
        own_certificates=any(one["kind"] == "Certificate" for one in objects),
        cpu_requested=round(sum(_cpu(one) * one["spec"].get("replicas", 1) for one in workloads), 3),
    )


def with_image(overlay: Overlay, image: str) -> Overlay:
    """The same, with another image of the services: one that is not released yet."""
    objects: list[dict[str, Any]] = [one for one in yaml.safe_load_all(overlay.text) if one]
    for one in objects:
        if one["kind"] in WORKLOADS:
            for container in one["spec"]["template"]["spec"]["containers"]:
                if container["image"] == overlay.image:
                    container["image"] = image
    return dataclasses.replace(overlay, text=yaml.safe_dump_all(objects), image=image)


def component(found: Mapping[str, Any]) -> str:
    """What a workload's Pods are."""
    labels: Mapping[str, str] = found["spec"]["template"]["metadata"].get("labels") or {}
    return labels.get("app.kubernetes.io/component", "")


def _cpu(workload: Mapping[str, Any]) -> float:
    containers: Sequence[Mapping[str, Any]] = workload["spec"]["template"]["spec"]["containers"]
    return sum(cpus(str(((one.get("resources") or {}).get("requests") or {}).get("cpu", "0"))) for one in containers)


def cpus(quantity: str) -> float:
    """Processors of a Kubernetes quantity: ``500m``, ``2``, ``0.5``."""
    return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)
