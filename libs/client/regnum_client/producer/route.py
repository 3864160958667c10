"""A partition in the sender: its lane, and the trouble on the way to its leader. Pure."""

from collections.abc import Mapping
from typing import Final

from regnum_client.cluster.view import ClusterView
from regnum_client.producer.batches.accumulator import Accumulator
from regnum_client.producer.batches.lane import Identity, Lane
from regnum_client.producer.outcomes import Receipt
from regnum_client.producer.trouble import Trouble
from regnum_client.records import TopicPartition


class Route:
    """State of one partition in the sender."""

    __slots__ = ("broken_because", "identity_spent", "lane", "trouble", "was_there")

    def __init__(self, *, idempotent: bool) -> None:
        self.lane: Final[Lane[Receipt]] = Lane(idempotent=idempotent)
        self.trouble: Final = Trouble()
        self.broken_because = ""
        """Why a batch with sequence numbers was not written, the last time that there was one."""
        self.identity_spent: Identity | None = None
        """The identity the lane has or had: a broken sequence needs another one."""
        self.was_there = False
        """Whether a leader of the partition has been known."""


def longest_in_trouble(
    routes: Mapping[TopicPartition, Route], now_s: float, view: ClusterView, accumulator: Accumulator[Receipt]
) -> TopicPartition | None:
    """The partition whose records have waited longest for a leader that takes them; None: they wait for their turn."""
    waiting = {
        partition: now_s if view.leader_term(*partition) is None else route.trouble.lasted_s(now_s)
        for partition, route in routes.items()
        if next(route.lane.batches(), None) is not None or accumulator.is_ready(partition)
    }
    worst = max(waiting, key=waiting.__getitem__, default=None)
    return worst if worst is not None and waiting[worst] > 0 else None
