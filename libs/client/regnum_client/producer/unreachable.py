"""Leaders that cannot be reached: one call feels the way, the others wait. Pure. All times are monotonic seconds.

Goals: when the broker of hundreds of partitions dies, its clients' processors are free for what ends the outage, and
not busy with sending hundreds of batches to nobody every 20 ms; a leader that was out of reach for a moment only is
used again as soon as it answers.

Algorithm: a leader is out of reach from a call that ended without reaching it until one that it answered, whatever it
said. Meanwhile one batch at a time goes there, after a pause that grows with the trouble. A partition that gets
another leader has nothing to do with it, and neither has a broker that has registered anew since: it may be the
successor of the next one that dies.
"""

from dataclasses import dataclass

from regnum_model.ids import BrokerEpoch, BrokerId

from regnum_client.cluster.pace import retry_delay_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outage:
    incarnation: BrokerEpoch | None
    since_s: float
    until_s: float


class UnreachableLeaders:
    """Of one producer."""

    def __init__(self) -> None:
        self._outages: dict[BrokerId, _Outage] = {}

    def failed(self, leader: BrokerId, incarnation: BrokerEpoch | None, *, now_s: float, chance: float) -> None:
        """A call did not reach it.

        Args:
            leader: the broker.
            incarnation: its broker epoch when the call began; None: not known.
            now_s: monotonic time.
            chance: in [0, 1).
        """
        known = self._outages.get(leader)
        since_s = known.since_s if known is not None and known.incarnation == incarnation else now_s
        pause_s = retry_delay_ms((now_s - since_s) * 1000, chance) / 1000
        self._outages[leader] = _Outage(incarnation=incarnation, since_s=since_s, until_s=now_s + pause_s)

    def answered(self, leader: BrokerId) -> None:
        """It said something."""
        self._outages.pop(leader, None)

    def pause_until_s(self, leader: BrokerId, incarnation: BrokerEpoch | None) -> float | None:
        """When the next batch may feel the way; None: as far as is known that life of the broker is in reach."""
        outage = self._outages.get(leader)
        return outage.until_s if outage is not None and outage.incarnation == incarnation else None
