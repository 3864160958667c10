"""The load's Pod, and the Pod that sends signals: made, listened to, asked, taken away.

They live in a namespace of their own, so that what happens to the product's Pods does not happen to them.
"""

import importlib.resources
import json
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from regnum_testing.kubernetes import pods
from regnum_testing.kubernetes.api import Api, ApiError
from regnum_testing.kubernetes.cluster import wait_for
from regnum_testing.kubernetes.observed import BelowMinimum, ReadBack, Second, Stall

NAMESPACE: Final = "regnum-judge"
LOAD: Final = "load"
MOUNTED: Final = "/judge"
TOPIC: Final = "judge-load"
READY_S: Final = 120.0
READ_BACK_S: Final = 300.0


class Load:
    """What the load says, as it comes. Times are those of its Pod."""

    def __init__(self) -> None:
        self.stalls: Final[list[Stall]] = []
        self.below: Final[list[BelowMinimum]] = []
        self.seconds: Final[list[Second]] = []
        self.failures: Final[list[str]] = []
        self.other: Final[list[str]] = []
        """Lines that are none of its own: a traceback."""
        self.read_back: ReadBack | None = None
        self.ahead_s = float("-inf")
        """By how much its clock is ahead of this one's: the largest lead that a line had when it came."""

    def line(self, line: str, now: float) -> None:
        """A line came."""
        try:
            told: Mapping[str, Any] = json.loads(line)
        except ValueError:
            self.other.append(line)
            return
        fields = {name: value for name, value in told.items() if name != "kind"}
        match told.get("kind"):
            case "second":
                self.ahead_s = max(self.ahead_s, told["at"] - now)
                self.seconds.append(Second(**{one: fields[one] for one in Second.__slots__}))
            case "stall":
                self.stalls.append(Stall(**fields))
            case "below_minimum":
                self.below.append(BelowMinimum(**fields))
            case "failed":
                self.failures.append(line)
            case "verdict":
                self.read_back = ReadBack(**{one: fields[one] for one in ReadBack.__slots__})
            case _:
                self.other.append(line)

    @property
    def complete(self) -> bool:
        """Whether, the last time that it looked, no partition wanted a replica, and all were acknowledging."""
        last = self.seconds[-1:]
        return bool(last) and last[0].under_replicated == 0 and last[0].silent_ms < 1_000

    @property
    def controller(self) -> int:
        """Election id of the controller; -1: not known."""
        return self.seconds[-1].controller if self.seconds else -1


class LoadPods:
    """The two Pods."""

    def __init__(self, api: Api, *, image: str, bootstrap: str, environment: Mapping[str, str]) -> None:
        self._api: Final = api
        self._image: Final = image
        self._environment: Final = {"REGNUM_BOOTSTRAP": bootstrap, **environment}
        self._signallers: Final[dict[str, str]] = {}
        self.load: Final = Load()

    def make(self) -> None:
        """The namespace and what both Pods run. Raises ApiError."""
        root = importlib.resources.files(pods)
        scripts = {name: (root / name).read_text() for name in ("load.py", "signals.py")}
        # hostPID, which the Pod for signals needs, is not allowed where Pod Security is enforced.
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        for one in (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}},
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "judge", "namespace": NAMESPACE},
                "data": scripts,
            },
        ):
            self._api.run("apply", "-f", "-", stdin=json.dumps(one))

    def start_load(self, *, partitions: int, interval_ms: int) -> None:
        """Begin to write; returns when it does. Raises ApiError."""
        command = ["python", "-P", f"{MOUNTED}/load.py", "run", TOPIC, str(partitions), str(interval_ms)]
        self._create(LOAD, command)
        threading.Thread(target=self._listen, daemon=True).start()
        flowing = wait_for(lambda: self.load.complete and self.load.seconds[-1].acked > 0, within_s=READY_S)
        if flowing is None:
            raise ApiError(0, f"no load within {READY_S:.0f} s: {self.load.other[-5:] or 'the Pod says nothing'}")

    def ask(self, *arguments: str, timeout_s: float = 600.0) -> str:
        """Run load.py with other arguments beside it. Returns what it says. Raises ApiError."""
        command = ["python", "-P", f"{MOUNTED}/load.py", *arguments]
        return self._api.run("exec", "-n", NAMESPACE, LOAD, "--", *command, timeout_s=timeout_s)

    def finish(self) -> None:
        """Have the load end and read everything back; what it found is in ``load.read_back``. Raises ApiError."""
        self.ask("stop")
        wait_for(lambda: self.load.read_back is not None, within_s=READ_BACK_S)

    def signal(self, node: str, container: str, name: str) -> None:
        """Send a signal to every process of a container. Raises ApiError."""
        pod = self._signallers.get(node)
        if pod is None:
            pod = self._signallers[node] = f"signals-{len(self._signallers)}"
            self._create(pod, ["sleep", "infinity"], node=node)
        command = ["python", "-P", f"{MOUNTED}/signals.py", container, name]
        self._api.run("exec", "-n", NAMESPACE, pod, "--", *command)

    def remove(self) -> None:
        """Take the namespace away, without waiting for it."""
        self._api.run("delete", "namespace", NAMESPACE, "--wait=false", "--ignore-not-found")

    def _create(self, name: str, command: list[str], *, node: str = "") -> None:
        self._api.run(
            "apply", "-f", "-", stdin=json.dumps(pod(name, command, self._image, self._environment, node=node))
        )
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
        if wait_for(lambda: self._api.get(path)["status"].get("phase") == "Running", within_s=READY_S) is None:
            status = self._api.get(path)["status"]
            raise ApiError(0, f"Pod {name} does not run: {json.dumps(status)[:600]}")

    def _listen(self) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{LOAD}/log?follow=true"
        try:
            for line in self._api.lines(path):
                self.load.line(line, time.time())
        except ApiError as error:
            self.load.other.append(str(error))


def pod(name: str, command: list[str], image: str, environment: Mapping[str, str], *, node: str) -> dict[str, object]:
    """A Pod with the judge's programs. With ``node``, it runs there, as root, and sees the node's processes."""
    hardened = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    sees = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "runAsUser": 0, "runAsNonRoot": False}
    spec: dict[str, object] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {}
        if node
        else {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "judge",
                "image": image,
                "command": command,
                "env": [{"name": key, "value": value} for key, value in environment.items()],
                "securityContext": sees if node else hardened,
                "volumeMounts": [{"name": "judge", "mountPath": MOUNTED}, {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
            }
        ],
        "volumes": [{"name": "judge", "configMap": {"name": "judge"}}, {"name": "tmp", "emptyDir": {}}],
    }
    if node:
        spec |= {"hostPID": True, "nodeName": node, "tolerations": [{"operator": "Exists"}]}
    labels = {"regnum.io/client": "true", "app.kubernetes.io/name": "regnum-judge"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": spec,
    }
