"""Partitions that nothing can be sent to: what they have of records, and how that ends."""

from collections.abc import Mapping
from typing import Final

from regnum_service.errors import RegnumError

from regnum_client.producer.batches.accumulator import Accumulator
from regnum_client.producer.departures import Departures
from regnum_client.producer.outcomes import Outcomes, Receipt
from regnum_client.producer.route import Route
from regnum_client.records import TopicPartition


class GivenUp:
    """Of one producer."""

    def __init__(self, departures: Departures[Route], accumulator: Accumulator[Receipt], outcomes: Outcomes) -> None:
        """Only assigns."""
        self._departures: Final = departures
        self._accumulator: Final = accumulator
        self._outcomes: Final = outcomes

    def not_there(self, partition: TopicPartition, route: Route) -> None:
        """The topic has no such partition; what is under way ends with its answer."""
        self._departures.leave(partition)
        left = (*route.lane.drain(), self._accumulator.take(partition))
        self._outcomes.not_there(partition, left, was_there=route.was_there)

    def unnumbered(self, routes: Mapping[TopicPartition, Route], refusal: RegnumError) -> None:
        """No broker gives a producer id, and no repeat can change that: what waits for one fails at once."""
        for partition, route in routes.items():
            if route.lane.lacks_identity and (route.lane.waiting or self._accumulator.is_ready(partition)):
                self._departures.leave(partition)
                for batch in (*route.lane.drain(), self._accumulator.take(partition)):
                    if batch is not None:
                        self._outcomes.refused(partition, batch, refusal.code, refusal.message)
