"""What ``regnum-bench all`` runs at which size. Pure.

``quick`` is for every day: all benchmarks on both stores, within 15 minutes on two processors. ``full`` is what stands
in the documentation: the sizes of the targets, and the growth of each figure; hours.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from regnum_bench.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One benchmark at one shape, or over sizes."""

    benchmark: str
    """Its name."""
    shape: Shape
    """Its shape."""
    label: str = ""
    """Tells it from others of the same benchmark."""
    over: str | None = None
    """What grows; None: nothing does."""
    sizes: tuple[int, ...] = ()
    """How large it is."""

    @property
    def title(self) -> str:
        """For progress."""
        over = "" if self.over is None else f" over {self.over} {', '.join(f'{size:,}' for size in self.sizes)}"
        label = f" ({self.label})" if self.label else ""
        return f"{self.benchmark}{label} on {self.shape.coordination}{over}"


def jobs(size: str, *, stores: Sequence[str], only: Sequence[str] = ()) -> Iterator[Job]:
    """The jobs of a size, store by store."""
    for store in stores:
        for job in SIZES[size](store):
            if not only or job.benchmark in only:
                yield job


def _quick(store: str) -> Iterator[Job]:
    once = Shape(coordination=store, repetitions=1, warm_up=0, deadline_s=120.0)
    yield Job(benchmark="failover", shape=once)
    yield Job(benchmark="succession", shape=once)
    yield Job(benchmark="storm", shape=once.changed({"topics": 200, "partitions": 4}))
    yield Job(benchmark="outage", shape=once.changed({"topics": 1, "partitions": 1, "kills": 3}))
    yield Job(benchmark="told", shape=once.changed({"topics": 1, "partitions": 1}))
    moved = {"brokers": 4, "topics": 1, "partitions": 60, "rate": 60.0, "size_mb": 10.0, "throttle_mb_s": 2.0}
    yield Job(benchmark="reassignment", shape=once.changed({**moved, "elections": 1, "metadata": 1, "settle_s": 1.0}))
    kept = {"topics": 1, "partitions": 1, "size": 10_000, "size_mb": 192.0, "seconds": 20.0}
    yield Job(benchmark="retention", shape=once.changed({**kept, "elections": 1, "metadata": 1}))
    one = {"brokers": 1, "elections": 1, "metadata": 1, "partitions": 1, "replication_factor": 1, "batch": 500}
    yield Job(benchmark="listing", shape=once.changed({**one, "topics": 1_000, "repetitions": 3, "settle_s": 0.5}))
    small = {"brokers": 1, "elections": 1, "metadata": 1, "topics": 1, "partitions": 1_000, "replication_factor": 1}
    yield Job(benchmark="idle", shape=once.changed({**small, "batch": 1, "settle_s": 2.0}))
    started = {**small, "topics": 5, "partitions": 100, "size_mb": 50.0, "batch": 10, "settle_s": 0.5}
    yield Job(benchmark="start", shape=once.changed({**started, "batch_bytes": 16 * 1024}))
    few = once.changed({"topics": 1, "partitions": 6, "records": 20_000, "repetitions": 2})
    yield Job(benchmark="produce", shape=few)
    yield Job(benchmark="consume", shape=few)
    yield Job(benchmark="traffic", shape=few.changed({"repetitions": 1, "batch_bytes": 16 * 1024}))
    yield Job(benchmark="singles", shape=few.changed({"records": 5_000, "repetitions": 1}))
    lone = {"elections": 1, "metadata": 1, "settle_s": 0.5}
    small_batches = {"records": 8_000, "batch_bytes": 16 * 1024, "repetitions": 1, "warm_up": 0}
    yield Job(benchmark="data_path", shape=few.changed({**lone, **small_batches}))
    yield Job(benchmark="spans", shape=few.changed({**lone, "records": 3_000}))
    yield Job(benchmark="admit", shape=once.changed({"records": 20_000, "in_flight": 4, "repetitions": 3}))
    yield Job(benchmark="propagate", shape=once.changed({"brokers": 30, "topics": 100, "partitions": 100}))
    yield Job(benchmark="publish", shape=once.changed({"brokers": 30, "topics": 20, "partitions": 50, "changes": 5}))
    yield Job(benchmark="load", shape=once.changed({"topics": 500, "partitions": 10, "repetitions": 3, "warm_up": 1}))
    # Few writes say nothing about a limit: at 2,000 the ratio is that of two pauses of the machine.
    yield Job(benchmark="write_batch", shape=once.changed({"records": 10_000, "repetitions": 9, "warm_up": 1}))


