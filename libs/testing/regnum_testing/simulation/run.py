"""One seed after another: a cluster, its load, its faults, and what the judge says of it.

    python -m regnum_testing.simulation [--seconds 25] [--json] [--log] [--story NAME]
        [--mutant NAME [--beside-alone]] SEED...

A seed is a number, or FIRST-LAST.

Each seed runs in a process of its own, which is forked from this one. A line is printed for each, and what happened in
one that fails. Exit status 1: one failed.
"""

import argparse
import asyncio
import dataclasses
import gc
import hashlib
import json
import logging
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import structlog
from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.ids import PartitionKey, TopicId
from regnum_model.nodes import Address
from regnum_telemetry import tracing

from regnum_testing.simulation import DEFAULT
from regnum_testing.simulation.cluster import SimulatedCluster, Started
from regnum_testing.simulation.judging.judge import History, Image, Log, judged, of_images
from regnum_testing.simulation.judging.replicas import brought_back, directory_of, log_of
from regnum_testing.simulation.load import STAYS, TOPICS, Load, key_of
from regnum_testing.simulation.loop import SimulatedLoop
from regnum_testing.simulation.machine import WALL_ZERO_MS, jobs_of
from regnum_testing.simulation.mutants import MUTANTS
from regnum_testing.simulation.schedules.faults import Fault, Faults, planned
from regnum_testing.simulation.schedules.scene import Scene
from regnum_testing.simulation.schedules.stories import STORIES, Story

SERVICES: Final = ("election-1", "election-2", "metadata-1", "broker-1", "broker-2", "broker-3")
BROKERS: Final = SERVICES[3:]
SECONDS: Final = 25.0
"""How long faults last, unless told otherwise."""
CALM_S: Final = 40.0
"""Within so long after the last fault all replicas have to be equal."""
STRAYS_S: Final = 80.0
"""Within so long brokers have also deleted strays that a volume brought along when it went back: they look for strays
every 10 s, and delete them after 60 s without a role (``--stray-grace-s``)."""
STARTED_S: Final = 60.0
"""Until a cluster that nothing has happened to has brokers and topics that clients see, in virtual seconds."""

STORY_S: Final = 120.0
"""Within so long a story has to come to an end."""
LOOK_S: Final = 0.01
"""Time between two looks at the brokers."""
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - folders of its own are made in it
"""Where the files of the brokers are, if there is such a place."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one seed."""

    seed: int
    found: list[str]
    """What is wrong; empty: nothing."""
    sent: int
    acknowledged: int
    read: int
    epochs: int
    """Leader epochs that were seen."""
    simulated_s: float
    calm_s: float
    """Virtual seconds from the last fault until all was equal."""
    messages: int
    struck: dict[str, int]
    """Faults that did something."""
    trace: str
    """Of all that was sent and what happened; the same in every run of a seed."""
    cpu_s: float
    log: list[str]
    """What happened, a line each."""


