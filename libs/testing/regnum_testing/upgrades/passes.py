"""In which order processes are replaced. Pure; docs/operations/upgrades.md says the same, and a test compares them.

Up: who tells others what the cluster is goes before who is told: metadata, quota, election processes (the controller
last, so that there is one change of controller and not three), then brokers one by one, each only when every replica is
in sync. Down: the other way round. The protocol is raised when nobody of the old release is left.
"""

from collections.abc import Sequence
from typing import Final

from regnum_local.plan import Member, Role

ORDER: Final = (Role.METADATA, Role.QUOTA, Role.ELECTION, Role.BROKER)
"""Roles of an upgrade, first to last; a downgrade goes the other way."""


def order_of(members: Sequence[Member], *, controller: int, down: bool = False) -> tuple[Member, ...]:
    """Members in the order in which they are replaced.

    Args:
        members: of the cluster; a store is none of them.
        controller: election id of the controller, the last of its role in both directions; -1: none is known.
        down: whether an upgrade is taken back.
    """
    roles = tuple(reversed(ORDER)) if down else ORDER

    def place(member: Member) -> tuple[int, bool, int]:
        reigns = member.role is Role.ELECTION and member.id == controller
        # The highest broker first, as a StatefulSet goes.
        return roles.index(member.role), reigns, -member.id if member.role is Role.BROKER else member.id

    return tuple(sorted((member for member in members if member.role in ORDER), key=place))
