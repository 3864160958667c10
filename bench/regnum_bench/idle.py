"""``idle``: what partitions cost a broker that nobody writes to or reads from: memory, processor time, descriptors.

The same brokers first without any topic, and then with all of them; their difference is what the partitions cost. With
more than one replica, followers ask their leaders for what does not come.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from regnum_local.plan import Role

from regnum_bench.figures import Round, quantile
from regnum_bench.memory import Memory
from regnum_bench.stand import Measured, Run, Stand, stand

LOOK_S: Final = 10.0
"""Time over which processor time is counted, seconds."""
PROMISED_REPLICAS: Final = 10_000
"""Replicas of a broker up to which something is promised."""
CPU_RATIO_MAX: Final = 0.03
"""Share of one processor that a broker with so many may take."""
MIB: Final = 1024 * 1024
MEMORY_ABOVE_BYTES_MAX: Final = 60 * MIB
"""Memory that they may take, all together."""


async def idle(run: Run) -> Measured:
    """Figures of each repetition: those of the broker that takes the most."""
    rounds: list[Round] = []
    async with stand(run) as cluster:
        brokers = _brokers(cluster)
        run.progress.step(f"{LOOK_S:g} s without a topic")
        await cluster.settle()
        empty_ratio = await _busiest(cluster, brokers)
        empty = [Memory(pid).resident_bytes() for pid in brokers]
        filled_s = await cluster.fill()
        for number in range(run.shape.warm_up + run.shape.repetitions):
            await cluster.settle()
            cpu_ratio = await _busiest(cluster, brokers)
            memory = [Memory(pid).resident_bytes() for pid in brokers]
            above = max(now - before for now, before in zip(memory, empty, strict=True))
            run.progress.detail(f"{cpu_ratio:.1%} of a processor, {above / MIB:.1f} MiB above an empty broker")
            if number >= run.shape.warm_up:
                rounds.append(
                    {
                        "idle_cpu_ratio": cpu_ratio,
                        "empty_cpu_ratio": empty_ratio,
                        "memory_above_bytes": float(above),
                        "empty_memory_bytes": float(max(empty)),
                        "descriptors_count": float(max(map(_descriptors, brokers))),
                    }
                )
    shape = run.shape
    replicas = -(-shape.partitions_total * shape.replication_factor // shape.brokers)
    return Measured(
        rounds=tuple(rounds),
        complaints=judged(
            [one["idle_cpu_ratio"] for one in rounds],
            [one["memory_above_bytes"] for one in rounds],
            replicas=replicas,
        ),
        details={"replicas_per_broker": replicas, "filled_s": round(filled_s, 2)},
    )


def judged(cpu_ratios: Sequence[float], above_bytes: Sequence[float], *, replicas: int) -> tuple[str, ...]:
    """What is wrong with brokers of so many replicas each. Pure."""
    if replicas > PROMISED_REPLICAS:
        return ()
    cpu, above = quantile(cpu_ratios, 0.5), quantile(above_bytes, 0.5)
    said: list[str] = []
    if cpu > CPU_RATIO_MAX:
        said.append(f"an idle broker takes {cpu:.1%} of a processor, and {CPU_RATIO_MAX:.0%} is allowed")
    if above > MEMORY_ABOVE_BYTES_MAX:
        limit = f"{MEMORY_ABOVE_BYTES_MAX / MIB:.0f} is allowed"
        said.append(f"its partitions take {above / MIB:.0f} MiB, and {limit}")
    return tuple(said)


def _brokers(cluster: Stand) -> list[int]:
    """Process ids."""
    rows = cluster.cluster.status()
    return [row.pid for row in rows if row.role is Role.BROKER and row.pid is not None]


async def _busiest(cluster: Stand, brokers: Sequence[int]) -> float:
    """Share of one processor that the busiest of them takes in the next ``LOOK_S``."""
    clock = cluster.run.clock
    before, began_s = cluster.processor_time().spent_s, clock.monotonic()
    await clock.sleep(LOOK_S)
    after, taken_s = cluster.processor_time().spent_s, clock.monotonic() - began_s
    return max(after[Role.BROKER.value, pid] - before[Role.BROKER.value, pid] for pid in brokers) / taken_s


def _descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