class Run:
    """One seed."""

    def __init__(self, seed: int, root: Path, schedule: Sequence[Fault] | Story) -> None:
        """Makes loop and cluster."""
        self._seed: Final = seed
        self._schedule: Final = schedule
        self.loop: Final = SimulatedLoop()
        self._chance: Final = random.Random(seed)
        self.loop.run_job = jobs_of(self.loop, self._chance)
        self.cluster: Final = SimulatedCluster(self.loop, root, self._chance)
        self.history: Final = History()
        self._load: Final = Load(
            self.cluster, self.history, BROKERS, random.Random(seed), {STAYS: 1} if callable(schedule) else None
        )
        self.calm_s = 0.0
        self._over = False
        self._found: Final = self.loop.create_future()
        """Done when something is seen to be wrong: the run is over."""
        self.cluster.stores.on_wrong = self._wrong
        tracing.tell_time_by(lambda: int((WALL_ZERO_MS + self.loop.time() * 1000) * 1_000_000))

    async def all_of_it(self) -> list[str]:
        """Run it; returns what is wrong."""
        cluster, history = self.cluster, self.history
        for name in SERVICES:
            await cluster.start(name)
        try:
            async with asyncio.timeout(STARTED_S):
                await cluster.client("admin", self._load.make_topics)
        except TimeoutError:
            return [*await self._images(), f"clients do not see the cluster whole after {STARTED_S:.0f} s"]
        cluster.spawn(self._look())
        faults = self.faults = Faults(cluster, failed=self._wrong)
        running = self.loop.create_task(self._happens(faults))
        within_s = STORY_S if callable(self._schedule) else None
        await asyncio.wait({running, self._found}, return_when=asyncio.FIRST_COMPLETED, timeout=within_s)
        if history.problems:
            return history.problems
        if not running.done():
            return [f"the story has not ended after {within_s:.0f} s"]
        await running
        if self._over:
            return []
        await faults.end()
        cluster.say("calm")
        await asyncio.sleep(8.0)
        self._load.stopping = True
        return await self._calm()

    async def _happens(self, faults: Faults) -> None:
        if callable(self._schedule):
            self._load.start_records()
            scene = Scene(self.cluster, faults, self.history, self._load, self._images)
            await self._schedule(scene)
            self._over = scene.over
            faults.watch()
        else:
            self._load.start()
            faults.watch()
            await faults.run(tuple(self._schedule))

    def _wrong(self, what: str) -> None:
        self.cluster.say("wrong:", what)
        self.history.problems.append(what)
        if not self._found.done():
            self._found.set_result(None)

    async def _calm(self) -> list[str]:
        began_s = self.loop.time()
        while True:
            await asyncio.sleep(1.0)
            found = await self._found_now()
            self.calm_s = self.loop.time() - began_s
            if not found or self.calm_s >= STRAYS_S:
                return found
            if self.calm_s >= CALM_S and await self._found_now(but=brought_back(self.cluster)):
                return found

    async def _found_now(self, *, but: Collection[tuple[str, PartitionKey]] = ()) -> list[str]:
        """What is wrong, but for some replicas, by broker and partition."""
        return self._failures() or self._judged(but) or self._outside() or await self._images()

    def _failures(self) -> list[str]:
        failures = [
            f"{name} failed: {one.supervisor.failure!r}"
            for name, one in self.cluster.started.items()
            if one.supervisor.failure is not None
        ]
        failures += [
            f"{name} is down"
            for name in SERVICES
            if (one := self.cluster.started[name]).process.dead or not one.service
        ]
        return failures

    def _outside(self) -> list[str]:
        whole = self.cluster.is_whole()
        return [] if whole else [f"not all replicas are in sync: {self.cluster.states()}"]

    async def _look(self) -> None:
        ids: dict[TopicId, str] = {}
        while True:
            if len(ids) < len(self._load.partitions):
                ids = {id: topic for topic, (id, _) in self.cluster.topics().items() if topic in TOPICS}
            for name in BROKERS:
                started = self.cluster.started[name]
                if started.service is None or started.process.dead:
                    continue
                # A detour of an address ends the connections to it: the broker behind it serves no client.
                answers = self.cluster.network.at(self.cluster.address(name))
                is_elsewhere = answers is not None and answers.process is not started.process
                for replica in started.service.replicas:
                    if (topic := ids.get(replica.key.topic_id)) is not None:
                        self.history.see(
                            f"{name}/{id(started)}/{id(replica)}",
                            name,
                            key_of(topic, replica.key.partition),
                            epoch=replica.leader_epoch,
                            leads=(leads := type(replica.role).__name__ == "Leadership"),
                            serves=leads and not (replica.role.cut_off or started.process.paused or is_elsewhere),
                            at_s=self.loop.time(),
                            high_watermark=replica.high_watermark,
                        )
                        if leads:
                            member = replica.role.state.members.get(Scene.id(name))
                            self.history.see_log(
                                name,
                                key_of(topic, replica.key.partition),
                                epoch=replica.leader_epoch,
                                recorded="" if member is None else member.log_id,
                                log_id=directory_of(started.service).proof.identity.log_id,
                            )
            await asyncio.sleep(LOOK_S)

    async def _images(self) -> list[str]:
        """What the metadata of brokers that run says otherwise than the store."""
        images: dict[str, Image] = {}

        async def ask(started: Started) -> None:
            for name in BROKERS:
                if self.cluster.started[name].process.dead:
                    continue
                channel = started.machine.opener(None)(Address.parse(self.cluster.address(name)))
                request = metadata_pb2.GetMetadataRequest(header=RequestHeader(client_id="judge"))
                answer = await metadata_pb2_grpc.MetadataServiceStub(channel).GetMetadata(request, timeout=5.0)
                images[name] = {
                    (one.topic.name, state.partition): (state.leader, state.leader_epoch, tuple(state.isr))
                    for one in answer.topics
                    for state in one.topic.partitions
                }
                await channel.close()

        await self.cluster.client("judge", ask)
        return of_images(self.cluster.states(), images)

    def _judged(self, but: Collection[tuple[str, PartitionKey]]) -> list[str]:
        logs: dict[str, dict[str, Log]] = {}
        assigned: dict[str, list[str]] = {}
        for topic, (topic_id, partitions) in self.cluster.topics().items():
            for number, brokers in partitions.items() if topic in TOPICS else ():
                key = key_of(topic, number)
                assigned[key], logs[key] = [f"broker-{broker}" for broker in brokers], {}
                for name in BROKERS:
                    replica = self.cluster.started[name].service.replicas.get(PartitionKey(topic_id, number))
                    if replica is not None and (name, replica.key) not in but:
                        logs[key][name] = log_of(replica)
        return judged(self.history, logs, assigned=assigned)


