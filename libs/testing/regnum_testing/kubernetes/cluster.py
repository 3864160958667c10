"""A Regnum in a namespace of a Kubernetes: what the steps ask of it and do to it. The port that tests fake."""

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from regnum_testing.kubernetes.api import Api, ApiError

INDEX: Final = "apps.kubernetes.io/pod-index"
COMPONENT: Final = "app.kubernetes.io/component"
PART_OF: Final = "app.kubernetes.io/part-of=regnum"
PERIOD_S: Final = 0.25
"""How often what is waited for is asked."""
TOO_MANY_REQUESTS: Final = 429
"""What the API answers when a disruption budget does not allow an eviction."""
NOT_FOUND: Final = 404
CONFLICT: Final = 409
"""Another Pod has the name by now: the one that was meant is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One Pod."""

    name: str
    uid: str
    component: str
    """broker, election, quota, metadata, etcd, ..."""
    index: int
    """Its number in the StatefulSet; -1: it is of a Deployment or a Job."""
    node: str
    """Empty: it has none yet."""
    ready: bool
    leaving: bool
    """Whether it is being deleted."""
    restarts: int
    containers: Mapping[str, str]
    """Id of each container that runs, without the runtime's name, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A StatefulSet or a Deployment."""

    kind: str
    """``statefulsets`` or ``deployments``."""
    name: str
    replicas: int
    settled: bool
    """Whether all of its Pods are of the newest template and Ready, and no other is left."""


class Cluster(Protocol):
    """What steps need."""

    def pods(self) -> Sequence[Pod]:
        """Pods of the product that have not come to an end."""

    def workloads(self) -> Sequence[Workload]:
        """Its StatefulSets and Deployments."""

    def restart(self, workload: Workload) -> None:
        """Begin a rolling restart."""

    def scale(self, workload: Workload, replicas: int) -> None:
        """Have another number of Pods."""

    def evict(self, pod: Pod) -> bool:
        """Ask for an eviction. False: a disruption budget does not allow it now."""

    def delete(self, pod: Pod) -> None:
        """``kubectl delete pod --force --grace-period=0``."""

    def delete_all(self) -> None:
        """The same for every Pod of the product, in one call."""

    def cordon(self, *, on: bool) -> None:
        """Have no node take Pods, or all that did before take them again."""


class KubernetesCluster:
    """The port over a real API server."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api: Final = api
        self._namespace: Final = namespace
        self._core: Final = f"/api/v1/namespaces/{namespace}"
        self._apps: Final = f"/apis/apps/v1/namespaces/{namespace}"
        self._cordoned: list[str] = []

    def pods(self) -> Sequence[Pod]:
        """Pods of the product that have not come to an end."""
        items = self._api.get(f"{self._core}/pods?labelSelector={PART_OF.replace('=', '%3D')}")["items"]
        return [pod_of(one) for one in items if one["status"].get("phase") not in {"Succeeded", "Failed"}]

    def workloads(self) -> Sequence[Workload]:
        """Its StatefulSets and Deployments."""
        return [
            workload_of(kind, one)
            for kind in ("statefulsets", "deployments")
            for one in self._api.get(f"{self._apps}/{kind}?labelSelector={PART_OF.replace('=', '%3D')}")["items"]
        ]

    def restart(self, workload: Workload) -> None:
        """Begin a rolling restart, as ``kubectl rollout restart`` does."""
        moment = dt.datetime.now(dt.UTC).isoformat()
        change = {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": moment}}}}}
        self._api.patch(f"{self._apps}/{workload.kind}/{workload.name}", change)

    def scale(self, workload: Workload, replicas: int) -> None:
        """Have another number of Pods."""
        self._api.patch(f"{self._apps}/{workload.kind}/{workload.name}", {"spec": {"replicas": replicas}})

    def evict(self, pod: Pod) -> bool:
        """Ask for an eviction. False: a disruption budget does not allow it now."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": self._namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        try:
            self._api.call("POST", f"{self._core}/pods/{pod.name}/eviction", eviction)
        except ApiError as error:
            if error.status == TOO_MANY_REQUESTS:
                return False
            if error.status not in {NOT_FOUND, CONFLICT}:
                raise
        return True

    def delete(self, pod: Pod) -> None:
        """``kubectl delete pod --force --grace-period=0``."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        self._api.call("DELETE", f"{self._core}/pods/{pod.name}", options)

    def delete_all(self) -> None:
        """The same for every Pod of the product, in one call."""
        selector = PART_OF.replace("=", "%3D")
        self._api.call("DELETE", f"{self._core}/pods?labelSelector={selector}", {"gracePeriodSeconds": 0})

    def cordon(self, *, on: bool) -> None:
        """Have no node take Pods, or all that did before take them again."""
        if on:
            nodes = [one for one in self._api.get("/api/v1/nodes")["items"] if not one["spec"].get("unschedulable")]
            self._cordoned = [one["metadata"]["name"] for one in nodes]
        while self._cordoned:
            names = list(self._cordoned)
            for name in names:
                self._api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": on}})
                if not on:
                    self._cordoned.remove(name)
            if on:
                return


def pod_of(found: Mapping[str, Any]) -> Pod:
    """A Pod as the API has it."""
    meta, status = found["metadata"], found["status"]
    labels: Mapping[str, str] = meta.get("labels") or {}
    states = status.get("containerStatuses") or []
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        component=labels.get(COMPONENT, ""),
        index=int(labels.get(INDEX, "-1")),
        node=found["spec"].get("nodeName", ""),
        ready=any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or []),
        leaving="deletionTimestamp" in meta,
        restarts=sum(one["restartCount"] for one in states),
        containers={one["name"]: one["containerID"].rpartition("/")[2] for one in states if one.get("containerID")},
    )


def workload_of(kind: str, found: Mapping[str, Any]) -> Workload:
    """A StatefulSet or Deployment as the API has it."""
    wanted, status = found["spec"].get("replicas", 1), found["status"]
    seen = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
    new = kind == "deployments" or status.get("currentRevision") == status.get("updateRevision")
    # A set that was never updated counts none as updated in some versions: its two revisions are the same then.
    updated = status.get("updatedReplicas", 0) == wanted or (kind == "statefulsets" and "updatedReplicas" not in status)
    counts = status.get("replicas", 0) == wanted and status.get("readyReplicas", 0) == wanted
    return Workload(
        kind=kind, name=found["metadata"]["name"], replicas=wanted, settled=seen and new and updated and counts
    )


class Clock(Protocol):
    """Time, for a program that waits for another machine."""

    def monotonic(self) -> float:
        """Seconds."""

    def wall(self) -> float:
        """Seconds since 1970."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class RealClock:
    """Time as it is."""

    def monotonic(self) -> float:
        """Seconds."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


REAL_CLOCK: Final = RealClock()


def wait_for(holds: Callable[[], bool], *, within_s: float, clock: Clock = REAL_CLOCK) -> float | None:
    """Seconds until it holds; None: it does not in time. An API server that is busy is asked again."""
    begun = clock.monotonic()
    while (passed := clock.monotonic() - begun) < within_s:
        try:
            if holds():
                return clock.monotonic() - begun
        except ApiError as error:
            if error.status and error.status < 500 and error.status != TOO_MANY_REQUESTS:
                raise
        clock.sleep(min(PERIOD_S, max(0.0, within_s - passed)))
    return None
