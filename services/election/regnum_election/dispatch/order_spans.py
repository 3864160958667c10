"""One broker's orders of one change of leadership as a span: from the first that is given to the last answer."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from regnum_model.ids import BrokerId, PartitionKey
from regnum_telemetry import conventions, tracing
from regnum_telemetry.tracing import Span


@dataclass(slots=True, kw_only=True)
class _Order:
    span: Span
    keys: set[PartitionKey] = field(default_factory=set)
    """Partitions of which the broker has not acknowledged what it caused."""
    partitions: int = 0
    """How many were given."""
    full: bool = False
    """Whether the full set is among them, and is not acknowledged."""


class OrderSpans:
    """Of one life of a broker: which change caused which of its orders. Belongs to the controller's loop."""

    def __init__(self, broker: BrokerId, is_change: Callable[[str], bool]) -> None:
        """Only assigns.

        Args:
            broker: the one that is told.
            is_change: whether a place in a trace is that of a change of leadership.
        """
        self._broker: Final = broker
        self._is_change: Final = is_change
        self._orders: Final[dict[str, _Order]] = {}
        """By the place of the change."""
        self._causes: Final[dict[PartitionKey, str]] = {}
        """What caused the newest order of a partition; without those that nothing traced caused."""
        self._full_cause = ""

    def given(self, keys: Iterable[PartitionKey]) -> None:
        """These are ordered, because of what is under way."""
        cause = tracing.current()
        if not cause:
            return
        order = self._order(cause)
        for key in keys:
            before = self._causes.get(key)
            if before is not None and before != cause:
                self._settle(before, key)
            self._causes[key] = cause
            if order is not None and key not in order.keys:
                order.keys.add(key)
                order.partitions += 1

    def full_set(self, partitions: int) -> None:
        """The full set is ordered, because of what is under way."""
        self._full_set_taken()
        self._full_cause = cause = tracing.current()
        if cause and (order := self._order(cause)) is not None:
            order.full = True
            order.partitions += partitions

    def acknowledged(self, keys: Iterable[PartitionKey]) -> None:
        """The newest states of these were taken, or are told in another way."""
        for key in keys if self._causes else ():
            cause = self._causes.pop(key, None)
            if cause is not None:
                self._settle(cause, key)

    def full_set_acknowledged(self) -> None:
        """All parts of the full set were taken."""
        self._full_set_taken()

    def place_of(self, keys: Iterable[PartitionKey]) -> str:
        """Where a call about these belongs: to the order of the first that has a cause."""
        cause = next((self._causes[key] for key in keys if key in self._causes), "") if self._causes else ""
        return self._place(cause)

    def place_of_full_set(self) -> str:
        """Where a call with a part of the full set belongs."""
        return self._place(self._full_cause)

    def cause_of(self, key: PartitionKey) -> str:
        """Where an order that is not acknowledged belongs."""
        return self._place(self._causes.get(key, self._full_cause))

    def close(self) -> None:
        """Nothing more is told: what is not acknowledged never will be."""
        for order in self._orders.values():
            order.span.set({conventions.COMPLETE: False})
            self._end(order)
        self._orders.clear()

    def _place(self, cause: str) -> str:
        order = self._orders.get(cause)
        return cause if order is None else order.span.context

    def _order(self, cause: str) -> _Order | None:
        """The span of a change; None: it is none, or nothing is recorded."""
        order = self._orders.get(cause)
        if order is None and self._is_change(cause):
            attributes = {conventions.BROKER: self._broker}
            span = tracing.tracer().start(conventions.ORDER, parent=cause, attributes=attributes)
            order = self._orders[cause] = _Order(span=span)
        return order

    def _full_set_taken(self) -> None:
        order = self._orders.get(self._full_cause)
        if order is not None and order.full:
            order.full = False
            self._end_if_over(self._full_cause, order)

    def _settle(self, cause: str, key: PartitionKey) -> None:
        order = self._orders.get(cause)
        if order is not None:
            order.keys.discard(key)
            self._end_if_over(cause, order)

    def _end_if_over(self, cause: str, order: _Order) -> None:
        if not order.keys and not order.full:
            del self._orders[cause]
            order.span.set({conventions.COMPLETE: True})
            self._end(order)

    def _end(self, order: _Order) -> None:
        order.span.set({conventions.PARTITIONS: order.partitions})
        order.span.end()
