"""What limits the clients of one broker, put together."""

from typing import Final

from regnum_service.gates import Gate

from regnum_broker.limits.held_bytes import HeldBytes
from regnum_broker.limits.intake import Intake
from regnum_broker.limits.shares import Shares


class ClientLimits:
    """The limits of one broker. Belongs to its event loop."""

    def __init__(self, *, held_max: int, connection_held_max: int) -> None:
        """Only assigns.

        Args:
            held_max: bytes that are held for all clients together.
            connection_held_max: bytes that are held for one connection.
        """
        self.held: Final = HeldBytes(Shares(total_max=held_max, connection_max=connection_held_max))
        self.intake: Final = Intake(self.held)

    @property
    def gates(self) -> tuple[Gate, ...]:
        """What calls of clients pass before their messages are read."""
        return (self.intake,)
