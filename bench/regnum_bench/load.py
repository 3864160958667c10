"""``load``: what an election process reads of the store before it can reign over what is in it, on the store alone.

The nodes are as the controller writes them: a topic, a folder and a state for each partition. They are read by the
function that the election process uses; what it makes of them afterwards (``succession``, ``verify_ms``) is not
measured here.
"""

import gc
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import chain
from typing import Final

from regnum_coordination import open_store
from regnum_coordination.port import Create, Group, Store, Written
from regnum_election.reign.reign import Reign
from regnum_election.reign.writing import FencedStore
from regnum_election.topics.adoption import TOPICS_PER_ROUND
from regnum_election.topics.found import every_topic
from regnum_local.cluster import LocalCluster
from regnum_model import paths
from regnum_model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ElectionId,
    LeaderEpoch,
    LogId,
    TopicId,
    encode_id,
)
from regnum_model.nodes import LeaderAndIsr, Membership, TopicNode
from regnum_service.collector import short_collections

from regnum_bench.figures import Round
from regnum_bench.launching import launched
from regnum_bench.processor_time import ProcessorTime
from regnum_bench.shape import Shape
from regnum_bench.stand import Measured, Run
from regnum_bench.waiting import MeasureError

PREFIX: Final = "/bench"
TIMEOUT_S: Final = 30.0
"""Of one operation, also on a busy machine: a repeat would be measured as work."""
GROUPS_PER_WRITE: Final = 2_000
"""Topics and partitions that are written together."""
BROKERS: Final = 9
"""Brokers that the states name."""


async def load(run: Run) -> Measured:
    """Figures of each repetition."""
    shape = run.shape
    run.progress.step(f"{shape.partitions_total:,} partitions of {shape.topics:,} topics in {shape.coordination}")
    # Garbage collections as every service has them.
    with short_collections():
        unstarted = LocalCluster(
            run.directory,
            brokers=0,
            elections=0,
            metadata=0,
            coordination=shape.coordination,
            report=run.progress.detail,
        )
        async with launched(unstarted, run.progress) as cluster:
            member = cluster.plan.store
            if member is None:
                raise MeasureError(f"no server of {shape.coordination} was started")
            url = f"{shape.coordination}://{member.address('client')}{PREFIX}"
            store = await open_store(url, session_timeout_s=TIMEOUT_S, operation_timeout_s=TIMEOUT_S)
            try:
                folders: list[Group] = [(Create(folder, b""),) for folder in ("/brokers", paths.TOPICS)]
                members = [_member(id) for id in range(1, BROKERS + 1)]
                total = len(folders) + shape.topics + shape.partitions_total
                await fill(run, store, chain(folders, nodes(shape, members)), total=total)
                return await _repeat(run, store, cluster)
            finally:
                await store.close()


async def _repeat(run: Run, store: Store, cluster: LocalCluster) -> Measured:
    shape = run.shape
    rounds: list[Round] = []
    total = shape.warm_up + shape.repetitions
    for number in range(total):
        await run.clock.sleep(shape.settle_s)
        figures = await _once(run, store, cluster)
        if number >= shape.warm_up:
            rounds.append(figures)
        run.progress.count(number + 1, total, "loads")
    return Measured(rounds=tuple(rounds))


async def _once(run: Run, store: Store, cluster: LocalCluster) -> Round:
    # Reads carry no fence, so that any reign will do.
    reign = Reign(controller_id=ElectionId(1), epoch=ControllerEpoch(1), epoch_version=0)
    fenced = FencedStore(store, reign, run.clock)
    gc.collect()
    before = _processor_time(cluster)
    begun_s = run.clock.monotonic()
    topics = states = 0
    async with aclosing(every_topic(fenced, topics_per_part=TOPICS_PER_ROUND)) as parts:
        async for names, found in parts:
            topics += sum(name in found.nodes for name in names)
            states += sum(len(found.states.get(name, ())) for name in names)
    load_s = run.clock.monotonic() - begun_s
    if (topics, states) != (run.shape.topics, run.shape.partitions_total):
        raise MeasureError(f"{topics:,} topics and {states:,} states were read")
    return {"load_s": load_s, **_processor_time(cluster).since(before, "load")}


def _processor_time(cluster: LocalCluster) -> ProcessorTime:
    return ProcessorTime.of([(row.role.value, row.pid) for row in cluster.status() if row.pid is not None])


async def fill(run: Run, store: Store, groups: Iterable[Group], *, total: int) -> None:
    """Write so many groups, many at a time; raises MeasureError when one of them was not written."""
    written = 0
    waiting: list[Group] = []
    for group in groups:
        waiting.append(group)
        if len(waiting) >= GROUPS_PER_WRITE:
            await _write(store, waiting)
            written += len(waiting)
            waiting = []
            run.progress.count(written, total, "topics and partitions written")
    await _write(store, waiting)
    run.progress.count(total, total, "topics and partitions written")


async def _write(store: Store, groups: Sequence[Group]) -> None:
    outcomes = await store.write_batch(groups)
    if others := [outcome for outcome in outcomes if not isinstance(outcome, Written)]:
        raise MeasureError(f"filling the store: {len(others)} of {len(groups)} nodes were not written: {others[0]}")


def topic_id(number: int) -> TopicId:
    """Id of the topic of that number."""
    return TopicId(encode_id(uuid.UUID(int=number)))


def nodes(shape: Shape, brokers: Sequence[tuple[BrokerId, Membership]]) -> Iterator[Group]:
    """Topics and states as the controller writes them, parents first.

    Args:
        shape: how many, and how many replicas each has, at most one on each broker.
        brokers: who has them in turn, and as which life of a broker.
    """
    lives = dict(brokers)
    order = tuple(lives)
    for number, name in enumerate(shape.names):
        id = topic_id(number)
        replicas = {
            partition: tuple(
                order[(number + partition + step) % len(order)] for step in range(shape.replication_factor)
            )
            for partition in range(shape.partitions)
        }
        yield (Create(paths.topic(name), TopicNode(topic_id=id, partitions=replicas).encode()),)
        for partition, members in replicas.items():
            state = LeaderAndIsr(
                topic_id=id,
                leader=members[0],
                leader_epoch=LeaderEpoch(0),
                isr=members,
                elr=(),
                members={member: lives[member] for member in members},
                controller_epoch=ControllerEpoch(1),
            )
            folder = paths.partition(name, partition)
            yield Create(folder, b""), Create(paths.leader_and_isr(name, partition), state.encode())


def _member(id: int) -> tuple[BrokerId, Membership]:
    log_id = LogId(encode_id(uuid.UUID(int=id)))
    return BrokerId(id), Membership(broker_epoch=BrokerEpoch(100 + id), log_id=log_id)
