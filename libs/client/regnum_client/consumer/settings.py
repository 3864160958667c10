"""How a consumer behaves."""

from dataclasses import dataclass

from regnum_client.consumer.positions import ResetPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How a consumer behaves.

    >>> settings = ConsumerSettings(reset=ResetPolicy.EARLIEST, fetch_wait_ms=100)
    >>> consumer = Consumer(bootstrap, settings=settings)
    """

    reset: ResetPolicy = ResetPolicy.FAIL
    """What happens when an offset is below the log start or above the log end."""
    fetch_wait_ms: int = 500
    """How long a broker may wait for records before it answers."""
    fetch_min_bytes: int = 1
    """A broker answers as soon as it has this many bytes."""
    fetch_max_bytes: int = 8 * 1024 * 1024
    """About how many bytes one answer carries at most."""
    partition_max_bytes: int = 1024 * 1024
    """About how many bytes of one partition an answer carries at most."""
    buffer_bytes: int = 64 * 1024 * 1024
    """About how many bytes are fetched ahead and not yet read, of all partitions together."""
    request_timeout_s: float = 10.0
    """Deadline of one call, on top of ``fetch_wait_ms``."""
    topic_wait_s: float = 5.0
    """How long ``assign`` waits for a topic that the brokers do not know yet, and ``start`` for a broker."""
    offsets_timeout_s: float = 30.0
    """How long the search for first and last offsets may take, changes of leader included."""
