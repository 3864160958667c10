"""What is done to a cluster, on one that does as it is told."""

import dataclasses
import random
from collections.abc import Sequence

import pytest
from regnum_testing.kubernetes.api import ApiError
from regnum_testing.kubernetes.cluster import Pod, Workload, pod_of, wait_for, workload_of
from regnum_testing.kubernetes.observed import Kind
from regnum_testing.kubernetes.steps import Steps
from regnum_testing.kubernetes.verdict import BACK_NOTE

COMPONENTS = ("broker", "election", "etcd")


class FakeClock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self._now = 1_000.0

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


class FakeCluster:
    """Three Pods of each kind; whoever goes is replaced at once, unless nodes are cordoned."""

    def __init__(self) -> None:
        self._lives = 0
        self._cordoned = False
        self.refused_of: dict[str, int] = {}
        """Evictions that the budget does not allow before it does."""
        self.log: list[str] = []
        self.here = {f"regnum-{kind}-{index}": self._made(kind, index) for kind in COMPONENTS for index in range(3)}

    def _made(self, kind: str, index: int) -> Pod:
        self._lives += 1
        name = f"regnum-{kind}-{index}"
        return Pod(
            name=name, uid=f"life-{self._lives}", component=kind, index=index, node="node", ready=True, leaving=False,
            restarts=0, containers={kind: f"id-{self._lives}"},
        )  # fmt: skip

    def _gone(self, pod: Pod) -> None:
        if self._cordoned:
            del self.here[pod.name]
        else:
            self.here[pod.name] = self._made(pod.component, pod.index)

    def pods(self) -> Sequence[Pod]:
        return tuple(self.here.values())

    def workloads(self) -> Sequence[Workload]:
        return [Workload(kind="statefulsets", name=f"regnum-{kind}", replicas=3, settled=True) for kind in COMPONENTS]

    def restart(self, workload: Workload) -> None:
        self.log.append(f"restart {workload.name}")

    def scale(self, workload: Workload, replicas: int) -> None:
        self.log.append(f"scale {workload.name} {replicas}")
        kind = workload.name.removeprefix("regnum-")
        self.here = {name: one for name, one in self.here.items() if one.component != kind}
        self.here |= {f"regnum-{kind}-{index}": self._made(kind, index) for index in range(replicas)}

    def evict(self, pod: Pod) -> bool:
        if self.refused_of.get(pod.name, 0):
            self.refused_of[pod.name] -= 1
            return False
        self.log.append(f"evict {pod.name}")
        self._gone(pod)
        return True

    def delete(self, pod: Pod) -> None:
        self.log.append(f"delete {pod.name}")
        self._gone(pod)

    def delete_all(self) -> None:
        self.log.append("delete all")
        for pod in self.pods():
            self._gone(pod)

    def cordon(self, *, on: bool) -> None:
        self.log.append("cordon" if on else "uncordon")
        self._cordoned = on
        if not on:
            for kind in COMPONENTS:
                for index in range(3):
                    self.here.setdefault(f"regnum-{kind}-{index}", self._made(kind, index))


