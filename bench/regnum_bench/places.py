"""Where on the data path the processor time of a broker goes: samples of stacks by place. Pure.

A sample counts for the place of its innermost frame that one is known of: what the standard library does for a place
is that place's. What gRPC does in C has no frames: it is found below the frame that called it, or as a thread of its
own (``OUTSIDE``).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

OUTSIDE: Final = "gRPC: its threads in C"
"""They have names of their own; all others are Python's."""
OTHER: Final = "everything else: upkeep, telemetry"

PLACES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("socket of the Kafka listener", ("_SelectorSocketTransport.", "_SelectorTransport.")),
    ("hand-over to a thread", ("ThreadPoolExecutor.submit", "LogWriter.hand_in", "Storage._submit", "Storage.write_")),
    (
        "hand-over back to the loop",
        ("call_soon_threadsafe", "_write_to_self", "_read_from_self", "Storage._deliver", "Storage._wake"),
    ),
    ("turns of the loop", ("BaseEventLoop._run_once", "Handle._run", "EpollSelector.")),
    ("check of batches", ("regnum_records/", "regnum_broker/serving/produce_checks", "aiokafka/")),
    ("append: index", ("regnum_broker/log/replica/index",)),
    ("append: system calls", ("regnum_broker/log/disk/",)),
    ("append", ("regnum_broker/log/", "regnum_broker/serving/produce_appends", "regnum_broker/writer", "LogWriter.")),
    ("Kafka's protocol", ("regnum_kafka_wire/", "regnum_broker/kafka/")),
    ("acknowledgement", ("regnum_broker/serving/produce_answers", "regnum_broker/replication/purgatory")),
    ("fetch", ("regnum_broker/serving/fetching",)),
    ("produce: admission", ("regnum_broker/serving/", "regnum_broker/servicers/log", "produce_stream")),
    (
        "replication out",
        (
            "regnum_broker/replication/sessions/",
            "regnum_broker/replication/leader",
            "regnum_broker/replication/decisions",
            "regnum_broker/servicers/replication",
        ),
    ),
    ("replication in", ("regnum_broker/replication/follow", "regnum_broker/replication/filling")),
    (
        "gRPC: calls that are served",
        (
            "regnum_service/access/authentication",
            "regnum_service/interceptor",
            "regnum_service/gates",
            "regnum_service/call_metrics",
        ),
    ),
    ("limits, and what else services have in common", ("regnum_service/",)),
    ("gRPC: calls that are made", ("grpc/aio/",)),
    ("gRPC: poller, hand-over to the loop", ("Thread.run (threading.py",)),
    ("coordination store", ("grpc/_channel", "regnum_coordination/")),
)
"""What is known of frames, in the order in which it is looked at: place, and parts of the frame's text."""


def by_place(stacks: Iterable[tuple[list[str], int]]) -> Counter[str]:
    """Samples by place."""
    found: Counter[str] = Counter()
    known: dict[str, str | None] = {}
    for frames, count in stacks:
        for frame in reversed(frames):
            if frame not in known:
                known[frame] = _place_of(frame)
            if (place := known[frame]) is not None:
                break
        else:
            place = OTHER
        found[place] += count
    return found


def _place_of(frame: str) -> str | None:
    for place, parts in PLACES:
        if any(part in frame for part in parts):
            return place
    return None


def each_us(samples: Mapping[str, int], *, python_s: float, outside_s: float, batches: int) -> dict[str, float]:
    """Microseconds of a batch by place: samples share out what the kernel has counted.

    Args:
        samples: of Python's threads, by place.
        python_s: processor time of these.
        outside_s: that of all others.
        batches: for so many batches.
    """
    count = sum(samples.values())
    found = {place: python_s * some / count / batches * 1e6 for place, some in samples.items()}
    found[OUTSIDE] = outside_s / batches * 1e6
    return dict(sorted(found.items(), key=lambda item: -item[1]))
