"""``storm --quota RATE``: clients that ignore throttle times against a quota; ``--kill 1``: a broker dies meanwhile.

Every repetition is a pair: a broker failure on a quiet cluster and one in the middle of the storm, in turn first and
second, so that both meet the same machine. The callers are connections of their own, each with several calls under
way, none of which waits for what it was told; they begin at once again, whatever the answer. The topics that got
through are deleted after each storm.

How long the controller's queue makes events wait is the controller's own histogram, as exact as its bounds are: the
figure is the upper bound of the bucket, of what came while the storm was refused.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from regnum_client import Admin, CreatedTopic, NewTopic, QuotaEntity
from regnum_client.admin.describing.quota_usage import QueueWait
from regnum_model.quotas import RATE_KEY
from regnum_service.errors import RegnumError

from regnum_bench.failover import VICTIM, moved
from regnum_bench.figures import Round, spreads
from regnum_bench.shape import ShapeError
from regnum_bench.stand import Measured, Run, Stand, in_place, stand
from regnum_bench.waiting import MeasureError

CLIENT_ID: Final = "regnum-bench-storm"
"""Whom the quota limits: all callers together."""
PREFIX: Final = "storm-"
"""What the names of their topics begin with."""
CALLS_EACH: Final = 4
"""Calls of each connection that are under way."""
REFUSALS_FIRST: Final = 20
"""Topics that are refused before the storm counts as one that is refused."""
CALL_S: Final = 60.0
QUEUE_WAIT_MAX_MS: Final = 50.0
"""What must hold: 99 of 100 events wait less than that while the storm is refused."""
RATIO_MAX: Final = 1.2
"""What must hold: a failure in the middle takes no longer than that many times one without a storm."""
PAIRS_MIN: Final = 20
"""Pairs from which on their medians say whether it does."""


@dataclass(slots=True)
class _Storm:
    """What has come of it so far."""

    names: "itertools.count[int]" = field(default_factory=itertools.count)
    created: int = 0
    refused: int = 0
    calls: int = 0


async def quota_storm(run: Run) -> Measured:
    """Figures of each pair."""
    shape = run.shape
    if shape.kill and (shape.replication_factor < 2 or shape.brokers < 3):
        raise ShapeError("a storm with a kill needs at least 3 brokers and 2 replicas")
    rounds: list[Round] = []
    async with stand(run, quotas=2) as cluster:
        await cluster.fill(victim=VICTIM)
        entity = QuotaEntity(client_id=CLIENT_ID)
        await cluster.admin.alter_client_quota(entity, set={RATE_KEY: shape.quota})
        for number in range(shape.warm_up + shape.repetitions):
            figures: dict[str, float] = {}
            for stormy in (False, True) if number % 2 == 0 else (True, False):
                if stormy:
                    figures.update(await _stormy(cluster))
                elif shape.kill:
                    await cluster.settle()
                    figures["from_kill_s"] = await _kill(cluster)
                if shape.kill:
                    await cluster.mend(f"broker-{VICTIM}", holds=in_place)
            if number >= shape.warm_up:
                rounds.append(figures)
    return Measured(rounds=tuple(rounds), complaints=_complaints(rounds))


def _complaints(rounds: list[Round]) -> tuple[str, ...]:
    found = spreads(rounds)
    complaints = []
    waited_ms = found["queue_wait_p99_ms"].most
    if waited_ms > QUEUE_WAIT_MAX_MS:
        complaints.append(f"the controller's queue made 1 event of 100 wait up to {waited_ms:g} ms, above 50")
    if "from_kill_s" in found and len(rounds) >= PAIRS_MIN:
        ratio = found["storm_from_kill_s"].median / found["from_kill_s"].median
        if ratio > RATIO_MAX:
            complaints.append(f"a failure in the storm took {ratio:.2f} times as long as one without, above 1.2")
    return tuple(complaints)


async def _stormy(cluster: Stand) -> dict[str, float]:
    run, shape = cluster.run, cluster.run.shape
    await cluster.settle()
    storm = _Storm()
    figures: dict[str, float] = {}
    run.progress.step(f"{shape.in_flight} connections storm a quota of {shape.quota:g} partitions a second")
    async with _blowing(cluster, storm):
        await _until_refused(cluster, storm)
        before, begun_s = await _waits(cluster.admin), run.clock.monotonic()
        refused, calls = storm.refused, storm.calls
        await run.clock.sleep(shape.settle_s)
        after, taken_s = await _waits(cluster.admin), run.clock.monotonic() - begun_s
        figures |= {
            "refused_per_s": (storm.refused - refused) / taken_s,
            "calls_per_s": (storm.calls - calls) / taken_s,
            "queue_wait_p99_ms": _p99_ms(before, after, *after),
            "queue_wait_cluster_p99_ms": _p99_ms(before, after, "cluster"),
            "queue_wait_mutations_p99_ms": _p99_ms(before, after, "mutations"),
        }
        # Apart from the time above: what a failure itself makes wait is no matter of the storm.
        if shape.kill:
            figures["storm_from_kill_s"] = await _kill(cluster)
    figures["admitted_count"] = float(storm.created)
    await _clear(cluster)
    return figures


@asynccontextmanager
async def _blowing(cluster: Stand, storm: _Storm) -> AsyncIterator[None]:
    admins = [
        Admin(cluster.cluster.bootstrap, timeout_s=CALL_S, client_id=CLIENT_ID)
        for _ in range(cluster.run.shape.in_flight)
    ]
    callers: list[asyncio.Task[None]] = []
    try:
        for admin in admins:
            await admin.__aenter__()
            callers += [asyncio.create_task(_ignore(cluster, admin, storm), name="caller") for _ in range(CALLS_EACH)]
        yield
        for caller in callers:
            if caller.done():
                caller.result()
    finally:
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        for admin in admins:
            await admin.__aexit__(None, None, None)


async def _ignore(cluster: Stand, admin: Admin, storm: _Storm) -> None:
    """Call after call, whatever is answered."""
    shape = cluster.run.shape
    while True:
        topics = [
            NewTopic(
                name=f"{PREFIX}{next(storm.names):08d}",
                partitions=shape.partitions,
                replication_factor=shape.replication_factor,
            )
            for _ in range(shape.batch)
        ]
        try:
            answers = await admin.create_topics(topics, retry_on_quota_violation=False)
        except RegnumError as error:
            # Calls beyond those that are held are refused whole, and late ones are dropped: both are a refusal.
            if error.traits.outcome_known:
                storm.refused += len(topics)
            continue
        storm.calls += 1
        storm.created += sum(isinstance(answer, CreatedTopic) for answer in answers.values())
        storm.refused += sum(isinstance(answer, RegnumError) for answer in answers.values())


async def _until_refused(cluster: Stand, storm: _Storm) -> None:
    async def is_refused() -> bool:
        return storm.refused >= REFUSALS_FIRST

    deadline = cluster.run.deadline("the storm to be refused")
    await deadline.wait(is_refused, every_s=0.05, so_far=lambda: f"{storm.refused} topics refused")


async def _kill(cluster: Stand) -> float:
    """Seconds from the kill of a broker until every other one names the next leaders of all it led."""
    shape, run = cluster.run.shape, cluster.run
    leaders = await cluster.look.leaders(next(broker for broker in cluster.brokers if broker != VICTIM))
    names = sorted({topic for (topic, _), leader in leaders.items() if leader == VICTIM} & set(shape.names))
    if not names:
        raise MeasureError(f"broker {VICTIM} leads nothing: killing it would show nothing")
    deadline = run.deadline(f"new leaders of what broker {VICTIM} led")
    kill = await cluster.kill(f"broker-{VICTIM}")
    known = await cluster.look.until_right(cluster.brokers, names, moved, deadline)
    run.progress.detail(f"every broker knows after {known.at_s - kill.at_s:.3f} s")
    return known.at_s - kill.at_s


async def _waits(admin: Admin) -> Mapping[str, QueueWait]:
    return (await admin.describe_quota_usage(1)).queue_waits


def _p99_ms(before: Mapping[str, QueueWait], after: Mapping[str, QueueWait], *kinds: str) -> float:
    """Of everything of some kinds that the queue made wait in between; 0 when that was nothing."""
    since = [after[kind].since(before.get(kind)) for kind in kinds]
    counts = tuple(map(sum, zip(*(wait.counts for wait in since), strict=True)))
    found = QueueWait(bounds_s=since[0].bounds_s, counts=counts).quantile_s(0.99) if since else None
    return 0.0 if found is None else found * 1000


async def _clear(cluster: Stand) -> None:
    """Delete what got through, also by the last calls, whose answers nobody has."""
    wanted = [topic.name for topic in await cluster.admin.list_topics() if topic.name.startswith(PREFIX)]
    for start in range(0, len(wanted), 500):
        answers = await cluster.admin.delete_topics(wanted[start : start + 500], timeout_s=cluster.run.shape.deadline_s)
        wrong = [str(answer) for answer in answers.values() if isinstance(answer, RegnumError)]
        if wrong:
            raise MeasureError(f"a topic of the storm was not deleted: {wrong[0]}")
