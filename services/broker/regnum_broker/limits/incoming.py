"""How many messages may be on their way into the broker at once. Pure.

gRPC tells nobody that a message has begun to come: it takes all of it into memory, up to the largest message that the
listener takes, and only then counts it out to us. So nothing can be counted while it comes. What can be counted is how
many there may be at a time: so many times the largest message is what they take at most.

Half of it is for produce streams, each of which may be receiving a message for as long as it is open. A quarter is for
produce calls that are being read, a quarter for all other calls: these stand in line, so there need not be more.

Example: 4 GiB, and messages of 34 MiB at most: 60 streams, 30 produce calls and 30 others.
"""

from dataclasses import dataclass
from typing import Final

INCOMING_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
"""What messages that are coming may take, unless told otherwise."""
MESSAGE_BYTES_MAX: Final = 34 * 1024 * 1024
"""The largest message, unless told otherwise: one with the largest batch that a topic may allow."""
READ_AT_ONCE: Final = 64
"""So many calls of a kind are read at once, however small messages are: more are not faster."""
PART: Final = 4
"""Calls of a kind have a quarter, streams two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """Messages that may be coming at once."""

    streams: int
    """Produce streams that are open."""
    produce_calls: int
    """Produce calls whose messages are being read."""
    other_calls: int
    """Other calls whose messages are."""

    @property
    def messages(self) -> int:
        """All of them."""
        return self.streams + self.produce_calls + self.other_calls


def incoming(total_bytes_max: int, message_bytes_max: int) -> Incoming:
    """How many messages of that size, at most, take no more than so many bytes.

    Args:
        total_bytes_max: for all of them together; four of the largest messages at least.
        message_bytes_max: the largest message that the listener takes.

    Raises:
        ValueError: not even one of each kind may come.
    """
    quarter = total_bytes_max // PART // message_bytes_max
    if quarter < 1:
        raise ValueError(f"{total_bytes_max} bytes are less than {PART} messages of {message_bytes_max}")
    return Incoming(
        streams=2 * quarter, produce_calls=min(READ_AT_ONCE, quarter), other_calls=min(READ_AT_ONCE, quarter)
    )
