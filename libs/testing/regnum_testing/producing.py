"""Producers of a fake cluster, for tests."""

import random

from regnum_client import Producer, ProducerSettings
from regnum_service.clock import Clock

from regnum_testing.fake_cluster import FakeCluster


def producer_to(cluster: FakeCluster, *, clock: Clock | None = None, **settings: object) -> Producer:
    """One that sends soon, and puts what comes together into one batch only if told so."""
    return Producer(
        cluster.bootstrap,
        settings=ProducerSettings(**{"linger_ms": 1.0, "batch_bytes_max": 0, **settings}),  # type: ignore[arg-type]
        clock=clock,
        chance=random.Random(7),
    )


def numbered(first: int, last: int) -> list[bytes | None]:
    """Values of records that are told apart, in their order."""
    return [str(number).encode() for number in range(first, last)]
