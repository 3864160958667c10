"""Install an overlay on a real cluster, hurt it under load, say which promises held.

    python -m regnum_testing.kubernetes --overlay deploy/k8s/overlays/dev --rounds 5 --backlog-mb 1000

kubectl decides which cluster (KUBECONFIG, --context). It deletes Pods, cordons nodes and fills volumes: take a cluster
that is there to be hurt. A namespace that is there already is left alone, unless ``--use-existing`` says that it is.
Exit status: 0 every promise held; 1 one did not; 2 wrong input, or no cluster to judge.

The table goes to stdout (``-o json``: everything); DIR (--out) gets judge.json, judge.md, timeline.svg, the log of
every Pod in each of its lives, and the events of the namespace.
"""

import argparse
import dataclasses
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from regnum_testing.kubernetes.api import Api, ApiError
from regnum_testing.kubernetes.cluster import NOT_FOUND, REAL_CLOCK, KubernetesCluster, Pod, wait_for
from regnum_testing.kubernetes.intruders import SECRETS, attempt_of, intruders
from regnum_testing.kubernetes.load_pod import LoadPods
from regnum_testing.kubernetes.observed import Attempt, Observed
from regnum_testing.kubernetes.overlay import Overlay, OverlayError, read_overlay, with_image
from regnum_testing.kubernetes.report import as_json, as_table
from regnum_testing.kubernetes.steps import BROKER, ELECTION, Steps
from regnum_testing.kubernetes.timeline import as_svg
from regnum_testing.kubernetes.verdict import DENIALS, HANDSHAKES, rows
from regnum_testing.kubernetes.watching import PodWatch

STEPS: Final = ("intruders", "rolling", "drain", "force", "stop", "all", "store")
SECRETS_TO_TRY: Final = Path(__file__).resolve().parents[4] / "deploy/k8s/components/tls/secrets-to-try.sh"
METRICS_PORT: Final = 9464
READY_S: Final = 300.0
PARTITIONS: Final = 9
INTERVAL_MS: Final = 40
STORE_AWAY_S: Final = 30.0


def say(line: str) -> None:
    """Progress goes to stderr: stdout has the result."""
    sys.stderr.write(time.strftime("%H:%M:%S ") + line + "\n")
    sys.stderr.flush()


class _Outside:
    """The load and the signals, as steps ask for them."""

    def __init__(self, pods: LoadPods) -> None:
        self._pods: Final = pods

    def complete(self) -> bool:
        """Whether every partition has all its replicas in sync and is acknowledging."""
        return self._pods.load.complete

    def controller(self) -> int:
        """Election id of the controller; -1: not known."""
        return self._pods.load.controller

    def create(self, topic: str) -> None:
        """Create a topic for a backlog."""
        self._pods.ask("create", topic, str(PARTITIONS))

    def backlog(self, topic: str, megabytes: int) -> float:
        """Write so much to it; seconds that it took."""
        last = self._pods.ask("backlog", topic, str(PARTITIONS), str(megabytes)).splitlines()[-1]
        return float(json.loads(last)["seconds"])

    def drop(self, topic: str) -> None:
        """Delete such a topic."""
        self._pods.ask("delete", topic)

    def signal(self, pod: Pod, name: str) -> None:
        """Send a signal to every process of a Pod's containers."""
        for container in pod.containers.values():
            self._pods.signal(pod.node, container, name)


def install(api: Api, overlay: Overlay, *, use_existing: bool) -> bool:
    """Apply the overlay to a namespace that was not there.

    Returns whether this made it. Raises OverlayError, ApiError.
    """
    there = api.run("get", "namespace", overlay.namespace, "--ignore-not-found", "-o", "name").strip()
    if there and not use_existing:
        raise OverlayError(
            f"namespace {overlay.namespace} is there already: give --use-existing if what runs in it may be hurt, "
            "or delete it"
        )
    if not there:
        api.run("apply", "-f", "-", stdin=overlay.namespace_text)
        if overlay.secrets and not overlay.own_certificates:
            api.run("apply", "-f", "-", stdin=_secrets(overlay.namespace))
        api.run("apply", "-f", "-", stdin=overlay.text)
    return not there


