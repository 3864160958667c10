"""The sizes of all logs, added up beside the event loop."""

from types import SimpleNamespace
from typing import Any

from regnum_broker.figures.log_sizes import AT_ONCE, FRESH_S, LogSizing
from regnum_broker.serving.topic_traffic import TopicTraffic
from regnum_telemetry.metrics import OTHER
from regnum_testing.clock import FakeClock

LOGS = 10_000


def storage(count: int) -> Any:
    """Logs of two segments of 5 bytes, of a hundred topics in turns."""
    segments = (SimpleNamespace(size_bytes=5), SimpleNamespace(size_bytes=5))
    replicas = {n: SimpleNamespace(topic=f"t{n % 100}", segments=segments) for n in range(count)}
    return SimpleNamespace(directory=SimpleNamespace(replicas=replicas))


def test_ten_thousand_logs_are_walked_through_in_parts_between_which_others_run() -> None:
    clock, parts = FakeClock(), [0]

    def let_others_run() -> None:
        parts[0] += 1

    traffic = TopicTraffic(topics_max=2, clock=clock)
    traffic.of("t7").appended(1, 1)
    traffic.of("t8").appended(1, 1)
    sizing = LogSizing(storage(LOGS), traffic, clock, let_others_run=let_others_run)
    sizes = sizing.sizes()
    assert (sizes.size_bytes, sizes.segments) == (10 * LOGS, 2 * LOGS)
    assert dict(sizes.by_topic) == {OTHER: 98_000, "t7": 1_000, "t8": 1_000}
    assert parts == [LOGS // AT_ONCE]
    sizing.sizes()
    assert parts == [LOGS // AT_ONCE], "for a moment they are what they are"
    clock.skip(2 * FRESH_S)
    sizing.sizes()
    assert parts == [2 * LOGS // AT_ONCE]
