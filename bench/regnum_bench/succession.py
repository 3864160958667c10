"""``succession``: kill -9 of the controller, until every broker's metadata names the next one, and until INIT is done.

The second is the end of the new controller's trace: every broker has acknowledged its full set.
"""

from regnum_telemetry import conventions

from regnum_bench.failover import trace
from regnum_bench.figures import Round
from regnum_bench.shape import ShapeError
from regnum_bench.stages import noticed_ns, stages_ms
from regnum_bench.stand import Measured, Run, Stand, stand


async def succession(run: Run) -> Measured:
    """Figures of each repetition: seconds, and the new controller's stages in milliseconds."""
    if run.shape.elections < 2:
        raise ShapeError("a succession needs at least 2 election processes")
    rounds: list[Round] = []
    notes: list[str] = []
    async with stand(run) as cluster:
        filled_s = await cluster.fill()
        total = run.shape.warm_up + run.shape.repetitions
        for number in range(total):
            await cluster.settle()
            name, figures = await _once(cluster, notes)
            if number >= run.shape.warm_up:
                rounds.append(figures)
            if number + 1 < total:
                await cluster.mend(name)
    return Measured(rounds=tuple(rounds), notes=tuple(dict.fromkeys(notes)), details={"filled_s": round(filled_s, 2)})


async def _once(cluster: Stand, notes: list[str]) -> tuple[str, Round]:
    run = cluster.run
    victim, epoch = await cluster.controller()
    name = f"election-{victim}"
    run.progress.step(f"kill -9 of {name}, the controller, with {run.shape.partitions_total:,} partitions")
    cluster.traces.skip()
    deadline = run.deadline("the next controller known to every broker")
    # INIT included: that is where work is left.
    async with cluster.watched("succession") as cpu:
        kill = await cluster.kill(name)
        from_kill_s = await cluster.next_controller(epoch, deadline) - kill.at_s
        run.progress.detail(f"every broker knows the next controller after {from_kill_s:.3f} s")
        figures: dict[str, float] = {"from_kill_s": from_kill_s}
        found = await trace(
            cluster, conventions.KIND_SUCCESSION, victim=victim, kill=kill, within_s=run.shape.deadline_s
        )
    figures.update(cpu)
    if found is None:
        notes.append("a succession without a trace: when INIT was done is not known")
        return name, figures
    root, spans = found
    figures["init_done_s"] = (int(root.attributes[conventions.DISPATCHED_UNIX_NANO]) - kill.at_ns) / 1e9
    figures["notice_ms"] = (noticed_ns(root) - kill.at_ns) / 1e6
    figures.update({f"{stage}_ms": length for stage, length in stages_ms(root, spans).items()})
    run.progress.detail(f"INIT done after {figures['init_done_s']:.3f} s")
    return name, figures