def _secrets(namespace: str) -> str:
    """Secrets of a cluster that is tried out, as YAML. Keys of its authorities are gone with the folder."""
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(
            ["bash", SECRETS_TO_TRY, Path(folder) / "certs", namespace],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    if made.returncode:
        raise OverlayError(f"{SECRETS_TO_TRY.name}: {made.stderr.strip()[:500]}")
    return made.stdout


def credentials_of(api: Api, overlay: Overlay) -> dict[str, Mapping[str, str]]:
    """What clients of the cluster show, by name; empty where they connect in plaintext. Raises ApiError.

    A cluster that was there before may have no client without rights: that one is not tried then.
    """
    found: dict[str, Mapping[str, str]] = {}
    for name, secret in SECRETS.items() if overlay.tls else ():
        try:
            found[name] = api.get(f"/api/v1/namespaces/{overlay.namespace}/secrets/{secret}")["data"]
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
    return found


def counters(api: Api, cluster: KubernetesCluster, namespace: str) -> dict[str, float]:
    """What brokers and election processes have counted of those who were refused, in their metrics. Raises ApiError."""
    found = dict.fromkeys((HANDSHAKES, DENIALS), 0.0)
    for one in cluster.pods():
        if one.component in {BROKER, ELECTION}:
            path = f"/api/v1/namespaces/{namespace}/pods/{one.name}:{METRICS_PORT}/proxy/metrics"
            for line in api.lines(path):
                for name in found:
                    if told := re.match(rf"{name}(?:{{.*}})? ([0-9.e+]+)", line):
                        found[name] += float(told[1])
    return found


def try_intruders(api: Api, cluster: KubernetesCluster, pods: LoadPods, overlay: Overlay) -> list[Attempt]:
    """Have each of them try. Raises ApiError."""
    made: list[Attempt] = []
    for one in intruders(credentials_of(api, overlay)):
        say(f"intruder: {one.what}")
        before = counters(api, cluster, overlay.namespace)
        line = pods.attempt(one)
        after = counters(api, cluster, overlay.namespace)
        made.append(attempt_of(one, line, counted={name: after[name] - before[name] for name in after}))
        say(f"  {line}")
    return made


def judge(api: Api, overlay: Overlay, wanted: argparse.Namespace) -> Observed:
    """All of it. Raises OverlayError, ApiError."""
    begun, broken_off = time.monotonic(), ""
    made = install(api, overlay, use_existing=wanted.use_existing)
    cluster = KubernetesCluster(api, overlay.namespace)
    out: Path = wanted.out
    with PodWatch(api, cluster, overlay.namespace, out / "logs") as watch:
        ready = wait_for(lambda: sum(one.ready for one in cluster.pods()) >= overlay.pods, within_s=READY_S)
        if ready is None:
            away = ", ".join(one.name for one in cluster.pods() if not one.ready)
            raise ApiError(0, f"not Ready within {READY_S:.0f} s: {away}; their logs are in {out / 'logs'}")
        ready_s = time.monotonic() - begun
        say(f"{overlay.pods} Pods Ready after {ready_s:.1f} s; they claim {overlay.cpu_requested:g} processors")
        environment = dict(one.split("=", 1) for one in wanted.environment)
        bootstrap = f"regnum-bootstrap.{overlay.namespace}:9092"
        attempts: list[Attempt] = []
        pods = LoadPods(
            api,
            image=overlay.image,
            bootstrap=bootstrap,
            environment=environment,
            credentials=credentials_of(api, overlay),
        )
        try:
            pods.make()
            pods.start_load(partitions=PARTITIONS, interval_ms=INTERVAL_MS)
            steps = Steps(
                cluster, _Outside(pods), say=say, chance=random.Random(wanted.seed), pods=overlay.pods, clock=REAL_CLOCK
            )
            try:
                steps.settle()
                if "intruders" in wanted.steps:
                    attempts = try_intruders(api, cluster, pods, overlay)
                carry_out(steps, wanted)
            except ApiError as error:
                say(f"broken off: {error}")
                broken_off = str(error)
            say("reading everything back")
            pods.finish()
        finally:
            (out / "load.log").write_text("\n".join([*pods.load.failures, *pods.load.other]) + "\n")
            (out / "events.json").write_text(json.dumps(api.get(f"/api/v1/namespaces/{overlay.namespace}/events")))
            if not wanted.keep:
                pods.remove()
                if made:
                    api.run("delete", "-f", "-", "--wait=false", stdin=overlay.text)
    load = pods.load
    ahead_s = load.ahead_s if load.seconds else 0.0
    return Observed(
        overlay=overlay.path,
        broken_off=broken_off,
        ready_s=ready_s if made else None,
        disturbances=[dataclasses.replace(one, begin=one.begin + ahead_s, end=one.end + ahead_s) for one in steps.done],
        stalls=load.stalls,
        below=load.below,
        seconds=load.seconds,
        pods=[dataclasses.replace(one, at=one.at + ahead_s) for one in watch.changes],
        read_back=load.read_back,
        attempts=attempts,
        machine={
            "processors here": os.cpu_count() or 0,
            "load average here": f"{os.getloadavg()[0]:.1f}",
            "processors claimed": overlay.cpu_requested,
        },
    )


def carry_out(steps: Steps, wanted: argparse.Namespace) -> None:
    """Every step that is wanted, as often as is wanted."""
    rounds, kinds = range(wanted.rounds), steps.components
    plans: dict[str, list[Callable[[], None]]] = {
        "rolling": [partial(steps.rolling, together=wanted.together) for _ in rounds],
        "drain": [partial(steps.drain, number, backlog_mb=wanted.backlog_mb) for number in rounds],
        "force": [partial(steps.force, kind) for kind in kinds],
        "stop": [partial(steps.stop_process, kind) for kind in kinds],
        "all": [steps.all_pods],
        "store": [partial(steps.store_away, STORE_AWAY_S)],
    }
    for name in wanted.steps:
        for step in plans.get(name, ()):
            step()


def arguments_of(given: Sequence[str]) -> argparse.Namespace:
    """What is wanted. Exits with 2 on what cannot be."""
    parser = argparse.ArgumentParser(prog="make kubernetes-judge", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--overlay", default="deploy/k8s/overlays/dev", help="folder of a kustomization")
    parser.add_argument("--steps", type=_steps, default=STEPS, help=f"of {','.join(STEPS)}; all of them by default")
    parser.add_argument("--rounds", type=int, default=5, help="rolling restarts of every workload, and drains (5)")
    parser.add_argument("--backlog-mb", type=int, default=1000, help="written while a broker is drained (1000)")
    parser.add_argument("--together", action="store_true", help="restart all workloads at once, not one after another")
    parser.add_argument("--use-existing", action="store_true", help="judge, and hurt, what is in the namespace already")
    parser.add_argument("--keep", action="store_true", help="leave everything running at the end")
    parser.add_argument("--image", default="", help="of the services, instead of what the overlay names")
    parser.add_argument(
        "--env", dest="environment", action="append", default=[], metavar="NAME=VALUE", help="for the load"
    )
    parser.add_argument("--kubectl", type=shlex.split, default=["kubectl"], help="the command, with its own options")
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.add_argument("--seed", type=int, default=1, help="which Pod of a kind is hurt")
    parser.add_argument("--out", type=Path, default=Path("kubernetes-judge"), help="folder for what was found")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args(given)


def _steps(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [one for one in names if one not in STEPS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no step is called {', '.join(unknown)}; there are {', '.join(STEPS)}")
    return names


def main(given: Sequence[str]) -> int:
    """What the head of this file says."""
    wanted = arguments_of(given)
    kubectl = [*wanted.kubectl, *(["--context", wanted.context] if wanted.context else [])]
    wanted.out.mkdir(parents=True, exist_ok=True)
    try:
        with Api(kubectl) as api:
            overlay = read_overlay(wanted.overlay, api.run("kustomize", wanted.overlay))
            if wanted.image:
                overlay = with_image(overlay, wanted.image)
            observed = judge(api, overlay, wanted)
    except (OverlayError, ApiError, FileNotFoundError) as error:
        say(f"error: {error}")
        return 2
    found = rows(observed)
    (wanted.out / "judge.json").write_text(as_json(observed, found))
    (wanted.out / "judge.md").write_text(as_table(observed, found))
    (wanted.out / "timeline.svg").write_text(as_svg(observed))
    sys.stdout.write(as_json(observed, found) if wanted.output == "json" else as_table(observed, found))
    return 0 if found and all(one.holds for one in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
