"""What a metadata process shows of itself: numbers that are there, read by the thread that somebody asks."""

from collections.abc import Iterable

from regnum_telemetry.instruments import metadata as instruments
from regnum_telemetry.metrics import Labels, Metrics

from regnum_metadata.propagation import Propagation


def show_propagation(metrics: Metrics, propagation: Propagation) -> None:
    """Let the metrics read it. Nothing is shown of versions while there is no image."""

    def lags() -> list[tuple[int, int]]:
        """Brokers that are behind, those that are most first: the broker, and by how many versions."""
        version = propagation.image.version
        behind = [(lane.receiver.id, version - max(lane.acknowledged, 0)) for lane in propagation.lanes]
        return sorted(((id, lag) for id, lag in behind if lag > 0), key=lambda one: -one[1])

    def by_broker() -> Iterable[tuple[Labels, float]]:
        return [((str(id),), lag) for id, lag in lags()]

    metrics.observe(instruments.METADATA_VERSION, lambda: propagation.image.version or None)
    metrics.observe(instruments.BROKERS_SERVED, lambda: len(propagation.lanes))
    metrics.observe(instruments.BROKERS_BEHIND, lambda: len(lags()))
    metrics.observe_all(instruments.BROKER_LAG, by_broker)
    metrics.observe_all(
        instruments.PAYLOADS, lambda: [((kind,), made.payloads) for kind, made in propagation.payloads_made.items()]
    )
    metrics.observe_all(
        instruments.PAYLOAD_BYTES,
        lambda: [((kind,), made.size_bytes) for kind, made in propagation.payloads_made.items()],
    )
    metrics.observe(instruments.WATCHERS_OPEN, lambda: len(propagation.feed.watchers))
    metrics.observe(instruments.WATCHERS_SENT, lambda: propagation.feed.sent_bytes)
    metrics.observe(instruments.WATCHERS_DROPPED, lambda: propagation.feed.watchers.dropped)
    metrics.observe(instruments.PAYLOAD_BYTES_SENT, lambda: propagation.payload_bytes_sent)
