"""Who is registered, and whether the protocol between processes may be raised over them."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from regnum_coordination.port import Node
from regnum_model import paths
from regnum_model.nodes import BrokerNode, ElectionNode, MalformedNodeError, MetadataNode
from regnum_model.protocols import KNOWN, UNSAID, RegisteredProcess, ReleaseInfo, not_raised, speaks_not
from regnum_model.quotas import QUOTA_IDS, QuotaProcessNode
from regnum_service.slices import Turns

from regnum_election.state.context import ControllerContext

PER_TURN: Final = 200
"""Registrations decoded between two turns of the event loop (safety rule S22)."""

_ID: Final = re.compile(r"0|[1-9]\d{0,8}", re.ASCII)
"""Names of registrations; of anything else nobody takes notice."""

ROLES: Final[Mapping[str, tuple[str, Callable[[bytes], ReleaseInfo]]]] = {
    "broker": (paths.BROKER_IDS, lambda data: BrokerNode.decode(data).build),
    "election": (paths.ELECTION_IDS, lambda data: ElectionNode.decode(data).build),
    "metadata": (paths.METADATA_IDS, lambda data: MetadataNode.decode(data).build),
    "quota": (QUOTA_IDS, lambda data: QuotaProcessNode.decode(data).build),
}
"""Folder of the registrations of each role, and what one says of the release."""


async def registered(context: ControllerContext) -> tuple[RegisteredProcess, ...]:
    """Every process that is registered now, by role and id. Raises DeposedError."""
    found: list[RegisteredProcess] = []
    turns = Turns(PER_TURN)
    for role, (folder, build_of) in ROLES.items():
        names = [name for name in await context.store.names(folder) if _ID.fullmatch(name)]
        nodes: Mapping[str, Node] = await context.store.read_many([f"{folder}/{name}" for name in names])
        for name in sorted(names, key=int):
            node = nodes.get(f"{folder}/{name}")
            if node is None:
                # Gone meanwhile.
                continue
            await turns.took()
            build, problem = UNSAID, ""
            try:
                build = build_of(node.data)
            except MalformedNodeError as error:
                problem = f"its registration cannot be read: {error}"
            found.append(RegisteredProcess(role=role, id=int(name), build=build, problem=problem))
    return tuple(found)


def highest_spoken(processes: Iterable[RegisteredProcess]) -> int:
    """The highest protocol that this process and all of these speak; 0: of some of them nobody knows."""
    known = tuple(processes)
    if any(one.problem for one in known):
        return 0
    return min((one.build.protocols.high for one in known), default=KNOWN.high)


async def why_not_raised(context: ControllerContext, level: int) -> str:
    """Why the protocol cannot be raised to that level now; empty: it can. Raises DeposedError."""
    lacking = speaks_not(await registered(context), level)
    return not_raised(level, lacking) if lacking else ""
