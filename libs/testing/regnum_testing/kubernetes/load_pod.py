"""The judge's Pods: of the load, of signals, of those who are to be refused: made, listened to, asked, taken away.

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
from regnum_testing.kubernetes.intruders import ADMIN, STRANGER, Intruder
from regnum_testing.kubernetes.observed import BelowMinimum, ReadBack, Second, Stall

NAMESPACE: Final = "regnum-judge"
OUTSIDE: Final = "regnum-judge-outside"
"""A namespace without the label of clients."""
CREDENTIALS: Final = "/tls"
"""Where a Pod has what it shows."""
TRIED_S: Final = 120.0
CLIENT: Final = "regnum.io/client"
"""Label that Pods of clients and their namespaces carry."""
LOAD: Final = "load"
MOUNTED: Final = "/judge"
TOPIC: Final = "judge-load"
REQUESTED_CPU: Final = "500m"
"""Processor time of a Pod of the judge: without a request it has what all others leave, and its lateness looks like a
stall of the cluster whenever Pods start."""
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
    """The Pods: of the load, of signals, and of those who are to be refused."""

    def __init__(
        self,
        api: Api,
        *,
        image: str,
        bootstrap: str,
        environment: Mapping[str, str],
        credentials: Mapping[str, Mapping[str, str]],
    ) -> None:
        """``credentials``: content of a Secret for each client, by its name; empty: clients connect in plaintext."""
        self._api: Final = api
        self._credentials: Final = credentials
        self._image: Final = image
        self._environment: Final = {"REGNUM_BOOTSTRAP": bootstrap, **environment}
        self._signallers: Final[dict[str, str]] = {}
        self.load: Final = Load()

    def make(self) -> None:
        """The namespace and what both Pods run. Raises ApiError."""
        root = importlib.resources.files(pods)
        scripts = {name: (root / name).read_text() for name in ("load.py", "signals.py", "intruder.py")}
        # hostPID, which the Pod for signals needs, is not allowed where Pod Security is enforced.
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        for namespace, more in ((NAMESPACE, {CLIENT: "true"}), (OUTSIDE, {})):
            self._apply("Namespace", {"name": namespace, "labels": labels | more})
            self._apply("ConfigMap", {"name": "judge", "namespace": namespace}, data=scripts)
            for name, content in self._credentials.items():
                self._apply("Secret", {"name": name, "namespace": namespace}, data=content)

    def _apply(self, kind: str, metadata: Mapping[str, object], **more: object) -> None:
        made = {"apiVersion": "v1", "kind": kind, "metadata": metadata, **more}
        self._api.run("apply", "-f", "-", stdin=json.dumps(made))

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

    def attempt(self, intruder: Intruder) -> str:
        """Have somebody try who is to be refused; returns the line that it tells. Raises ApiError."""
        namespace = NAMESPACE if intruder.labelled else OUTSIDE
        command = ["python", "-P", f"{MOUNTED}/intruder.py", "judge-intruder"]
        made = self._pod(intruder.name, command, namespace=namespace, credential=intruder.credential)
        self._api.run("apply", "-f", "-", stdin=json.dumps(made))
        path = f"/api/v1/namespaces/{namespace}/pods/{intruder.name}"
        wait_for(lambda: self._api.get(path)["status"].get("phase") in {"Succeeded", "Failed"}, within_s=TRIED_S)
        lines = list(self._api.lines(f"{path}/log"))
        told = [line for line in lines if line.startswith("{")]
        if not told:
            raise ApiError(0, f"Pod {intruder.name} told nothing within {TRIED_S:.0f} s: {lines[-5:]}")
        return told[-1]

    def remove(self) -> None:
        """Take the namespaces away, without waiting for them."""
        self._api.run("delete", "namespace", NAMESPACE, OUTSIDE, "--wait=false", "--ignore-not-found")

    def _pod(
        self, name: str, command: list[str], *, namespace: str = NAMESPACE, credential: str = "", node: str = ""
    ) -> dict[str, object]:
        return pod(name, command, self._image, self._environment, node=node, namespace=namespace, credential=credential)

    def _create(self, name: str, command: list[str], *, node: str = "") -> None:
        credential = ADMIN if ADMIN in self._credentials and not node else ""
        made = self._pod(name, command, credential=credential, node=node)
        self._api.run("apply", "-f", "-", stdin=json.dumps(made))
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


def shown(credential: str) -> tuple[dict[str, str], list[dict[str, object]]]:
    """Variables of the SDK and the volumes for what a client shows; nothing where it connects in plaintext."""
    if not credential:
        return {}, []
    variables = {"REGNUM_TLS_CA": f"{CREDENTIALS}/ca.crt"}
    secret: dict[str, object] = {"secretName": ADMIN, "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    if credential != STRANGER:
        variables |= {
            "REGNUM_TLS_CERTIFICATE": f"{CREDENTIALS}/tls.crt",
            "REGNUM_TLS_KEY": f"{CREDENTIALS}/tls.key",
        }
        secret = {"secretName": credential}
    return variables, [{"name": "tls", "secret": secret | {"defaultMode": 0o440}}]


def pod(
    name: str,
    command: list[str],
    image: str,
    environment: Mapping[str, str],
    *,
    node: str,
    namespace: str = NAMESPACE,
    credential: str = "",
) -> dict[str, object]:
    """A Pod with the judge's programs. With ``node``, it runs there, as root, and sees the node's processes.

    ``credential``: the Secret that it shows; see ``intruders``.
    """
    variables, secrets = shown(credential)
    mounts = [{"name": "judge", "mountPath": MOUNTED}, {"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108
    if secrets:
        mounts.append({"name": "tls", "mountPath": CREDENTIALS})
    hardened = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    sees = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "runAsUser": 0, "runAsNonRoot": False}
    spec: dict[str, object] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {}
        if node
        else {"runAsNonRoot": True, "runAsUser": 10001, "fsGroup": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "judge",
                "image": image,
                "command": command,
                "env": [{"name": key, "value": value} for key, value in {**variables, **environment}.items()],
                "resources": {"requests": {"cpu": REQUESTED_CPU}},
                "securityContext": sees if node else hardened,
                "volumeMounts": mounts,
            }
        ],
        "volumes": [{"name": "judge", "configMap": {"name": "judge"}}, {"name": "tmp", "emptyDir": {}}, *secrets],
    }
    if node:
        spec |= {"hostPID": True, "nodeName": node, "tolerations": [{"operator": "Exists"}]}
    labels = {CLIENT: "true", "app.kubernetes.io/name": "regnum-judge"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
    }
