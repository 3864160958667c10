"""Looks at the Pods of a namespace all the while: who is Ready, who restarted, what each says in its log."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from regnum_testing.kubernetes.api import Api, ApiError
from regnum_testing.kubernetes.cluster import Cluster, Pod
from regnum_testing.kubernetes.observed import PodChange

PERIOD_S: Final = 0.5


class PodWatch:
    """Threads that look, from ``with`` to its end. Logs go to files named by Pod, life and restart."""

    def __init__(self, api: Api, cluster: Cluster, namespace: str, logs: Path) -> None:
        self._api: Final = api
        self._cluster: Final = cluster
        self._namespace: Final = namespace
        self._logs: Final = logs
        self._ending: Final = threading.Event()
        self._threads: Final[list[threading.Thread]] = []
        self._followed: Final[set[tuple[str, str, int]]] = set()
        self._known: dict[str, Pod] = {}
        self.changes: Final[list[PodChange]] = []
        """What was seen, in order."""

    def __enter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        self._start(self._look, ())
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        # Logs of Pods that live on do not end: their threads are daemons and end with the process.
        self._threads[0].join()

    def _start(self, what: Callable[..., None], arguments: tuple[object, ...]) -> None:
        thread = threading.Thread(target=what, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _look(self) -> None:
        while not self._ending.wait(PERIOD_S):
            try:
                pods = self._cluster.pods()
            except ApiError:
                continue  # the next look is half a second away
            now = time.time()
            self.seen(pods, now)
            for pod in pods:
                for container in pod.containers:
                    life = pod.uid, container, pod.restarts
                    if life not in self._followed:
                        self._followed.add(life)
                        self._start(self._keep_log, (pod, container))

    def seen(self, pods: Sequence[Pod], now: float) -> None:
        """What the Pods are now: changes are noted."""
        here = {one.uid: one for one in pods}
        for uid, pod in here.items():
            before = self._known.get(uid)
            if before is None or (before.ready, before.restarts) != (pod.ready, pod.restarts):
                self.changes.append(_change(pod, now, gone=False))
        for uid, pod in self._known.items():
            if uid not in here:
                self.changes.append(_change(pod, now, gone=True))
        self._known = here

    def _keep_log(self, pod: Pod, container: str) -> None:
        path = self._logs / f"{pod.name}.{pod.uid[:8]}.{pod.restarts}.{container}.log"
        query = f"container={container}&follow=true&timestamps=true"
        try:
            with path.open("w", encoding="utf-8", buffering=1) as out:
                for line in self._api.lines(f"/api/v1/namespaces/{self._namespace}/pods/{pod.name}/log?{query}"):
                    out.write(line + "\n")
        except ApiError as error:
            if error.status == 400:  # the container has not started yet: the next look tries again
                self._followed.discard((pod.uid, container, pod.restarts))


def _change(pod: Pod, now: float, *, gone: bool) -> PodChange:
    return PodChange(at=now, pod=pod.name, uid=pod.uid, ready=pod.ready and not gone, restarts=pod.restarts, gone=gone)
