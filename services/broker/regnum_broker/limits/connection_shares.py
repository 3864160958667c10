"""How the connections of one entity share its quota while the entity owes (deficit round robin). Pure.

Goals: who sends little is not starved by who sends much under the same quota, and owes only what came by its own
connection; together they send no more than the quota allows; a connection gains nothing by coming anew.

Constraints: the entity is one debt, and a message gets in where the debt is not larger than it. Beside messages of
30 MiB that ignore what they are told, the debt is never as small as 1 KiB, and who sends 1 KiB never gets in.

Algorithm: while the entity owes, each of its ``n`` connections is entitled to an ``n``-th of the quota, from the moment
when it first asked. What it sends is taken off; below nothing, that is its own debt. A message gets in as well where
its connection is entitled to as much: all that gets in so is within the quota. What is not used is kept for CREDIT_S,
or until it is as much as the message that was refused last. A connection that is gone, or does not come back a while
after it may, shares no more; when the entity owes nothing, nobody does.

Example, 1 MB/s: one connection sent 30 MB and owes that; another asks with 1 kB, and is let in after 2 ms, for half of
what comes free is its own. The first is told to wait for 30 s by the entity's debt, and no longer than 60 s by its own.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

CREDIT_S: Final = 5.0
"""Seconds of its share that a connection may save up."""

GRACE_S: Final = 5.0
"""So much later than it may, a connection that does not come back shares no more."""

CONNECTIONS_MAX: Final = 1_000
"""Connections that share; of more, the one that asked the longest time ago is forgotten."""


@dataclass(slots=True)
class _Share:
    spent: float
    """What it was entitled to when it came, and what it has sent since, on the scale of ``_entitled``."""
    wanted: float = 0.0
    """Size of the message that was refused last."""
    until_s: float = 0.0
    """When it shares no more, unless it comes back."""


class ConnectionShares:
    """Of one entity, while it owes. Values are what the quota counts; times are seconds that callers bring."""

    def __init__(self, now_s: float) -> None:
        """Nobody shares yet."""
        self._entitled = 0.0
        """What a connection that was there from the beginning is entitled to."""
        self._at_s = now_s
        self._shares: Final[OrderedDict[str, _Share]] = OrderedDict()

    def __len__(self) -> int:
        """Connections that share."""
        return len(self._shares)

    def names(self) -> Collection[str]:
        """Connections that share."""
        return self._shares.keys()

    def forget(self, connection: str) -> None:
        """It is gone."""
        self._shares.pop(connection, None)

    def sent(self, connection: str, value: float, bound: float, now_s: float) -> float:
        """So much of a connection's counts; returns in how many seconds its share has paid for it."""
        share = self._share(connection, bound, now_s)
        share.spent += value
        share.wanted = 0.0
        wait_s = self._wait_s(share, 0.0, bound)
        share.until_s = max(share.until_s, now_s + wait_s + GRACE_S)
        return wait_s

    def asks(self, connection: str, value: float, bound: float, now_s: float) -> float:
        """In how many seconds a connection is entitled to send so much; 0: now."""
        share = self._share(connection, bound, now_s)
        share.wanted = value
        wait_s = self._wait_s(share, value, bound)
        share.until_s = max(share.until_s, now_s + wait_s + GRACE_S)
        return wait_s

    def _share(self, connection: str, bound: float, now_s: float) -> _Share:
        self._go_on(bound, now_s)
        share = self._shares.get(connection)
        if share is None:
            share = self._shares[connection] = _Share(spent=self._entitled)
            if len(self._shares) > CONNECTIONS_MAX:
                self._shares.popitem(last=False)
        self._shares.move_to_end(connection)
        kept = max(CREDIT_S * bound / len(self._shares), share.wanted)
        share.spent = max(share.spent, self._entitled - kept)
        return share

    def _go_on(self, bound: float, now_s: float) -> None:
        if now_s <= self._at_s:
            return
        if self._shares:
            self._entitled += bound * (now_s - self._at_s) / len(self._shares)
        self._at_s = now_s
        # Those that asked the longest time ago, a few with each call: as they came, so they go.
        while self._shares:
            connection, share = next(iter(self._shares.items()))
            if share.until_s >= now_s:
                break
            del self._shares[connection]

    def _wait_s(self, share: _Share, value: float, bound: float) -> float:
        return max(0.0, share.spent + value - self._entitled) * len(self._shares) / bound
