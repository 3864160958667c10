"""``failover``: kill -9 of a broker that leads partitions, until every live broker's metadata names other leaders.

Between repetitions the victim returns, its replicas come in sync, and leaders go back to where they were, so that each
repetition moves the same number of partitions.
"""

from regnum.types.v1 import types_pb2
from regnum_local.cluster import ProcessState
from regnum_local.plan import Role
from regnum_telemetry import conventions

from regnum_bench.figures import Round
from regnum_bench.shape import ShapeError
from regnum_bench.stages import Span, noticed_ns, root_of, stages_ms
from regnum_bench.stand import Kill, Measured, Run, Stand, in_place, stand
from regnum_bench.waiting import Deadline, MeasureError, NotInTimeError

VICTIM = 1
"""Broker that is killed."""
TRACE_S = 15.0
"""Time for the controller's spans to be written after the brokers know."""
TRACE_POLL_S = 0.2


async def failover(run: Run) -> Measured:
    """Figures of each repetition: seconds, and the controller's stages in milliseconds."""
    if run.shape.with_controller and run.shape.elections < 2:
        raise ShapeError("without the controller a failover needs at least 2 election processes")
    if run.shape.replication_factor < 2 or run.shape.brokers < 2:
        raise ShapeError("a failover needs at least 2 brokers and 2 replicas")
    rounds: list[Round] = []
    notes: list[str] = []
    async with stand(run) as cluster:
        filled_s = await cluster.fill(victim=VICTIM)
        run.progress.detail(f"{run.shape.partitions_total:,} partitions known everywhere after {filled_s:.1f} s")
        total = run.shape.warm_up + run.shape.repetitions
        for number in range(total):
            await cluster.settle()
            figures = await _once(cluster, notes)
            if number >= run.shape.warm_up:
                rounds.append(figures)
            if number + 1 < total:
                if run.shape.with_controller:
                    await cluster.mend(*_dead_elections(cluster))
                await cluster.mend(f"broker-{VICTIM}", holds=in_place)
    return Measured(rounds=tuple(rounds), notes=tuple(dict.fromkeys(notes)), details={"filled_s": round(filled_s, 2)})


async def _once(cluster: Stand, notes: list[str]) -> Round:
    run = cluster.run
    leaders = await cluster.look.leaders(next(broker for broker in cluster.brokers if broker != VICTIM))
    led = [key for key, leader in leaders.items() if leader == VICTIM]
    if not led:
        raise MeasureError(f"broker {VICTIM} leads nothing: killing it would show nothing")
    names = list(dict.fromkeys(topic for topic, _ in led))
    controller, epoch = await cluster.controller()
    too = (f"election-{controller}",) if run.shape.with_controller else ()
    both = f" and of {too[0]}, the controller" if too else ""
    run.progress.step(f"kill -9 of broker {VICTIM}, which leads {len(led):,} of {len(leaders):,} partitions{both}")
    cluster.traces.skip()
    deadline = run.deadline(f"new leaders of {len(led):,} partitions known to every broker")
    async with cluster.watched("failover") as cpu:
        kill = await cluster.kill(f"broker-{VICTIM}", *too)
        named_s = await cluster.next_controller(epoch, deadline) if too else kill.at_s
        known = await cluster.look.until_right(cluster.brokers, names, moved, deadline)
    from_kill_s = known.at_s - kill.at_s
    run.progress.detail(f"every broker knows after {from_kill_s:.3f} s")
    figures = {"from_kill_s": from_kill_s, "leaders_moved": float(len(led)), "looked_s": known.looked_s}
    if too:
        figures["controller_from_kill_s"] = named_s - kill.at_s
    traced = await failover_stages(cluster, VICTIM, kill)
    if not traced:
        notes.append("a failover without a trace: its stages are missing")
    return {**figures, **traced, **cpu}


def _dead_elections(cluster: Stand) -> tuple[str, ...]:
    """Election processes that were killed."""
    rows = cluster.cluster.status()
    return tuple(row.name for row in rows if row.role is Role.ELECTION and row.state is ProcessState.EXITED)


def moved(topic: types_pb2.TopicState) -> bool:
    """Whether others lead whatever the victim led."""
    return all(state.leader not in {-1, VICTIM} for state in topic.partitions)


async def failover_stages(cluster: Stand, victim: int, kill: Kill) -> Round:
    """Stages of a broker's failover in milliseconds; empty without a trace."""
    found = await trace(cluster, conventions.KIND_BROKER_FAILURE, victim=victim, kill=kill, within_s=TRACE_S)
    if found is None:
        return {}
    root, spans = found
    stages = {f"{name}_ms": length for name, length in stages_ms(root, spans).items()}
    return {"notice_ms": (noticed_ns(root) - kill.at_ns) / 1e6, **stages}


async def trace(
    cluster: Stand, kind: str, *, victim: int, kill: Kill, within_s: float
) -> tuple[Span, list[Span]] | None:
    """The root of a kill and all spans since; None when there is none in time."""
    spans: list[Span] = []
    roots: list[Span] = []

    async def written() -> bool:
        spans.extend(cluster.traces.new())
        root = root_of(spans, kind, victim=victim, since_ns=kill.at_ns)
        if root is not None:
            roots.append(root)
        return root is not None

    deadline = Deadline(cluster.run.clock, within_s, f"the trace of a {kind}")
    try:
        await deadline.wait(written, every_s=TRACE_POLL_S, so_far=lambda: f"{len(spans):,} spans")
    except NotInTimeError:
        return None
    # Spans are written every 50 ms: those of the other processes are out as well after this.
    await cluster.run.clock.sleep(TRACE_POLL_S)
    spans.extend(cluster.traces.new())
    return root_of(spans, kind, victim=victim, since_ns=kill.at_ns) or roots[-1], spans