def _full(store: str) -> Iterator[Job]:
    shape = Shape(coordination=store)
    yield Job(benchmark="failover", shape=shape.changed({"topics": 1_500, "repetitions": 5}))
    both = shape.changed({"topics": 1_500, "with_controller": 1, "repetitions": 5})
    yield Job(benchmark="failover", label="with-controller", shape=both)
    yield Job(benchmark="succession", shape=shape.changed({"topics": 1_500, "repetitions": 5}))
    yield Job(
        benchmark="storm",
        shape=shape.changed({"brokers": 9, "topics": 5_000, "partitions": 4, "repetitions": 1, "warm_up": 0}),
    )
    for topics, kills in ((1, 50), (99, 30)):
        loaded = {"topics": topics, "kills": kills, "repetitions": 1, "warm_up": 0}
        label = "among-1000" if topics > 1 else ""
        yield Job(benchmark="outage", label=label, shape=shape.changed(loaded))
    yield Job(benchmark="told", shape=shape.changed({"topics": 1, "partitions": 3, "repetitions": 30}))
    moved = {"brokers": 4, "topics": 1, "partitions": 200, "rate": 200.0, "repetitions": 6, "warm_up": 0}
    yield Job(benchmark="reassignment", shape=shape.changed(moved))
    kept = {"topics": 1, "partitions": 2, "size": 10_000, "size_mb": 256.0, "repetitions": 1, "warm_up": 0}
    yield Job(benchmark="retention", shape=shape.changed({**kept, "seconds": 300.0}))
    listed = {"brokers": 2, "elections": 1, "metadata": 1, "partitions": 1, "replication_factor": 1, "batch": 500}
    many_topics = shape.changed({**listed, "repetitions": 5, "deadline_s": 900.0})
    yield Job(benchmark="listing", shape=many_topics, over="topics", sizes=(1_000, 5_000, 20_000, 100_000))
    settled = {"elections": 1, "metadata": 1, "batch": 1, "settle_s": 5.0, "warm_up": 0, "deadline_s": 600.0}
    yield Job(
        benchmark="idle",
        shape=shape.changed({**settled, "topics": 10, "repetitions": 3}),
        over="partitions",
        sizes=(100, 1_000, 4_000),
    )
    started = {**settled, "brokers": 1, "replication_factor": 1, "batch": 10, "batch_bytes": 16 * 1024}
    many_logs = shape.changed({**started, "partitions": 100, "size_mb": 2_000.0, "repetitions": 3})
    yield Job(benchmark="start", shape=many_logs, over="topics", sizes=(5, 15, 50))
    yield Job(
        benchmark="start", shape=many_logs.changed({"topics": 50}), over="size_mb", sizes=(250, 500, 1_000, 2_000)
    )
    for factor in (1, 3):
        for batch_bytes in (16 * 1024, 512 * 1024):
            written = {"topics": 1, "partitions": 6, "replication_factor": factor, "batch_bytes": batch_bytes}
            job = shape.changed({**written, "records": 200_000, "repetitions": 5})
            yield Job(benchmark="produce", label=f"rf{factor}-{batch_bytes // 1024}k", shape=job)
    yield Job(benchmark="consume", shape=shape.changed({"topics": 1, "partitions": 6, "records": 200_000}))
    for factor in (1, 3):
        for batch_bytes, grows_to in ((16 * 1024, 0), (512 * 1024, 0), (64 * 1024, 1_000_000)):
            written = {"topics": 1, "partitions": 6, "replication_factor": factor, "records": 1_500_000}
            grown = {"batch_bytes": batch_bytes, "batch_grows_to": grows_to, "repetitions": 1, "deadline_s": 900.0}
            label = f"rf{factor}-{batch_bytes // 1024}k{'-growing' if grows_to else ''}"
            yield Job(benchmark="traffic", label=label, shape=shape.changed({**written, **grown, "warm_up": 0}))
    one_by_one = {"topics": 1, "partitions": 6, "records": 50_000, "size": 1_024, "batch_bytes": 64 * 1024}
    yield Job(benchmark="singles", shape=shape.changed({**one_by_one, "batch_grows_to": 1_000_000}))
    paired = {"topics": 1, "partitions": 6, "records": 12_000, "repetitions": 20, "elections": 1, "metadata": 1}
    for batch_bytes in (16 * 1024, 512 * 1024):
        job = shape.changed({**paired, "batch_bytes": batch_bytes, "records": 60_000, "repetitions": 1})
        yield Job(benchmark="data_path", label=f"rf3-{batch_bytes // 1024}k", shape=job)
    yield Job(benchmark="spans", shape=shape.changed({**paired, "settle_s": 1.0}))
    yield Job(benchmark="admit", shape=shape.changed({"records": 100_000, "in_flight": 4, "repetitions": 5}))
    many = {"brokers": 200, "topics": 2_000, "partitions": 100, "repetitions": 3, "warm_up": 0}
    yield Job(benchmark="propagate", shape=shape.changed(many))
    peaks = {**many, "changes": 20, "repetitions": 1, "deadline_s": 600.0}
    yield Job(benchmark="publish", shape=shape.changed(peaks))
    for topics, partitions in ((100, 1_000), (25_000, 4)):
        job = shape.changed({"topics": topics, "partitions": partitions, "repetitions": 5})
        yield Job(benchmark="load", label=f"{topics}x{partitions}", shape=job)
    yield Job(benchmark="write_batch", shape=shape.changed({"records": 10_000, "repetitions": 9}))
    few = shape.changed({"repetitions": 2, "warm_up": 0, "deadline_s": 900.0})
    yield Job(
        benchmark="failover",
        shape=few.changed({"topics": 2_000, "brokers": 4}),
        over="affected",
        sizes=(1_000, 5_000, 10_000, 20_000),
    )
    yield Job(
        benchmark="failover",
        shape=few.changed({"affected": 1_000, "brokers": 4}),
        over="partitions_total",
        sizes=(1_000, 15_000, 50_000),
    )
    yield Job(benchmark="succession", shape=few, over="partitions_total", sizes=(1_000, 15_000, 50_000))
    yield Job(
        benchmark="storm",
        shape=few.changed({"partitions": 4, "repetitions": 1}),
        over="topics",
        sizes=(500, 1_000, 2_000, 5_000),
    )


SIZES: Final[dict[str, Callable[[str], Iterator[Job]]]] = {"quick": _quick, "full": _full}
"""By name."""
BUDGETS_S: Final[dict[str, float | None]] = {"quick": 870.0, "full": None}
"""Seconds that all jobs of a size may take: ``quick`` ends within 15 minutes, whatever the machine."""
