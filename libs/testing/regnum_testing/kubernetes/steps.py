"""What is done to the cluster, each under load: done, waited for until all is well again, noted.

Drains: ``kubectl drain`` empties a node, and a cluster may have only one. So the Pods are evicted through the same API,
which asks the disruption budgets; nodes take no Pods meanwhile, as in a drain, while the backlog is written that the
broker misses. When it may come back, the next broker's eviction is asked for at once, again and again as a drain does.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from regnum_testing.kubernetes.api import ApiError
from regnum_testing.kubernetes.cluster import PERIOD_S, Clock, Cluster, Pod, Workload, wait_for
from regnum_testing.kubernetes.observed import Disturbance, Kind
from regnum_testing.kubernetes.verdict import BACK_NOTE

BROKER: Final = "broker"
ELECTION: Final = "election"
STORES: Final = frozenset({"etcd", "zookeeper", "store"})
BACKLOG: Final = "judge-backlog"
SETTLE_S: Final = 240.0
"""How long all is waited for to be well again."""
CALM_S: Final = 2.0
"""How long it is well before the next disturbance."""
EVICTED_S: Final = 300.0
EVICT_PERIOD_S: Final = 0.5
"""``kubectl drain`` asks again every 5 s: here the next broker goes as soon as it may."""
STOPPED_S: Final = 90.0
"""How long a stopped process is left so before it is woken."""


class Outside(Protocol):
    """What steps need besides the cluster: the load, and a way to signal processes."""

    def complete(self) -> bool:
        """Whether every partition has all its replicas in sync and is acknowledging."""

    def controller(self) -> int:
        """Election id of the controller; -1: not known."""

    def create(self, topic: str) -> None:
        """Create a topic for a backlog."""

    def backlog(self, topic: str, megabytes: int) -> float:
        """Write so much to it; seconds that it took."""

    def drop(self, topic: str) -> None:
        """Delete such a topic."""

    def signal(self, pod: Pod, name: str) -> None:
        """Send a signal to every process of a Pod's containers."""


