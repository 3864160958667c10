"""What a leadership that a traced change has made still owes to that trace, until its first append."""

from typing import TYPE_CHECKING

from regnum_telemetry import conventions, tracing

if TYPE_CHECKING:
    from regnum_broker.replication.leader import Leadership


class NewLeader:
    """Kept by a Leadership until its first append; none of it without a trace."""

    __slots__ = ("began_unix_nano", "refused_unix_nano")

    def __init__(self, began_unix_nano: int) -> None:
        """Only assigns."""
        self.began_unix_nano = began_unix_nano
        """When the leadership began."""
        self.refused_unix_nano: int | None = 0
        """When too few replicas were in sync for a producer for the first time; 0: never yet. None: it is recorded."""

    def refused(self) -> None:
        """A producer was refused because too few replicas are in sync."""
        if self.refused_unix_nano == 0:
            self.refused_unix_nano = tracing.now_unix_nano()

    def look(self, leadership: "Leadership") -> None:
        """The ISR or what is asked of it may be another: record a wait for it that is over, once."""
        if self.refused_unix_nano and leadership.isr_sufficient:
            record_wait(conventions.MIN_ISR_WAIT, leadership, self.refused_unix_nano)
            self.refused_unix_nano = None


def record_wait(name: str, leadership: "Leadership", began_unix_nano: int, offset: int | None = None) -> None:
    """A span of a new leadership that ends now, in the trace of what made it."""
    attributes: dict[str, tracing.Value] = {
        conventions.BROKER: leadership.broker,
        conventions.TOPIC: leadership.partition.topic,
        conventions.PARTITION: str(leadership.partition.key.partition),
        conventions.LEADER_EPOCH: leadership.state.leader_epoch,
    }
    if offset is not None:
        attributes[conventions.OFFSET] = offset
    tracing.between(name, began_unix_nano, tracing.now_unix_nano(), parent=leadership.cause, attributes=attributes)
