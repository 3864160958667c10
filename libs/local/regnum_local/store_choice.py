"""Which coordination store a cluster uses: what was asked for, and what its folder remembers. Pure."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from regnum_service.errors import ExitStatus, StartRefusedError

from regnum_local.plan import STORES, Plan, Role

SCHEMES: Final = ("etcd://", "zookeeper://")
"""What URLs of running stores begin with."""
FORMS: Final = (
    f"use {', '.join(role.value for role in STORES)} for one that is started here, "
    "or the URL of one that runs: etcd://host:2379 or zookeeper://host:2181"
)


class StoreRefusedError(StartRefusedError):
    """The store that was asked for cannot be the one of this cluster. The message says which can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChoice:
    """The store of a cluster."""

    embedded: Role | None
    """The store to start here; None for one that runs elsewhere."""
    url: str | None
    """URL of the store that runs elsewhere; None for an embedded one."""


def choose_store(asked: str | None, known: Plan, folder: Path) -> StoreChoice:
    """What a cluster in a folder uses, when that was asked for (None: nothing in particular).

    A cluster stays with its store: another one knows nothing of its topics. Raises StoreRefusedError.
    """
    choice = StoreChoice(embedded=Role.ETCD, url=None) if asked is None else _read(asked)
    if not known.members:
        return choice
    store = known.store
    if store is None:
        if choice.url is None:
            raise StoreRefusedError(
                f"the store of the cluster in {folder} runs elsewhere; give its URL with --coordination, "
                "or choose another folder"
            )
        return choice
    if asked is None or choice.embedded is store.role:
        return StoreChoice(embedded=store.role, url=None)
    raise StoreRefusedError(
        f"the cluster in {folder} keeps its state in an embedded {store.role.value}; "
        f"go on with --coordination {store.role.value}, or choose another folder"
    )


def _read(asked: str) -> StoreChoice:
    for role in STORES:
        if asked == role.value:
            return StoreChoice(embedded=role, url=None)
    if not asked.startswith(SCHEMES):
        raise StoreRefusedError(f"no coordination store {asked!r}; {FORMS}", exit_status=ExitStatus.WRONG_USE)
    return StoreChoice(embedded=None, url=asked)
