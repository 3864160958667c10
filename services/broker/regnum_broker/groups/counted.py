"""What a broker counts of the groups that it coordinates."""

from typing import Final

from regnum_telemetry.instruments import groups as instruments
from regnum_telemetry.metrics import Metrics


class Counted:
    """Counters and histograms; the loop writes them."""

    def __init__(self, metrics: Metrics) -> None:
        self.rebalances: Final = metrics.counter(instruments.GROUP_REBALANCES)
        """Generations that have begun."""
        self.offsets: Final = metrics.counter(instruments.OFFSETS_COMMITTED)
        """Offsets that were committed."""
        self.commits: Final = metrics.histogram(instruments.OFFSET_COMMIT_DURATION)
        """How long commits took."""
        self.loads: Final = metrics.histogram(instruments.GROUP_LOAD_DURATION)
        """How long partitions of the internal topic took to be read."""
