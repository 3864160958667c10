"""What the pages of a visitor are given: everything of their own, and shared work in turns."""

import secrets
from typing import Final

from regnum_service.clock import Clock

from regnum_console.context import FOLLOWS_MAX, READS_MAX, SEARCHES_MAX, Context, Turns
from regnum_console.live.feed import Feed
from regnum_console.live.streams import Streams
from regnum_console.port import Ports
from regnum_console.visitors.watching import WatchedFeed

VISITOR_READS_MAX: Final = 2
"""Pages of records that one session makes at a time, and so many that it follows."""


class VisitorContexts:
    """Makes them, for one console."""

    def __init__(self, feed: Feed, clock: Clock) -> None:
        """Only assigns."""
        self._feed: Final = feed
        self._clock: Final = clock
        self._searches: Final = Turns(SEARCHES_MAX)
        self._reads: Final = Turns(READS_MAX)
        self._follows: Final = Turns(FOLLOWS_MAX)
        self._scans: Final = Turns(SEARCHES_MAX)

    def make(self, ports: Ports, token_id: str) -> Context:
        """For the visitor of a token, whose rights the ports have."""
        return Context(
            ports=ports,
            clock=self._clock,
            feed=WatchedFeed(self._feed, ports.cluster, self._clock),
            streams=Streams(self._clock, of_visitor=True),
            token=secrets.token_urlsafe(32),
            searches=Turns(1, within=self._searches),
            reads=Turns(VISITOR_READS_MAX, within=self._reads),
            follows=Turns(VISITOR_READS_MAX, within=self._follows),
            scans=Turns(1, within=self._scans),
            visitor=token_id,
        )
