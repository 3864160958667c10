"""The benchmarks by name: what each measures, at which shape, and which figures speak for it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from regnum_bench.admit import admit
from regnum_bench.data_path import data_path
from regnum_bench.failover import failover
from regnum_bench.figures import Spread
from regnum_bench.idle import idle
from regnum_bench.listing import listing
from regnum_bench.load import load
from regnum_bench.outage import outage
from regnum_bench.propagate import propagate
from regnum_bench.publish import publish
from regnum_bench.quota_storm import storm_complaints
from regnum_bench.reassignment import reassignment
from regnum_bench.retention import retention
from regnum_bench.shape import Shape
from regnum_bench.spans import spans, spans_complaints
from regnum_bench.stand import Measured, Run
from regnum_bench.start import start
from regnum_bench.storm import storm
from regnum_bench.succession import succession
from regnum_bench.throughput import consume, produce
from regnum_bench.told import told
from regnum_bench.traffic import singles, traffic
from regnum_bench.write_batch import write_batch

Measure = Callable[[Run], Awaitable[Measured]]
"""One pass: starts what it needs, measures, ends it."""


def no_complaints(_figures: Mapping[str, Spread]) -> tuple[str, ...]:
    """Of benchmarks without limits, or that judge each pass by itself."""
    return ()


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
    complaints: Callable[[Mapping[str, Spread]], tuple[str, ...]] = no_complaints
    """Which limits the figures of all repetitions together do not keep."""


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
        options=(*_CLUSTER, *_TOPICS, "affected", "with_controller"),
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
        options=(*_CLUSTER, *_TOPICS, "rate", "quota", "kill", "in_flight", "affected"),
        headline=(
            "create_all_leaders_on_all_brokers_s",
            "delete_s",
            "queue_wait_p99_ms",
            "storm_from_kill_s",
            "from_kill_s",
            "operator_s",
        ),
        complaints=storm_complaints,
    ),
    Benchmark(
        name="outage",
        what="kill -9 of a leader under load, again and again: the longest wait for an acknowledgement on what it led",
        measure=outage,
        shape=Shape(topics=1, partitions=1, warm_up=0, repetitions=1),
        options=(*_CLUSTER, *_TOPICS, "kills", "loaded", "interval_ms", "told"),
        headline=("gap_s",),
    ),
    Benchmark(
        name="told",
        what="kill -9 of a leader: a producer that is told of the next one beside one that asks, in the same kill",
        measure=told,
        shape=Shape(topics=1, partitions=3, repetitions=8, warm_up=1),
        options=_CLUSTER,
        headline=("told_gap_s", "asked_gap_s", "asked_minus_told_ms"),
    ),
    Benchmark(
        name="reassignment",
        what="every partition from one broker to another under a throttle, forth and back, under load",
        measure=reassignment,
        shape=Shape(brokers=4, topics=1, partitions=200, rate=200.0, repetitions=4, warm_up=0),
        options=(*_CLUSTER, *_TOPICS, "rate", "size", "size_mb", "throttle_mb_s"),
        headline=("p99_ratio", "throttle_ratio", "done_s"),
    ),
    Benchmark(
        name="retention",
        what="a topic written as fast as it goes, beside its limit: read meanwhile, followers and leaders killed",
        measure=retention,
        shape=Shape(topics=1, partitions=2, size=10_000, repetitions=1, warm_up=0, size_mb=256.0),
        options=(*_CLUSTER, "partitions", "replication_factor", "size", "size_mb", "seconds"),
        headline=("largest_ratio", "written_mb_s", "limits_written"),
    ),
    Benchmark(
        name="listing",
        what="`regnum topics list` in a process of its own, in a cluster with many topics, and the pages it asks for",
        measure=listing,
        shape=Shape(
            brokers=2,
            elections=1,
            metadata=1,
            topics=20_000,
            partitions=1,
            replication_factor=1,
            batch=500,
            repetitions=5,
            deadline_s=900.0,
        ),
        options=(*_CLUSTER, *_TOPICS),
        headline=("list_s", "list_cpu_command_s", "page_p50_ms"),
    ),
    Benchmark(
        name="idle",
        what="brokers with partitions that nobody uses, beside the same brokers without any: memory, processor time",
        measure=idle,
        shape=Shape(
            brokers=3,
            elections=1,
            metadata=1,
            topics=10,
            partitions=1_000,
            replication_factor=3,
            batch=1,
            repetitions=3,
            warm_up=0,
            settle_s=5.0,
        ),
        options=(*_CLUSTER, *_TOPICS),
        headline=("idle_cpu_ratio", "memory_above_bytes"),
    ),
    Benchmark(
        name="start",
        what="a broker that leads many replicas starts, after a clean stop and after kill -9, until it leads them all",
        measure=start,
        shape=Shape(
            brokers=1,
            elections=1,
            metadata=1,
            topics=50,
            partitions=100,
            replication_factor=1,
            size_mb=2_000.0,
            batch_bytes=16 * 1024,
            warm_up=0,
        ),
        options=(*_CLUSTER, *_TOPICS, "size", "size_mb", "batch_bytes"),
        headline=("clean_start_s", "killed_start_s", "clean_cpu_s", "killed_cpu_s"),
    ),
    Benchmark(
        name="produce",
        what="records written with acks=all, on the wire and by the SDK, beside one raw gRPC hop of the same bytes",
        measure=produce,
        shape=Shape(topics=1, partitions=6, records=100_000),
        options=(*_CLUSTER, *_TOPICS, "records", "size", "batch_bytes", "in_flight", "tls"),
        headline=("produce_mb_s", "produce_of_hop_ratio", "sdk_produce_mb_s"),
    ),
    Benchmark(
        name="consume",
        what="records read from the beginning, on the wire and by the SDK, beside one raw gRPC hop of the same bytes",
        measure=consume,
        shape=Shape(topics=1, partitions=6, records=100_000),
        options=(*_CLUSTER, *_TOPICS, "records", "size", "batch_bytes", "in_flight"),
        headline=("consume_mb_s", "consume_of_hop_ratio", "sdk_consume_mb_s"),
    ),
    Benchmark(
        name="traffic",
        what="records written and read by the SDK as fast as it goes, with the time of each acknowledgement",
        measure=traffic,
        shape=Shape(topics=1, partitions=6, records=100_000, repetitions=1),
        options=(*_CLUSTER, *_TOPICS, "records", "size", "batch_bytes", "batch_grows_to", "in_flight", "tls"),
        headline=("produce_mb_s", "produce_p99_ms", "consume_mb_s", "consume_batches_mb_s"),
    ),
    Benchmark(
        name="singles",
        what="records written by tasks of which each waits for its acknowledgement before the next",
        measure=singles,
        shape=Shape(topics=1, partitions=6, records=20_000, batch_bytes=64 * 1024, batch_grows_to=1_000_000),
        options=(*_CLUSTER, *_TOPICS, "records", "size", "batch_bytes", "batch_grows_to", "tasks"),
        headline=("ack_p50_ms", "ack_p99_ms"),
    ),
    Benchmark(
        name="data_path",
        what="processor time of a batch in the broker that leads and in each that follows, by place, by both doors",
        measure=data_path,
        shape=Shape(
            elections=1, metadata=1, topics=1, partitions=6, records=32_000, batch_bytes=16 * 1024, repetitions=1
        ),
        options=(*_CLUSTER, "partitions", "replication_factor", "records", "size", "batch_bytes", "in_flight"),
        headline=("produce_grpc_rf1_broker-1_us", "produce_kafka_rf1_broker-1_us"),
    ),
    Benchmark(
        name="spans",
        what="processor time of a batch with spans recorded as shipped, beside one without any, in pairs",
        measure=spans,
        shape=Shape(
            elections=1, metadata=1, topics=1, partitions=3, records=12_000, repetitions=20, warm_up=1, settle_s=1.0
        ),
        options=(*_CLUSTER, *_TOPICS, "records", "size"),
        headline=("spans_cost_ratio", "on_us", "off_us"),
        complaints=spans_complaints,
    ),
    Benchmark(
        name="admit",
        what="admissions of mutations by a quota process over gRPC, and by its ledger and buckets alone",
        measure=admit,
        shape=Shape(records=50_000, in_flight=4),
        options=("records", "batch", "in_flight"),
        headline=("admissions_per_s", "call_p99_ms", "bucket_per_s"),
    ),
    Benchmark(
        name="propagate",
        what="a metadata process and many receivers: full push, change of one partition, memory above the image",
        measure=propagate,
        shape=Shape(brokers=50, topics=200, partitions=100, repetitions=1, warm_up=0),
        options=("brokers", "topics", "partitions", "replication_factor", "changes", "applying", "silent", "shared"),
        headline=("full_push_s", "change_p50_ms", "change_p99_ms", "memory_per_payload_ratio"),
    ),
    Benchmark(
        name="publish",
        what="a controller and a metadata process while 1, a quarter and all of the brokers arrive: peak memory",
        measure=publish,
        shape=Shape(brokers=200, topics=200, partitions=100, changes=20, repetitions=1, warm_up=0),
        options=("brokers", "topics", "partitions", "replication_factor", "changes", "applying", "settle_s"),
        headline=("metadata_ratio", "controller_ratio", "each_metadata_ratio", "metadata_with_connections_ratio"),
    ),
    Benchmark(
        name="load",
        what="all topics and states read from the store as an election process reads them, on the store alone",
        measure=load,
        shape=Shape(topics=250, partitions=4, brokers=9, repetitions=3),
        options=("topics", "partitions", "replication_factor", "settle_s"),
        headline=("load_s",),
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
HEADLINES: Final[Mapping[str, tuple[str, ...]]] = {one.name: one.headline for one in ALL}
"""By benchmark the figures that speak for it."""
