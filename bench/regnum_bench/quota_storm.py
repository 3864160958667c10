"""``storm --quota RATE``: clients that ignore throttle times against a quota; ``--kill 1``: a broker dies meanwhile.

Every repetition is a pair: a broker failure on a quiet cluster and one in the middle of the storm, in turn first and
second, so that both meet the same machine. Both meet the same cluster as well: what a quota lets through are topics
like others, and a broker that leads half as many partitions again takes half as long again to replace. So the topics of
a storm stay for the quiet failure behind it, and as many as the storm before had are made for one that comes first.
The callers are connections of their own, each with several calls under way, none of which waits for what it was told;
they begin at once again, whatever the answer.

How long the controller's queue makes events wait is the controller's own histogram, as exact as its bounds are: the
figure is the upper bound of the bucket. Three stretches of time are told apart:

    1. the burst: what a full bucket admits at once is work that the quota allows, and its calls wait for one another;
    2. the storm that is refused: from when every caller has had a whole call refused, so that nothing of the burst is
       in the queue any more, for ``--settle-s``. This is what the limit is for;
    3. the kill: what a failure makes wait is no matter of the storm, and its own figure says how long it takes.

In the first two an operator, whom no quota limits, creates topics, one call after the other: what the storm costs
people who do not take part in it.
"""

import asyncio
import itertools
import statistics
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from regnum_client import Admin, CreatedTopic, NewTopic, QuotaEntity
from regnum_client.admin.describing.quota_usage import QueueWait
from regnum_model.quotas import RATE_KEY
from regnum_service.errors import RegnumError

from regnum_bench.failover import VICTIM, moved
from regnum_bench.figures import Round, Spread
from regnum_bench.shape import ShapeError
from regnum_bench.stand import Measured, Run, Stand, create_some, in_place, stand
from regnum_bench.waiting import MeasureError

CLIENT_ID: Final = "regnum-bench-storm"
"""Whom the quota limits: all callers together."""
PREFIX: Final = "storm-"
"""What the names of their topics begin with."""
CALLS_EACH: Final = 4
"""Calls of each connection that are under way."""
OPERATOR_PAUSE_S: Final = 0.1
"""Between two calls of the operator."""
OPERATOR_CALLS_QUIET: Final = 10
"""Calls of the operator before the storm."""
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

    names: "itertools.count[int]"
    created: int = 0
    refused: int = 0
    calls: int = 0
    held_off: set[int] = field(default_factory=set)
    """Callers of whom a whole call was refused: nothing of the burst is theirs, or it is done."""


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
        names = itertools.count()
        admitted = 0
        for number in range(shape.warm_up + shape.repetitions):
            figures: dict[str, float] = {}
            # The first storm comes first: it says how many topics a quiet failure is to meet.
            storm_first = number % 2 == 0
            if shape.kill and not storm_first:
                await _make(cluster, names, admitted)
                figures["from_kill_s"] = await _quiet_kill(cluster)
                await _clear(cluster)
            storm = _Storm(names)
            figures.update(await _stormy(cluster, storm))
            admitted = storm.created
            if shape.kill:
                await cluster.mend(f"broker-{VICTIM}", holds=in_place)
            if shape.kill and storm_first:
                figures["from_kill_s"] = await _quiet_kill(cluster)
            await _clear(cluster)
            if number >= shape.warm_up:
                rounds.append(figures)
    return Measured(rounds=tuple(rounds))


def storm_complaints(found: Mapping[str, Spread]) -> tuple[str, ...]:
    """Which limits the figures of all pairs do not keep; of a storm without a quota nothing is said."""
    complaints: list[str] = []
    if "queue_wait_p99_ms" not in found:
        return ()
    waited_ms = found["queue_wait_p99_ms"].most
    if waited_ms > QUEUE_WAIT_MAX_MS:
        complaints.append(f"the controller's queue made 1 event of 100 wait up to {waited_ms:g} ms, above 50")
    if "from_kill_s" in found and len(found["from_kill_s"].values) >= PAIRS_MIN:
        ratio = found["storm_from_kill_s"].median / found["from_kill_s"].median
        if ratio > RATIO_MAX:
            complaints.append(f"a failure in the storm took {ratio:.2f} times as long as one without, above 1.2")
    return tuple(complaints)


async def _make(cluster: Stand, names: "itertools.count[int]", count: int) -> None:
    """As many topics as the last storm got through."""
    shape = cluster.run.shape
    topics = [
        NewTopic(
            name=f"{PREFIX}{next(names):08d}", partitions=shape.partitions, replication_factor=shape.replication_factor
        )
        for _ in range(count)
    ]
    if topics:
        await create_some(cluster.admin, topics, timeout_s=CALL_S)


