"""Values that very many states have in common are made once, and shared by all that name them.

Goals: thousands of partitions name the same few topics, ISRs and members in one message. Each of these is made once:
that is most of what reading such a message costs, and of what the states take.

Constraints: what names them comes from another process, so that there may be any number of them; what is shared is
never changed by anybody.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from regnum_model.ids import BrokerEpoch, BrokerId, LogId
from regnum_model.nodes import Membership

SHARED_MAX: Final = 4_096
"""Values of one kind that are kept to be shared."""

K = TypeVar("K")
V = TypeVar("V")

MemberKey = tuple[tuple[int, int, str], ...]
"""Memberships as messages name them: broker id, broker epoch and log id of each."""


class Shared(dict[K, V]):
    """Values by what they are made of: ``shared[key]`` makes the one that is not there.

    When there is no room for another one all are forgotten: what is shared already stays with those who have it.
    """

    def __init__(self, make: Callable[[K], V], *, room: int = SHARED_MAX) -> None:
        """``make``: the value of a key, the same for every call; ``room``: values kept, at least 1."""
        super().__init__()
        self._make = make
        self._room = room

    def __missing__(self, key: K) -> V:
        made = self._make(key)
        if len(self) >= self._room:
            self.clear()
        self[key] = made
        return made


def broker_ids(ids: tuple[int, ...]) -> tuple[BrokerId, ...]:
    """Broker ids of plain numbers."""
    return tuple(map(BrokerId, ids))


def memberships(members: MemberKey) -> dict[BrokerId, Membership]:
    """Memberships by broker; of two of one broker the later."""
    return {
        BrokerId(id): Membership(broker_epoch=BrokerEpoch(epoch), log_id=LogId(log_id)) for id, epoch, log_id in members
    }
