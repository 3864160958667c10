"""One lifeline as the controller has it (safety rule S9)."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from regnum.election.v1 import controller_pb2
from regnum_model.ids import BrokerEpoch, BrokerId

from regnum_election.decisions.liveness import Verdict
from regnum_election.decisions.relief import FetchContacts
from regnum_election.lifelines.beat_news import BeatNews
from regnum_election.lifelines.witnessed import Said

UNREGISTERED: Final = BrokerEpoch(0)
"""Broker epoch in the hello of a broker without registration."""


@dataclass(slots=True, kw_only=True, eq=False)
class Stream:
    """One lifeline."""

    broker: BrokerId
    """Who holds it."""
    epoch: BrokerEpoch
    """Broker epoch it said; 0 when it had none yet."""
    news: BeatNews
    """What was reported of what it says in its beats."""
    said: Said
    """What it said of others; for traces."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the broker's side is over, or the stream has been replaced."""
    due: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the next beat has something to say that should not wait for a long interval."""
    probe: int = 0
    """Number of the newest probe sent."""
    answered: int = 0
    """Number of the newest probe answered."""
    oldest_unanswered_s: float | None = None
    """When the oldest unanswered probe was sent."""
    oldest_unanswered_unix_nano: int = 0
    """The same by wall time, for traces; of no meaning while none is unanswered."""
    report: int = 0
    """Number of the newest batch of reports taken up."""
    heard_unix_nano: int = 0
    """When the broker last said anything; for traces."""
    ended_unix_nano: int = 0
    """When it ended; for traces. 0: it has not."""
    verdict: Verdict = Verdict.NOT_SILENT
    """What was last decided about its silence."""
    contacts: FetchContacts = field(default_factory=FetchContacts)
    """What it last said of fetches between it and others."""
    busy: controller_pb2.BusyPartitions = field(default_factory=controller_pb2.BusyPartitions)
    """What it last said of busy partitions; nobody reads it before the broker is dead."""
    awaits_in_sync: bool = False
    """Whether it asked how far it is from being in sync."""
    catching_up: controller_pb2.CatchingUp | None = None
    """What it has to be told of that."""

    def take_catching_up(self) -> controller_pb2.CatchingUp | None:
        """What it is told of that in the next message; None: nothing."""
        said, self.catching_up = self.catching_up, None
        return said

    def end(self) -> None:
        """Let whoever speaks on it hang up."""
        self.ended.set()
        self.due.set()


def stream_of(hello: controller_pb2.LifelineHello) -> Stream:
    """A stream that begins so."""
    # Without a registration there is nothing to be in sync with.
    awaits = hello.awaits_in_sync and hello.broker_epoch != UNREGISTERED
    broker, epoch = BrokerId(hello.broker_id), BrokerEpoch(hello.broker_epoch)
    return Stream(
        broker=broker,
        epoch=epoch,
        news=BeatNews(broker, epoch),
        said=Said(hello),
        awaits_in_sync=awaits,
        # That it is counted here is said at once: whoever hears nothing of it does not wait for it.
        catching_up=controller_pb2.CatchingUp() if awaits else None,
    )