async def _quiet_kill(cluster: Stand) -> float:
    """What a failure takes while nobody storms; the broker is back afterwards."""
    await cluster.settle()
    taken_s = await _kill(cluster)
    await cluster.mend(f"broker-{VICTIM}", holds=in_place)
    return taken_s


async def _stormy(cluster: Stand, storm: _Storm) -> dict[str, float]:
    """Figures of one storm; what it got through stays."""
    run, shape = cluster.run, cluster.run.shape
    await cluster.settle()
    figures: dict[str, float] = {}
    operator = _Operator(cluster, storm.names)
    async with operator.at_work():
        await operator.done(OPERATOR_CALLS_QUIET)
        quiet_s = operator.taken_s()
        run.progress.step(f"{shape.in_flight} connections storm a quota of {shape.quota:g} partitions a second")
        began = await _waits(cluster.admin)
        async with _blowing(cluster, storm):
            await _until_held_off(cluster, storm)
            before, begun_s = await _waits(cluster.admin), run.clock.monotonic()
            refused, calls = storm.refused, storm.calls
            burst_s = operator.taken_s()
            await run.clock.sleep(shape.settle_s)
            after, taken_s = await _waits(cluster.admin), run.clock.monotonic() - begun_s
            await operator.pause()
            figures |= {
                "refused_per_s": (storm.refused - refused) / taken_s,
                "calls_per_s": (storm.calls - calls) / taken_s,
                "queue_wait_p99_ms": _p99_ms(before, after, *after),
                **{f"queue_wait_{kind}_p99_ms": _p99_ms(before, after, kind) for kind in after},
                "queue_wait_burst_p99_ms": _p99_ms(began, before, *before),
                "operator_quiet_s": statistics.median(quiet_s),
                "operator_s": statistics.median(operator.taken_s() or [0.0]),
                "operator_in_burst_s": max(burst_s, default=0.0),
            }
            if shape.kill:
                figures["storm_from_kill_s"] = await _kill(cluster)
    figures["admitted_count"] = float(storm.created)
    return figures


class _Operator:
    """Somebody whom no quota limits: one topic, and when that is made the next."""

    def __init__(self, cluster: Stand, names: "itertools.count[int]") -> None:
        self._cluster: Final = cluster
        self._names: Final = names
        self._taken_s: list[float] = []
        self._may_go_on: Final = asyncio.Event()
        self._is_between_calls: Final = asyncio.Event()

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Until the block ends; raises what failed."""
        self._may_go_on.set()
        self._is_between_calls.set()
        task = asyncio.create_task(self._work(), name="operator")
        try:
            yield
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def pause(self) -> None:
        """Make no further call; returns when the last is answered."""
        self._may_go_on.clear()
        await self._is_between_calls.wait()

    async def done(self, calls: int) -> None:
        """Return when so many calls are answered. Raises NotInTimeError."""

        async def enough() -> bool:
            return len(self._taken_s) >= calls

        await self._cluster.run.deadline("topics of an operator").wait(
            enough, every_s=0.05, so_far=lambda: f"{len(self._taken_s)} of {calls} made"
        )

    def taken_s(self) -> list[float]:
        """How long the calls took that were answered since this was asked last."""
        taken_s, self._taken_s = self._taken_s, []
        return taken_s

    async def _work(self) -> None:
        clock, shape = self._cluster.run.clock, self._cluster.run.shape
        while True:
            while not self._may_go_on.is_set():
                await self._may_go_on.wait()
            name = f"{PREFIX}operator-{next(self._names):08d}"
            topic = NewTopic(name=name, partitions=1, replication_factor=shape.replication_factor)
            begun_s = clock.monotonic()
            self._is_between_calls.clear()
            try:
                await create_some(self._cluster.admin, [topic], timeout_s=CALL_S)
            finally:
                self._is_between_calls.set()
            self._taken_s.append(clock.monotonic() - begun_s)
            await clock.sleep(OPERATOR_PAUSE_S)


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
            for _ in range(CALLS_EACH):
                number = len(callers)
                callers.append(asyncio.create_task(_ignore(cluster, admin, storm, number), name=f"caller {number}"))
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


async def _ignore(cluster: Stand, admin: Admin, storm: _Storm, number: int) -> None:
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
                storm.held_off.add(number)
            continue
        refused = sum(isinstance(answer, RegnumError) for answer in answers.values())
        storm.calls += 1
        storm.created += sum(isinstance(answer, CreatedTopic) for answer in answers.values())
        storm.refused += refused
        if refused == len(topics):
            storm.held_off.add(number)


async def _until_held_off(cluster: Stand, storm: _Storm) -> None:
    callers = cluster.run.shape.in_flight * CALLS_EACH

    async def is_refused() -> bool:
        return len(storm.held_off) == callers

    deadline = cluster.run.deadline("a whole call of every caller to be refused")
    await deadline.wait(is_refused, every_s=0.05, so_far=lambda: f"of {len(storm.held_off)} of {callers} one was")


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
