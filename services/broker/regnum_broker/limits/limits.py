"""What limits the clients of one broker, put together."""

from typing import Final

from regnum_model.shares import Shares
from regnum_service.clock import Clock
from regnum_service.gates import Gate
from regnum_service.limits.answers import Answers
from regnum_service.limits.budget import Budget
from regnum_service.limits.held_bytes import HeldBytes
from regnum_service.supervisor import Supervisor

from regnum_broker.limits.client_quotas import ClientQuotas
from regnum_broker.limits.incoming import Incoming
from regnum_broker.limits.intake import DEFAULT, Intake
from regnum_broker.limits.throttling import LOG_SERVICE, Throttling

COUNTED_BY_HANDLERS: Final = frozenset(f"{LOG_SERVICE}{name}" for name in ("Fetch", "Consume", "ProduceStream"))
"""Calls whose answers are reserved before records are read, or hold what their requests hold until they are sent."""


class ClientLimits:
    """The limits of one broker. Belongs to its event loop."""

    def __init__(self, *, held_max: int, connection_held_max: int, clock: Clock, incoming: Incoming = DEFAULT) -> None:
        """Only assigns.

        Args:
            held_max: bytes that are held for all clients together.
            connection_held_max: bytes that are held for one connection.
            clock: measures rates.
            incoming: how many messages may be coming at once.
        """
        self.held: Final = HeldBytes(Shares(total_max=held_max, connection_max=connection_held_max))
        self.intake: Final = Intake(self.held, incoming)
        self.quotas: Final = ClientQuotas()
        self.throttling: Final = Throttling(self.quotas, clock=clock)
        self.budget: Final = Budget(self.held, clock, charge=self.throttling.charge_thread)
        """What its clients may take."""
        self.answers: Final = Answers(self.budget, counted_elsewhere=COUNTED_BY_HANDLERS)
        """What they are answered, but for records and acknowledgements."""
        self.unread: Final = self.budget.unread
        self.silent: Final = self.budget.silent

    @property
    def gates(self) -> tuple[Gate, ...]:
        """What calls of clients pass before their messages are read."""
        return (*self.throttling.gates, self.intake)

    def start(self, supervisor: Supervisor, *ports: int) -> None:
        """Watch the connections that came in at these ports, and forget those that are gone."""
        supervisor.start("muted connections", self.throttling.watch(*ports))
