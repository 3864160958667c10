"""How many processes of each kind a cluster gets. Pure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from regnum_service.errors import ExitStatus, StartRefusedError

from regnum_local.plan import Plan, Role

NEW: Final[Mapping[Role, int]] = {Role.BROKER: 3, Role.ELECTION: 3, Role.METADATA: 2, Role.QUOTA: 1}
"""Processes of a cluster in a new folder."""

WORDS: Final[Mapping[Role, tuple[str, str]]] = {
    Role.BROKER: ("brokers", "--brokers"),
    Role.ELECTION: ("election processes", "--elections"),
    Role.METADATA: ("metadata processes", "--metadata"),
    Role.QUOTA: ("quota processes", "--quotas"),
}
"""How people call them, and the option of `regnum up` that says how many."""


def counts_of(plan: Plan, asked: Mapping[Role, int | None], folder: Path) -> dict[Role, int]:
    """How many there are to be of each; None asks for as many as the folder has, or as ``NEW`` has in a new one.

    Raises StartRefusedError for fewer than the folder has. A start takes none away: a broker that is left out takes its
    replicas with it, and election processes of which half are missing may never agree.
    """
    known = {role: len(plan.of(role)) for role in asked}
    fewer = [role for role, count in asked.items() if count is not None and count < known[role]]
    if fewer:
        has = ", ".join(f"{known[role]} {WORDS[role][0]}" for role in asked)
        give = " ".join(f"{WORDS[role][1]} {known[role]}" for role in fewer)
        left_out = ", ".join(WORDS[role][1] for role in fewer)
        kept = "; `regnum brokers drain ID` empties a broker, which stays in the folder" if Role.BROKER in fewer else ""
        raise StartRefusedError(
            f"the cluster in {folder} has {has}, and a start takes none of them away: leave {left_out} out, or give "
            f"{give}, or more to add some{kept}. For a smaller cluster choose another folder with --data-dir",
            exit_status=ExitStatus.CONFLICT,
        )
    return {
        role: count if count is not None else known[role] if plan.members else NEW[role]
        for role, count in asked.items()
    }