def outcome_of(seed: int, *, seconds: float = SECONDS, schedule: Sequence[Fault] | Story | None = None) -> Outcome:
    """Run a seed here; this process is of no other use afterwards.

    Args:
        seed: of chance, and of the schedule.
        seconds: how long faults last.
        schedule: another one than the seed's, or a story.
    """
    gc.disable()
    # The chance of pauses between attempts at the store is the module's.
    random.seed(seed)
    began_s = time.process_time()
    root = Path(tempfile.mkdtemp(prefix="simulation-", dir=MEMORY if MEMORY.is_dir() else None))
    run = Run(seed, root, planned(seed, SERVICES, seconds) if schedule is None else schedule)
    asyncio.set_event_loop(run.loop)
    try:
        found = run.loop.run_until_complete(run.all_of_it())
    except Exception:  # noqa: BLE001 - a finding like others
        found = [traceback.format_exc()]
    finally:
        shutil.rmtree(root, ignore_errors=True)
    history, cluster = run.history, run.cluster
    found += [f"unhandled: {context.get('message')}: {context.get('exception')!r}" for context in run.loop.failures]
    told = json.dumps([cluster.log, sorted(history.acknowledged.items()), sorted(history.read.items())])
    trace = hashlib.sha256(f"{told} {cluster.network.digest}".encode()).hexdigest()[:16]
    return Outcome(
        seed=seed,
        found=found,
        sent=history.sent,
        acknowledged=len(history.acknowledged),
        read=sum(map(len, history.read.values())),
        epochs=len(history.leaders),
        simulated_s=round(run.loop.elapsed_s, 3),
        calm_s=round(run.calm_s, 3),
        messages=cluster.network.messages,
        struck=dict(sorted(run.faults.struck.items())) if hasattr(run, "faults") else {},
        trace=trace,
        cpu_s=time.process_time() - began_s,
        log=cluster.log,
    )


def quiet() -> None:
    """No logs."""
    logging.disable(logging.CRITICAL)

    def drop(*_: object) -> Any:
        raise structlog.DropEvent

    structlog.configure(processors=[drop])


def forked(
    seed: int,
    *,
    seconds: float = SECONDS,
    schedule: Sequence[Fault] | Story | None = None,
    first: Callable[[], None] = lambda: None,
) -> Outcome:
    """The same in a process of its own, in which ``first`` is done before."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        status = 1
        try:
            first()
            said = json.dumps(dataclasses.asdict(outcome_of(seed, seconds=seconds, schedule=schedule)))
            with os.fdopen(writes, "w") as pipe:
                pipe.write(said)
            status = 0
        finally:
            # Nothing of the cluster may run on: not even the end of its objects.
            os._exit(status)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    if not said:
        raise RuntimeError(f"seed {seed} ended without a word")
    return Outcome(**json.loads(said))


def say(line: str) -> None:
    """Print it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _seeds(words: Sequence[str]) -> Iterator[int]:
    for word in words:
        first, _, last = word.partition("-")
        yield from range(int(first), int(last or first) + 1)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--hash-seed", default=DEFAULT, help="of Python, for another order of sets; part of the run")
    parser.add_argument("--json", action="store_true", help="print outcomes as JSON lines")
    parser.add_argument("--log", action="store_true", help="print what happened also where nothing is wrong")
    parser.add_argument("--mutant", choices=MUTANTS, help="put into the product; ends with what finds it")
    parser.add_argument("--beside-alone", action="store_true", help="put in only what stands beside the mutant")
    parser.add_argument("--story", choices=STORIES, help="in place of the schedule of a seed; of seed 1, unless told")
    parser.add_argument("seeds", nargs="*", default=["1"])
    told = parser.parse_args()
    quiet()
    mutant = None if told.mutant is None else MUTANTS[told.mutant]
    mutated = (lambda: None) if mutant is None else mutant.stand_beside if told.beside_alone else mutant.put_in
    story = None if told.story is None else STORIES[told.story]
    failed = 0
    for seed in _seeds(told.seeds):
        one = forked(seed, seconds=told.seconds, schedule=story, first=mutated)
        failed += bool(one.found)
        if told.json:
            say(json.dumps(dataclasses.asdict(one)))
            continue
        say(
            f"seed {seed}: {'FAULT' if one.found else 'clean'}, {one.sent} sent, {one.acknowledged} acknowledged,"
            f" {one.read} read, {one.epochs} epochs, {one.simulated_s:.0f} s simulated in {one.cpu_s:.1f} s,"
            f" {one.messages} messages, trace {one.trace}, calm after {one.calm_s:.0f} s, {one.struck}"
        )
        if one.found or told.log:
            say("\n".join(f"    {line}" for line in (*one.log, *one.found)))
        if one.found and told.mutant is not None:
            break
    return 1 if failed else 0
