"""A store that runs: whether it can be used, and is this cluster's, asked before anything is started for it."""

from collections.abc import Awaitable, Callable
from typing import Final

from regnum_coordination import open_store
from regnum_coordination.errors import ConnectionLoss, InvalidRequest, NoAuth, NoNode, SessionExpired
from regnum_coordination.port import Store
from regnum_model.paths import CLUSTER_ID
from regnum_service.errors import ExitStatus

from regnum_local.store_choice import StoreRefusedError

ANSWER_WITHIN_S: Final = 5.0


async def check_running(
    url: str, *, holds: frozenset[str] = frozenset(), open_session: Callable[[str], Awaitable[Store]] | None = None
) -> None:
    """Open a session, look whose store it is, and end it; raises StoreRefusedError.

    Otherwise every service would try on for as long as it may take to start, and say so in a log of its own; and
    election processes would make a new cluster in an empty store, or campaign in somebody else's, before the brokers
    refuse it.

    Args:
        url: Of the store.
        holds: Ids of the clusters whose records the brokers hold; empty before the first start.
        open_session: Opens a session with a store.
    """
    try:
        store = await (_open(url) if open_session is None else open_session(url))
        try:
            found = await _cluster_in(store) if holds else None
        finally:
            await store.close()
    except (ValueError, InvalidRequest, NoAuth) as error:
        raise StoreRefusedError(str(error), exit_status=ExitStatus.WRONG_USE) from error
    except ModuleNotFoundError as error:
        raise StoreRefusedError(str(error), exit_status=ExitStatus.FAILED) from error
    except (ConnectionLoss, SessionExpired) as error:
        raise StoreRefusedError(
            f"no coordination store answers at {shown(url)} ({error}); start it, correct the URL, or leave "
            "--coordination out for one that is started here",
            exit_status=ExitStatus.UNAVAILABLE,
        ) from error
    if holds and holds != {found}:
        known = "holds no cluster" if found is None else f"is that of cluster {found}"
        raise StoreRefusedError(
            f"the brokers have data of cluster {', '.join(sorted(holds))}, and the coordination store at {shown(url)} "
            f"{known}; give them their own store, or choose another folder"
        )


async def _cluster_in(store: Store) -> str | None:
    try:
        return (await store.get(CLUSTER_ID, current=True)).data.decode("utf-8", errors="replace")
    except NoNode:
        return None


def shown(url: str) -> str:
    """The URL for messages: without its options, and without what somebody may have written before an ``@``."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _open(url: str) -> Awaitable[Store]:
    return open_store(url, operation_timeout_s=ANSWER_WITHIN_S)