class FakeOutside:
    """A load that is always well."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.fails = False
        self.ignored = False
        """Nothing notices a stopped process."""

    def complete(self) -> bool:
        return True

    def controller(self) -> int:
        return 2

    def create(self, topic: str) -> None:
        self._cluster.log.append(f"create {topic}")

    def backlog(self, topic: str, megabytes: int) -> float:
        if self.fails:
            raise ApiError(0, "the Pod went")
        self._cluster.log.append(f"backlog {topic} {megabytes}")
        return 3.0

    def drop(self, topic: str) -> None:
        self._cluster.log.append(f"drop {topic}")

    def signal(self, pod: Pod, name: str) -> None:
        self._cluster.log.append(f"{name} {pod.name}")
        if not self.ignored:
            self._cluster.here[pod.name] = dataclasses.replace(pod, restarts=pod.restarts + 1)


def stage() -> tuple[FakeCluster, FakeOutside, Steps]:
    cluster = FakeCluster()
    outside = FakeOutside(cluster)
    steps = Steps(cluster, outside, say=lambda _: None, chance=random.Random(1), pods=9, clock=FakeClock())
    return cluster, outside, steps


def test_a_drain_evicts_the_next_broker_as_soon_as_the_first_may_come_back_and_it_is_allowed() -> None:
    cluster, _, steps = stage()
    steps.drain(2, backlog_mb=10)
    assert cluster.log == [
        "create judge-backlog-2",
        "evict regnum-election-2",
        "evict regnum-etcd-2",
        "cordon",
        "evict regnum-broker-2",
        "backlog judge-backlog-2 10",
        "uncordon",
        "evict regnum-broker-0",
        "drop judge-backlog-2",
    ]
    assert [one.kind for one in steps.done] == [Kind.DRAIN]
    assert steps.done[0].settled


def test_refused_evictions_are_asked_for_again_and_counted() -> None:
    cluster, _, steps = stage()
    cluster.refused_of["regnum-broker-1"] = 2
    steps.drain(0, backlog_mb=0)
    assert cluster.log[-3:] == ["evict regnum-broker-0", "uncordon", "evict regnum-broker-1"]
    assert steps.done[0].notes["refused evictions"] == 2


def test_nodes_take_pods_again_also_when_a_drain_breaks_off() -> None:
    cluster, outside, steps = stage()
    outside.fails = True
    steps.drain(0, backlog_mb=10)
    assert "uncordon" in cluster.log
    assert not steps.done[0].settled
    assert steps.done[0].notes["not done"] == "the Pod went"


def test_of_election_processes_the_controller_is_hurt() -> None:
    cluster, _, steps = stage()
    steps.force("election")
    steps.stop_process("election")
    assert cluster.log == ["delete regnum-election-2", "STOP regnum-election-2"]
    assert steps.done[0].what == "regnum-election-2 (the controller)"
    assert steps.done[1].notes[BACK_NOTE] == 0.0


def test_a_stopped_process_that_nobody_replaces_is_woken_and_has_no_time_of_return() -> None:
    cluster, outside, steps = stage()
    outside.ignored = True
    steps.stop_process("broker")
    assert [line.split()[0] for line in cluster.log] == ["STOP", "CONT"]
    assert BACK_NOTE not in steps.done[0].notes


def test_every_workload_is_restarted_one_after_another_or_all_at_once() -> None:
    cluster, _, steps = stage()
    steps.rolling(together=False)
    assert [one.what for one in steps.done] == ["regnum-broker", "regnum-election", "regnum-etcd"]
    steps.rolling(together=True)
    assert cluster.log == ["restart regnum-broker", "restart regnum-election", "restart regnum-etcd"] * 2
    assert steps.done[-1].what == "all workloads at once"


def test_all_pods_are_deleted_in_one_call() -> None:
    cluster, _, steps = stage()
    steps.all_pods()
    assert cluster.log == ["delete all"]
    assert steps.done[0].what == "9 Pods"


def test_the_store_comes_back_with_as_many_members_as_it_had() -> None:
    cluster, _, steps = stage()
    steps.store_away(0.0)
    assert cluster.log == ["scale regnum-etcd 0", "scale regnum-etcd 3"]
    assert len(cluster.pods()) == 9


def test_what_cannot_come_true_is_given_up_and_a_busy_server_is_asked_again() -> None:
    answers = iter([ApiError(503, "busy"), ApiError(0, "no answer"), True])

    def holds() -> bool:
        answer = next(answers)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    assert wait_for(holds, within_s=60, clock=FakeClock()) == 0.5
    assert wait_for(lambda: False, within_s=60, clock=FakeClock()) is None
    with pytest.raises(ApiError):
        wait_for(lambda: (_ for _ in ()).throw(ApiError(403, "forbidden")), within_s=60, clock=FakeClock())


def test_a_pod_is_read_as_the_api_has_it() -> None:
    found = {
        "metadata": {
            "name": "regnum-broker-1",
            "uid": "u",
            "labels": {"app.kubernetes.io/component": "broker", "apps.kubernetes.io/pod-index": "1"},
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"nodeName": "n"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "broker", "restartCount": 2, "containerID": "containerd://abc"}],
        },
    }
    pod = pod_of(found)
    assert (pod.component, pod.index, pod.ready, pod.leaving, pod.restarts) == ("broker", 1, True, True, 2)
    assert pod.containers == {"broker": "abc"}


def set_of(**status: object) -> dict[str, object]:
    settled = {"observedGeneration": 3, "replicas": 3, "readyReplicas": 3, "updatedReplicas": 3}
    revisions = {"currentRevision": "r1", "updateRevision": "r1"}
    return {
        "metadata": {"name": "regnum-broker", "generation": 3},
        "spec": {"replicas": 3},
        "status": settled | revisions | status,
    }


@pytest.mark.parametrize(
    "status",
    [
        {"observedGeneration": 2},
        {"readyReplicas": 2},
        {"updatedReplicas": 1},
        {"updateRevision": "r2"},
        {"replicas": 4},
    ],
)
def test_a_rollout_that_is_under_way_has_not_settled(status: dict[str, object]) -> None:
    assert workload_of("statefulsets", set_of()).settled
    assert not workload_of("statefulsets", set_of(**status)).settled
