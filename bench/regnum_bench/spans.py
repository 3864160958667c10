"""``spans``: what traces cost for each batch, in processor time of brokers and producer together.

Two clusters and their producers, one of which records spans as shipped (the control plane's always, of produce calls
one in a thousand) and one with OTEL_SDK_DISABLED. They are measured in turns, in pairs, and each is the first of every
other pair: what else the machine does falls on both alike. Only processor time counts: the cluster that waits costs
nothing.

Each leader has one partition that is written to. Where it has two, their batches share a call or go alone, as chance
has it and for a whole round: half as many calls are a third less processor time, on either side.
"""

import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Final

from regnum_client.traces import ASKS, TRACES_DIR
from regnum_local.plan import TRACES, Role

from regnum_bench.figures import Round, Spread
from regnum_bench.stand import Measured, Run, Stand, stand
from regnum_bench.timed_program import ran

COST_RATIO_MAX: Final = 0.03
"""Of a batch's processor time that spans may take, in the median of the pairs."""

OFF: Final[Mapping[str, str]] = {"OTEL_SDK_DISABLED": "true"}
ON: Final[Mapping[str, str]] = {}


async def spans(run: Run) -> Measured:
    """Figures of each pair."""
    rounds: list[Round] = []
    shape = run.shape
    async with AsyncExitStack() as ends:
        on = await ends.enter_async_context(_stand(run, "on", ON))
        off = await ends.enter_async_context(_stand(run, "off", OFF))
        for number in range(shape.warm_up + shape.repetitions):
            await on.settle()
            sides = [(on, ON, "on"), (off, OFF, "off")]
            figures: dict[str, float] = {}
            for cluster, environment, side in sides if number % 2 else reversed(sides):
                figures |= await _spent(cluster, environment, side)
            figures["spans_cost_ratio"] = figures["on_us"] / figures["off_us"] - 1
            run.progress.detail(
                f"{figures['on_us']:.1f} and {figures['off_us']:.1f} us for a batch: {figures['spans_cost_ratio']:+.1%}"
            )
            if number >= shape.warm_up:
                rounds.append(figures)
    return Measured(rounds=tuple(rounds))


def spans_complaints(figures: Mapping[str, Spread]) -> tuple[str, ...]:
    """Whether they cost more than is allowed. Pure."""
    cost = figures["spans_cost_ratio"].median
    if cost <= COST_RATIO_MAX:
        return ()
    return (f"spans take {cost:.1%} of a batch's processor time, and {COST_RATIO_MAX:.0%} is allowed",)


@asynccontextmanager
async def _stand(run: Run, name: str, environment: Mapping[str, str]) -> AsyncIterator[Stand]:
    folder = run.directory / name
    folder.mkdir()
    async with AsyncExitStack() as ends:
        with _environment(environment):
            cluster = await ends.enter_async_context(stand(replace(run, directory=folder)))
        await cluster.fill()
        yield cluster


@contextmanager
def _environment(added: Mapping[str, str]) -> Iterator[None]:
    """Processes that begin within have these variables, and none that sends spans elsewhere."""
    before = dict(os.environ)
    os.environ.update(added)
    for name in ASKS:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


async def _spent(cluster: Stand, environment: Mapping[str, str], side: str) -> Round:
    """Processor time of a batch, in microseconds: of brokers and producer, and both together."""
    shape = cluster.run.shape
    words = (
        ",".join(cluster.cluster.bootstrap),
        shape.names[0],
        *map(str, (shape.partitions, shape.records, shape.size)),
    )
    kept = {name: value for name, value in os.environ.items() if name not in ASKS}
    told = {**kept, **environment, TRACES_DIR: str(cluster.cluster.data_dir / TRACES)}
    rows = cluster.cluster.status()
    brokers = [str(row.pid) for row in rows if row.role is Role.BROKER and row.pid is not None]
    program = await ran(
        (sys.executable, "-m", "regnum_bench.spans_client", *words, *brokers),
        within_s=shape.deadline_s,
        environment=told,
    )
    producer_s, brokers_s = map(float, program.output.split())
    batches = shape.records // shape.partitions * shape.partitions
    return {
        f"{side}_us": (brokers_s + producer_s) / batches * 1e6,
        f"{side}_brokers_us": brokers_s / batches * 1e6,
        f"{side}_producer_us": producer_s / batches * 1e6,
    }
