"""``outage``: kill -9 of a leader under load, again and again: how long a producer waits for an acknowledgement.

One more topic is written to, a record to each partition every few milliseconds; the topics of the shape stand idle
beside it. A repetition is a kill of the broker that leads most of it. Before each kill nothing is hurt for a while: the
longest gap of that time says what the machine adds by itself. Where it is above 50 ms the kill waits for a quieter
time, whose length is a figure; a run in which none came is void. What follows a kill counts, whatever the machine does.

What this process does besides would be measured as a gap: it reads nothing until the end, it collects no garbage in the
time that counts, and that time begins only when what the last kill left to do has had time to be done. How late its own
loop was in the quiet time is a figure, which tells a pause of the bench from one of the cluster.
"""

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from regnum_client import Admin, Producer, ProducerSettings, TopicPartition
from regnum_local.demo.scenes import SceneError, Stage
from regnum_local.demo.verdict import Verdict, judge
from regnum_local.demo.workload import Load, read_everything
from regnum_service.clock import Clock
from regnum_service.collector import short_collections

from regnum_bench.failover import failover_stages
from regnum_bench.figures import Round
from regnum_bench.stand import Kill, Measured, Run, Stand, stand
from regnum_bench.waiting import MeasureError

LOADED: Final = "bench-loaded"
"""The topic that is written to."""
USUAL_GAP_MAX_S: Final = 0.05
"""Longest gap without a kill with which a run says anything."""
QUIET_S: Final = 2.0
"""Time before each kill in which nothing is hurt and gaps are looked for, seconds."""
QUIET_WAIT_S: Final = 30.0
"""Longest wait of a kill for such a time without a gap, seconds: others on the same host come and go."""
LATENESS_EVERY_S: Final = 0.005
"""Between two looks at how late the loop of this process is, seconds."""
NEVER_S: Final = 1e6
"""Leaders stay where they are: a leader that moves in good order is no outage, and would look like one."""


async def outage(run: Run) -> Measured:
    """Figures of each kill."""
    # The load remembers every record: a collection that walks over all of them would be measured as a gap.
    with short_collections():
        return await _outage(run)


async def _outage(run: Run) -> Measured:
    shape = run.shape
    keys = [TopicPartition(LOADED, number) for number in range(shape.loaded)]
    async with stand(run, balance_s=NEVER_S) as cluster:
        filled_s = await cluster.fill()
        await cluster.admin.create_topic(LOADED, partitions=shape.loaded, replication_factor=shape.replication_factor)
        bootstrap = cluster.cluster.bootstrap
        async with (
            Admin(bootstrap) as admin,
            Producer(bootstrap, settings=ProducerSettings(linger_ms=2, metadata_watch=bool(shape.told))) as producer,
        ):
            interval_s = shape.interval_ms / 1000
            load = Load(producer=producer, consumer=None, partitions=keys, interval_s=interval_s, clock=run.clock)
            stage = Stage(
                cluster=cluster.cluster,
                admin=admin,
                load=load,
                topics=[LOADED],
                clock=run.clock,
                narrator=run.progress,
            )
            try:
                await load.start()
                rounds = [await _kill(cluster, stage) for _ in range(shape.kills)]
                await load.finish()
            except SceneError as error:
                raise MeasureError(str(error)) from error
            finally:
                await load.abandon()
        logs = await read_everything(bootstrap, keys)
    verdict = Verdict()
    for partition, history in load.histories.items():
        verdict += judge(sent=history.sent, acknowledged=history.acknowledged, log=logs[partition])
    return Measured(
        rounds=tuple(rounds),
        complaints=complaints(verdict),
        void=void(rounds),
        details={"filled_s": round(filled_s, 2), "acknowledged": verdict.acknowledged, "lost": len(verdict.lost)},
    )


def void(rounds: list[Round]) -> tuple[str, ...]:
    """What makes the figures worthless. Pure."""
    usual_s = max(one["usual_gap_s"] for one in rounds)
    if usual_s <= USUAL_GAP_MAX_S:
        return ()
    late_s = max(one["bench_late_s"] for one in rounds)
    gap = f"the longest gap without a kill was {usual_s * 1000:.0f} ms, above {USUAL_GAP_MAX_S * 1000:.0f} ms"
    return (f"{gap} (this process was late by {late_s * 1000:.0f} ms at most)",)


def complaints(verdict: Verdict) -> tuple[str, ...]:
    """What is wrong with what was kept. Pure."""
    if verdict.clean:
        return ()
    harm = (
        f"{len(verdict.lost)} lost, {len(verdict.duplicated)} doubled, {len(verdict.reordered)} out of order, "
        f"{len(verdict.moved)} moved"
    )
    return (f"records were harmed: {harm}",)


async def _kill(cluster: Stand, stage: Stage) -> Round:
    run = cluster.run
    # A broker that came back is in sync before everybody has heard of it, and the first records cost more than others.
    await stage.run_for(run.shape.settle_s)
    begun_s = run.clock.monotonic()
    while True:
        with collected_before():
            usual = await _quiet(stage, run.clock)
            waited_s = run.clock.monotonic() - begun_s - QUIET_S
            if usual["usual_gap_s"] <= USUAL_GAP_MAX_S or waited_s > QUIET_WAIT_S:
                return {**await _outage_of(cluster, stage), **usual, "quiet_wait_s": max(waited_s, 0.0)}


async def _quiet(stage: Stage, clock: Clock) -> Round:
    begun_s, late_s = clock.monotonic(), 0.0
    while (now_s := clock.monotonic()) < begun_s + QUIET_S:
        await stage.run_for(LATENESS_EVERY_S)
        late_s = max(late_s, clock.monotonic() - now_s - LATENESS_EVERY_S)
    return {"usual_gap_s": stage.usual_gap_s(begun_s), "bench_late_s": late_s}


@contextmanager
def collected_before() -> Iterator[None]:
    """No garbage collection meanwhile, and one before."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _outage_of(cluster: Stand, stage: Stage) -> Round:
    run = cluster.run
    now = await stage.look()
    busiest, _ = Counter(now.leaders.values()).most_common(1)[0]
    cluster.traces.skip()
    kill = Kill(at_s=run.clock.monotonic(), at_ns=run.clock.wall_ms() * 1_000_000)
    found = await stage.kill_leader(now.led_by(busiest)[0])
    stages = dict(await failover_stages(cluster, busiest, kill))
    # The kill came somewhat later than the moment that was taken: the load is looked at first.
    stages.pop("notice_ms", None)
    for name in tuple(stage.killed):
        await stage.restart(name)
    await stage.all_in_sync(within_s=run.shape.deadline_s)
    return {
        "gap_s": found.client_s,
        "successor_s": found.successor_s,
        "led_count": float(found.partitions),
        **stages,
    }
