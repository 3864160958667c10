"""Log ends of partitions led here, and committed offsets of groups coordinated here: how far a group lags is a query.

Goals: the lag of a group is the same wherever leader and coordinator are; the number of series is bounded; nothing is
done for it on the way of a record or of a commit; a bound that was reached is seen.

Constraints: this is read on the thread of the metrics, between two changes of the event loop: each mapping is copied in
one step, and looked at afterwards.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from regnum_model.topics import INTERNAL_TOPICS
from regnum_telemetry.instruments import groups as instruments
from regnum_telemetry.instruments.definition import Instrument
from regnum_telemetry.metrics import Labels, Metrics, Read

from regnum_broker.groups.offset_book import OffsetBook
from regnum_broker.replication.leader import Leadership

LOG_END: Final = "log_end"
"""Value of a label: of ``instruments.LOG_END``."""
COMMITTED: Final = "committed"
"""Value of a label: of ``instruments.COMMITTED_OFFSET``."""


def show_log_ends(metrics: Metrics, leading: Callable[[], Iterable[Leadership]], *, most: int) -> None:
    """Let the metrics read how far consumers may read.

    Args:
        metrics: of the process.
        leading: gives all leaderships of this broker.
        most: so many partitions are shown, and no names with 0.
    """

    def ends() -> Iterator[tuple[Labels, float]]:
        for one in leading():
            partition = one.partition
            if partition.topic not in INTERNAL_TOPICS:
                yield (partition.topic, str(partition.key.partition)), partition.high_watermark

    _show(metrics, ends, instruments.LOG_END, LOG_END, most)


def show_committed(metrics: Metrics, books: Callable[[], Iterable[OffsetBook]], *, most: int) -> None:
    """Let the metrics read committed offsets.

    Args:
        metrics: of the process.
        books: gives those of all groups that this broker coordinates.
        most: so many offsets are shown, and no names with 0.
    """

    def offsets() -> Iterator[tuple[Labels, float]]:
        for book in books():
            for group_id, of_group in tuple(book.by_group.items()):
                for place, committed in tuple(of_group.items()):
                    yield (group_id, place.topic, str(place.partition)), committed.offset

    _show(metrics, offsets, instruments.COMMITTED_OFFSET, COMMITTED, most)


def _show(metrics: Metrics, all_of_it: Read, instrument: Instrument, of: str, most: int) -> None:
    if not most:
        return

    def left_out() -> Iterable[tuple[Labels, float]]:
        yield (of,), max(sum(1 for _ in all_of_it()) - most, 0)

    metrics.observe_all(instrument, all_of_it, most=most)
    metrics.observe_also(instruments.LAG_LEFT_OUT, left_out)
