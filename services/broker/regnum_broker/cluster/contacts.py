"""Notices leaders that do not answer fetches and followers that do not send any, and tells the controller.

A leader that is cut off from its followers only would keep its office, and after the lag limit refuse writes: nobody
else can see that. The controller takes leadership from it when both sides say so (safety rule S9).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from regnum_model.ids import BrokerId
from regnum_service.clock import Clock

from regnum_broker.replication.decisions.silence import Heard, observe, silent
from regnum_broker.replication.fetchers import Fetchers
from regnum_broker.replication.replicas import Replicas

LOOK_INTERVAL_S: Final = 0.25
"""Time between two looks."""

HELD_UP_S: Final = 1.0
"""A look that comes so long after the one before says that the process itself was held up."""

UNREACHABLE_S: Final = 3.0
"""A leader that has not answered for so long cannot be fetched from. Healthy ones answer every 0.5 s; with one packet
in five lost, a connection that goes on is quiet for 1 to 2 s at times.
"""

SILENT_S: Final = 2.5
"""A follower that has not fetched for so long is silent. A little shorter: its last request may have arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchContacts:
    """What a broker knows of fetches between it and others."""

    unreachable_leaders: frozenset[BrokerId] = frozenset()
    """Brokers from which it follows partitions and gets no answer."""
    silent_followers: frozenset[BrokerId] = frozenset()
    """Other brokers that have fetched nothing here."""


class ContactWatch:
    """Looks at fetches to and from this broker. Belongs to the event loop."""

    def __init__(
        self, *, replicas: Replicas, fetchers: Fetchers, tell: Callable[[FetchContacts], None], clock: Clock
    ) -> None:
        self._replicas: Final = replicas
        self._fetchers: Final = fetchers
        self._tell: Final = tell
        self._clock: Final = clock
        self._leaders: dict[BrokerId, Heard] = {}
        self._followers: dict[BrokerId, Heard] = {}
        self._told = FetchContacts()

    async def run(self) -> None:
        """Look for ever; a task of the supervisor."""
        looked_s = self._clock.monotonic()
        while True:
            await self._clock.sleep(LOOK_INTERVAL_S)
            now_s = self._clock.monotonic()
            self._look(now_s, attentive=now_s - looked_s < HELD_UP_S)
            looked_s = now_s

    def _look(self, now_s: float, *, attentive: bool) -> None:
        self._leaders = observe(self._leaders, self._fetchers.answers(), now_s=now_s, attentive=attentive)
        self._followers = observe(self._followers, self._replicas.fetches(), now_s=now_s, attentive=attentive)
        contacts = FetchContacts(
            unreachable_leaders=silent(self._leaders, now_s=now_s, limit_s=UNREACHABLE_S),
            silent_followers=silent(self._followers, now_s=now_s, limit_s=SILENT_S),
        )
        if contacts != self._told:
            self._told = contacts
            self._tell(contacts)
