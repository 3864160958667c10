"""Versions of administrative calls: which of them any broker takes and passes on, and which go to the controller.

Seed 004 (KIP-590) raises each mutation by one version. From that version on only the controller answers, and whoever
else is asked names it; below it the broker that is asked passes the call on, because clients of that age know no
controller. Topics are created, deleted and enlarged by the same rule, with the versions of seed 000 (KIP-599), from
which on clients understand that a quota refuses. Nothing that came in an envelope is passed on again.

What Kafka has answered by any broker (settings, quotas, rights and tokens that are shown) is passed on as well, below
one version above those of that release: a client that changes something through a broker looks there whether it was
done. All other calls of AdminService were never answered by anybody but the controller and have no old version.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

ADMIN_SERVICE: Final = "/regnum.admin.v1.AdminService/"
"""How the paths of administrative calls begin."""

NEWEST: Final = 2**31 - 1
"""The version of a request that names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarding:
    """What becomes of an administrative call at a broker."""

    direct_since: int
    """First version that only the controller answers; a broker passes older ones on."""
    changes: bool = True
    """Whether it changes anything: what only shows something may be sent again whatever became of it."""


FORWARDED: Final[Mapping[str, Forwarding]] = MappingProxyType(
    {
        # Seed 000.
        "CreateTopics": Forwarding(direct_since=6),
        "CreatePartitions": Forwarding(direct_since=3),
        "DeleteTopics": Forwarding(direct_since=5),
        # Seed 004.
        "AlterConfigs": Forwarding(direct_since=2),
        "IncrementalAlterConfigs": Forwarding(direct_since=2),
        "CreateAcls": Forwarding(direct_since=3),
        "DeleteAcls": Forwarding(direct_since=3),
        "AlterClientQuotas": Forwarding(direct_since=1),
        "CreateDelegationToken": Forwarding(direct_since=3),
        "RenewDelegationToken": Forwarding(direct_since=3),
        "ExpireDelegationToken": Forwarding(direct_since=3),
        # What shows what these change.
        "DescribeConfigs": Forwarding(direct_since=4, changes=False),
        "DescribeAcls": Forwarding(direct_since=3, changes=False),
        "DescribeClientQuotas": Forwarding(direct_since=1, changes=False),
        "DescribeDelegationToken": Forwarding(direct_since=3, changes=False),
    }
)
"""Every call that brokers pass on at some version, by its name in AdminService."""

OF_THE_GATE: Final[Mapping[str, Forwarding]] = MappingProxyType(
    {
        "ElectLeaders": Forwarding(direct_since=0),
        "AlterPartitionReassignments": Forwarding(direct_since=0),
        "ListPartitionReassignments": Forwarding(direct_since=0, changes=False),
    }
)
"""Calls that a broker passes on for clients of Kafka, to whom it stands for the controller, and for nobody else: they
may travel in an envelope, and have no version that brokers take."""


def forwarding_of(method: str) -> Forwarding | None:
    """How a call travels in an envelope; None: it does not. ``method``: its path on the wire."""
    if not method.startswith(ADMIN_SERVICE):
        return None
    name = method.removeprefix(ADMIN_SERVICE)
    return FORWARDED.get(name) or OF_THE_GATE.get(name)


def version_of(api_version: int, *, version_zero: bool) -> int:
    """The version that a header means: one that is unset is the newest. Raises ValueError for one that there is not."""
    if api_version < 0 or (version_zero and api_version):
        raise ValueError(
            f"version {api_version}{' and version_zero' if version_zero else ''} is none; send a positive api_version,"
            " or version_zero alone, or neither for the newest"
        )
    return 0 if version_zero else api_version or NEWEST


def is_forwarded(method: str, version: int) -> bool:
    """Whether a broker passes that version of a call on."""
    found = forwarding_of(method)
    return found is not None and version < found.direct_since
