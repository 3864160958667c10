"""How long a broker takes to take up the roles of one message, as spans in the trace of what caused them.

The steps follow one another: fetchers of what was followed end, the journal takes replicas in and leader epochs begin
(on the writer thread, behind what it has), the journal is brought to the disk, roles are given. A message whose first
roles rely on nothing that is recorded gives those before the journal is on the disk.
"""

from collections.abc import Sequence
from typing import Final

from regnum_model.ids import BrokerId
from regnum_telemetry import conventions, tracing

from regnum_broker.cluster.orders.reading import Order

NAMED_MAX: Final = 10
"""Partitions that a span names. What is moved without a client is found by them; a large change has thousands."""


class RoleSpans:
    """Of one message. Reads the clock only where there is a trace."""

    def __init__(self, broker: BrokerId, cause: str) -> None:
        """Begins now; ``cause``: place in the trace of what caused the message; empty: there is none."""
        self._broker: Final = broker
        self._cause: Final = cause
        self._began_unix_nano: Final = self._now()
        self._since_unix_nano = self._began_unix_nano
        self._steps: Final[list[tuple[str, int, int]]] = []

    def _now(self) -> int:
        return tracing.now_unix_nano() if self._cause else 0

    def done(self, step: str) -> None:
        """A step has ended, and the next begins."""
        if self._cause:
            now_unix_nano = self._now()
            self._steps.append((step, self._since_unix_nano, now_unix_nano))
            self._since_unix_nano = now_unix_nano

    def record(self, orders: Sequence[Order]) -> None:
        """The roles of these were given."""
        if not self._cause:
            return
        now_unix_nano = self._now()
        leading = [order for order in orders if order.state.leader == self._broker]
        for name, count in (
            (conventions.BECOME_LEADER, len(leading)),
            (conventions.BECOME_FOLLOWER, len(orders) - len(leading)),
        ):
            if not count:
                continue
            attributes: dict[str, tracing.Value] = {
                conventions.BROKER: self._broker,
                conventions.PARTITIONS: count,
            }
            if name == conventions.BECOME_LEADER:
                named = (f"{order.topic}/{order.key.partition}" for order in leading[:NAMED_MAX])
                attributes[conventions.FIRST] = ",".join(named)
            whole = tracing.between(
                name, self._began_unix_nano, now_unix_nano, parent=self._cause, attributes=attributes
            )
            if name == conventions.BECOME_LEADER and whole.context:
                for step, begin_unix_nano, end_unix_nano in self._steps:
                    tracing.between(
                        step,
                        begin_unix_nano,
                        end_unix_nano,
                        parent=whole.context,
                        attributes={conventions.BROKER: self._broker},
                    )