class Steps:
    """The disturbances. Each returns when all is well again, or was not in SETTLE_S."""

    def __init__(
        self,
        cluster: Cluster,
        outside: Outside,
        *,
        say: Callable[[str], None],
        chance: random.Random,
        pods: int,
        clock: Clock,
    ) -> None:
        """``pods``: how many of the product there are when all is well."""
        self._cluster: Final = cluster
        self._outside: Final = outside
        self._say: Final = say
        self._chance: Final = chance
        self._pods: Final = pods
        self._clock: Final = clock
        self.done: Final[list[Disturbance]] = []

    def rolling(self, *, together: bool) -> None:
        """Restart every workload, one after another or all at once."""
        names = sorted(self._cluster.workloads(), key=lambda one: one.name)
        if together:
            with self._disturbing(Kind.ROLLING, "all workloads at once"):
                for workload in names:
                    self._cluster.restart(workload)
                self._await(self._all_settled)
            return
        for workload in names:
            with self._disturbing(Kind.ROLLING, workload.name):
                self._cluster.restart(workload)
                self._await(self._all_settled)

    def drain(self, number: int, *, backlog_mb: int) -> None:
        """Drain what runs beside broker ``number`` of those there are, then the next broker as soon as it may go."""
        brokers = sorted((one for one in self._cluster.pods() if one.component == BROKER), key=lambda one: one.index)
        first, second = brokers[number % len(brokers)], brokers[(number + 1) % len(brokers)]
        topic = f"{BACKLOG}-{number}"
        if backlog_mb:
            self._outside.create(topic)
        with self._disturbing(Kind.DRAIN, f"{first.name}, then {second.name}") as notes:
            # What stands beside it finds another node at once. Where a service has one Pod only, it is away meanwhile:
            # a broker's leaders move when it is back, as a person would have it.
            beside = [one for one in self._cluster.pods() if one.component != BROKER and one.index == first.index]
            for pod in beside:
                self._evict(pod)
            self._await(lambda: self._replaced(beside))
            self._cluster.cordon(on=True)
            try:
                self._evict(first)
                self._await(lambda: all(one.uid != first.uid for one in self._cluster.pods()))
                if backlog_mb:
                    notes["backlog written in s"] = round(self._outside.backlog(topic, backlog_mb), 1)
            finally:
                self._cluster.cordon(on=False)
            begun = self._clock.monotonic()
            notes["refused evictions"] = self._evict(second)
            notes["next broker allowed after s"] = round(self._clock.monotonic() - begun, 1)
        if backlog_mb:
            self._outside.drop(topic)

    def force(self, component: str) -> None:
        """Delete one Pod of a kind at once: the controller of election processes, any of the others."""
        pod = self._one_of(component)
        with self._disturbing(Kind.FORCE, self._named(pod)):
            self._cluster.delete(pod)
            self._await(lambda: all(one.uid != pod.uid for one in self._cluster.pods()))

    def stop_process(self, component: str) -> None:
        """Stop the processes of one Pod and wait for what notices it."""
        pod = self._one_of(component)
        with self._disturbing(Kind.STOPPED, self._named(pod)) as notes:
            begun = self._clock.monotonic()
            self._outside.signal(pod, "STOP")

            def back() -> bool:
                same = next((one for one in self._cluster.pods() if one.name == pod.name), None)
                return same is not None and same.ready and (same.uid, same.restarts) != (pod.uid, pod.restarts)

            if wait_for(back, within_s=STOPPED_S, clock=self._clock) is None:
                self._outside.signal(pod, "CONT")
                self._say(f"  {pod.name} was not replaced within {STOPPED_S:.0f} s, and is woken")
            else:
                notes[BACK_NOTE] = round(self._clock.monotonic() - begun, 1)

    def all_pods(self) -> None:
        """Delete every Pod at once."""
        uids = {one.uid for one in self._cluster.pods()}
        with self._disturbing(Kind.ALL_PODS, f"{len(uids)} Pods"):
            self._cluster.delete_all()
            self._await(lambda: not any(one.uid in uids for one in self._cluster.pods()))

    def store_away(self, seconds: float) -> None:
        """Have no store for so long."""
        stores = [one for one in self._cluster.workloads() if any(kind in one.name for kind in STORES)]
        with self._disturbing(Kind.STORE_AWAY, f"{', '.join(one.name for one in stores)} for {seconds:.0f} s"):
            for one in stores:
                self._cluster.scale(one, 0)
            self._await(lambda: not any(one.component in STORES for one in self._cluster.pods()))
            self._clock.sleep(seconds)  # the disturbance itself, not a wait for anything
            for one in stores:
                self._cluster.scale(one, one.replicas)
            self._await(self._all_settled)

    @property
    def components(self) -> tuple[str, ...]:
        """Kinds of Pods that there are."""
        return tuple(sorted({one.component for one in self._cluster.pods()}))

    def _evict(self, pod: Pod) -> int:
        """Until it is allowed; how often it was not."""
        refused = 0
        end = self._clock.monotonic() + EVICTED_S
        while not self._cluster.evict(pod):
            refused += 1
            if self._clock.monotonic() > end:
                self._say(f"  {pod.name} could not be evicted within {EVICTED_S:.0f} s")
                break
            self._clock.sleep(EVICT_PERIOD_S)
        return refused

    def _one_of(self, component: str) -> Pod:
        pods = sorted((one for one in self._cluster.pods() if one.component == component), key=lambda one: one.index)
        if component == ELECTION:
            for pod in pods:
                if pod.index == self._outside.controller():
                    return pod
        return self._chance.choice(pods)

    def _named(self, pod: Pod) -> str:
        is_controller = pod.component == ELECTION and pod.index == self._outside.controller()
        return f"{pod.name} (the controller)" if is_controller else pod.name

    def _all_settled(self) -> bool:
        workloads: list[Workload] = list(self._cluster.workloads())
        return bool(workloads) and all(one.settled for one in workloads)

    def _replaced(self, gone: Sequence[Pod]) -> bool:
        pods, uids = self._cluster.pods(), {one.uid for one in gone}
        return len(pods) == self._pods and all(one.ready and one.uid not in uids for one in pods)

    def _well(self) -> bool:
        pods = self._cluster.pods()
        return (
            len(pods) == self._pods and all(one.ready and not one.leaving for one in pods) and self._outside.complete()
        )

    def _await(self, holds: Callable[[], bool]) -> bool:
        return wait_for(holds, within_s=SETTLE_S, clock=self._clock) is not None

    def settle(self) -> bool:
        """Wait until all is well, and has been for CALM_S."""
        end = self._clock.monotonic() + SETTLE_S
        well_since: float | None = None
        while self._clock.monotonic() < end:
            if not self._well():
                well_since = None
            elif well_since is None:
                well_since = self._clock.monotonic()
            elif self._clock.monotonic() - well_since >= CALM_S:
                return True
            self._clock.sleep(PERIOD_S)
        return False

    @contextmanager
    def _disturbing(self, kind: Kind, what: str) -> Iterator[dict[str, float | str]]:
        notes: dict[str, float | str] = {}
        self._say(f"{kind.value}: {what}")
        begin = self._clock.wall()
        done = True
        try:
            yield notes
        except ApiError as error:
            done = False
            notes["not done"] = str(error)[:300]
        settled = self.settle() and done
        self.done.append(
            Disturbance(kind=kind, what=what, begin=begin, end=self._clock.wall(), settled=settled, notes=notes)
        )
        self._say(
            f"  {self._clock.wall() - begin:.1f} s"
            + "".join(f", {k} {v}" for k, v in notes.items())
            + ("" if settled else ", NOT WELL AGAIN")
        )
