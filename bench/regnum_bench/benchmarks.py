"""The benchmarks by name: what each measures, at which shape, and which figures speak for it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from regnum_bench.failover import failover
from regnum_bench.shape import Shape
from regnum_bench.stand import Measured, Run
from regnum_bench.storm import storm
from regnum_bench.succession import succession
from regnum_bench.write_batch import write_batch

Measure = Callable[[Run], Awaitable[Measured]]
"""One pass: starts what it needs, measures, ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark."""

    name: str
    """How it is called."""
    what: str
    """What it measures, in a sentence."""
    measure: Measure
    """Does it."""
    shape: Shape
    """Its shape unless told otherwise."""
    options: tuple[str, ...]
    """Fields of the shape that it reads, besides those of every benchmark."""
    headline: tuple[str, ...]
    """Figures for tables and plots."""


EVERY: Final = ("coordination", "repetitions", "warm_up", "passes", "deadline_s")
"""Fields that every benchmark reads."""
_CLUSTER: Final = ("brokers", "elections", "metadata", "settle_s")
_TOPICS: Final = ("topics", "partitions", "replication_factor", "batch")

ALL: Final = (
    Benchmark(
        name="failover",
        what="kill -9 of a broker, until every live broker's metadata names other leaders for all it led",
        measure=failover,
        shape=Shape(),
        options=(*_CLUSTER, *_TOPICS, "affected"),
        headline=("from_kill_s", "leaders_moved"),
    ),
    Benchmark(
        name="succession",
        what="kill -9 of the controller, until every broker names the next one, and until INIT is done",
        measure=succession,
        shape=Shape(),
        options=(*_CLUSTER, *_TOPICS),
        headline=("from_kill_s", "init_done_s"),
    ),
    Benchmark(
        name="storm",
        what="topics created until every broker knows all leaders, and deleted until their directories are gone",
        measure=storm,
        shape=Shape(topics=500, partitions=4),
        options=(*_CLUSTER, *_TOPICS, "rate"),
        headline=("create_all_leaders_on_all_brokers_s", "delete_s"),
    ),
    Benchmark(
        name="write_batch",
        what="conditional writes of one batch beside the same writes by hand, on the store alone",
        measure=write_batch,
        shape=Shape(records=10_000, repetitions=9),
        options=("records",),
        headline=("write_batch_s", "by_hand_s", "to_by_hand_ratio"),
    ),
)
"""In the order in which ``all`` runs them."""
BY_NAME: Final[Mapping[str, Benchmark]] = {one.name: one for one in ALL}
