"""How a consumer behaves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from regnum_client.allowed import Between, check_fields
from regnum_client.consumer.positions import ResetName, ResetPolicy

INT32_MAX: Final = 2**31 - 1
"""What the wire carries of sizes and waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How a consumer behaves.

    >>> settings = ConsumerSettings(reset=ResetPolicy.EARLIEST, fetch_wait_ms=100)
    >>> consumer = Consumer(bootstrap, settings=settings)
    >>> as_json = ConsumerSettings(value_deserializer=json.loads)
    """

    client_rack: str = ""
    """Failure domain of this process (Kafka: client.rack): brokers that are told to (``--replica-selector rack``) have
    it read from an in-sync replica with the same rack. Empty: always from leaders."""
    reset: ResetPolicy | ResetName = ResetPolicy.FAIL
    """What happens when an offset is below the log start or above the log end; its name will do."""
    skip_unreadable: bool = False
    """Leave out batches that cannot be decoded, with a warning for each that names partition and offsets; otherwise
    UnreadableBatchError is raised before such a batch. Of ``batches`` each still raises it when it is decoded."""
    key_deserializer: Callable[[bytes], Any] | None = None
    """Makes keys of their bytes, of single records and not of batches; None: they stay bytes. It is not asked where
    there is no key. What it raises becomes RecordDeserializationError, before whose record the consumer stands."""
    value_deserializer: Callable[[bytes], Any] | None = None
    """The same for values."""
    fetch_wait_ms: Annotated[int, Between(0, INT32_MAX)] = 500
    """How long a broker may wait for records before it answers."""
    fetch_min_bytes: Annotated[int, Between(0, INT32_MAX)] = 1
    """A broker answers as soon as it has this many bytes."""
    fetch_max_bytes: Annotated[int, Between(1, INT32_MAX)] = 8 * 1024 * 1024
    """About how many bytes one answer carries at most."""
    partition_max_bytes: Annotated[int, Between(1, INT32_MAX)] = 1024 * 1024
    """About how many bytes of one partition an answer carries at most."""
    buffer_bytes: Annotated[int, Between(1)] = 64 * 1024 * 1024
    """About how many bytes are fetched ahead and not yet read, of all partitions together."""
    request_timeout_s: Annotated[float, Between(0, above=True)] = 10.0
    """Deadline of one call, on top of ``fetch_wait_ms``."""
    topic_wait_s: Annotated[float, Between(0)] = 5.0
    """How long ``assign`` waits for a topic that the brokers do not know yet, and ``start`` for a broker."""
    topics_refresh_s: Annotated[float, Between(0, above=True)] = 30.0
    """How often a consumer that reads the topics of a pattern asks which there are (Kafka: metadata.max.age.ms)."""
    offsets_timeout_s: Annotated[float, Between(0)] = 30.0
    """How long the search for first and last offsets may take, changes of leader included."""

    # In a group.

    auto_offset_reset: ResetPolicy | ResetName = ResetPolicy.EARLIEST
    """Where a group begins in a partition of which it has committed nothing. With LATEST, what is written to a new
    partition before it is assigned is left out."""
    enable_auto_commit: bool = True
    """Commit in the background: what was handed out before the last call for records, which the caller is done with.

    Members of a group do; a consumer that assigns partitions to itself commits by ``commit()`` only.
    """
    auto_commit_interval_s: Annotated[float, Between(0, above=True)] = 5.0
    """How often."""
    session_timeout_s: Annotated[float, Between(0, above=True)] = 45.0
    """A member of which the coordinator hears nothing for so long is removed; 6 s to 30 min, unless brokers are told
    otherwise."""
    heartbeat_interval_s: Annotated[float, Between(0, above=True)] = 3.0
    """How often the coordinator hears of the member, whatever the caller does; at most a third of the session."""
    max_poll_interval_s: Annotated[float, Between(0, above=True)] = 300.0
    """A caller that asks for no record for so long leaves the group; a rebalance waits for it as long, an hour at
    most."""
    partition_assignment_strategy: Sequence[str] = ("cooperative-sticky",)
    """Assignors, the preferred first: cooperative-sticky, range, roundrobin. All members must have one in common; with
    range or roundrobin among them, a member gives everything up in each rebalance."""
    commit_timeout_s: Annotated[float, Between(0, above=True)] = 30.0
    """How long a commit may take, changes of coordinator included."""
    metadata_watch: bool = True
    """A broker tells of new leaders by itself, where it can; without, they are asked for when something failed."""

    def __post_init__(self) -> None:
        """Raises INVALID_CONFIG for what a consumer cannot be told."""
        check_fields(self)
