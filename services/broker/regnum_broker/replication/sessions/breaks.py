"""That the fetch stream to a leader broke: what the controller is told, for traces of failures."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from regnum_model.ids import BrokerEpoch, BrokerId
from regnum_model.nodes import LeaderAndIsr
from regnum_telemetry import tracing


@dataclass(frozen=True, slots=True)
class Break:
    """A connection to another broker that broke."""

    epoch: BrokerEpoch
    """Broker epoch at its other end."""
    unix_nano: int
    """When, wall time."""


TellBreak = Callable[[BrokerId, Break | None], None]
"""Takes a break; None: the connection is made again."""


def untold(leader: BrokerId, broken: Break | None) -> None:
    """Takes it and tells no process."""


class Breaks:
    """Of the streams to one leader, one after another."""

    def __init__(self, leader: BrokerId, tell: TellBreak) -> None:
        """Only assigns."""
        self._leader: Final = leader
        self._tell: Final = tell
        self._is_broken = False

    def answered(self) -> None:
        """The leader answers."""
        if self._is_broken:
            self._is_broken = False
            self._tell(self._leader, None)

    def broke(self, followed: Iterable[LeaderAndIsr | None], *, answers: int) -> None:
        """A stream broke, after so many answers.

        ``followed``: states of the partitions that are followed there; without any it is no failure that matters.
        """
        if not answers:
            return
        unix_nano = tracing.now_unix_nano()
        members = (state.members.get(self._leader) for state in followed if state is not None)
        life = next((member.broker_epoch for member in members if member is not None), None)
        if life is not None:
            self._is_broken = True
            self._tell(self._leader, Break(life, unix_nano))
