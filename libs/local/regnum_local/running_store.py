"""A store that runs elsewhere: whether it can be used, asked before anything is started for it."""

from collections.abc import Awaitable, Callable
from typing import Final

from regnum_coordination import open_store
from regnum_coordination.errors import ConnectionLoss, InvalidRequest
from regnum_coordination.port import Store
from regnum_service.errors import ExitStatus

from regnum_local.store_choice import StoreRefusedError

ANSWER_WITHIN_S: Final = 5.0


async def check_running(url: str, *, open_session: Callable[[str], Awaitable[Store]] | None = None) -> None:
    """Open a session and end it; raises StoreRefusedError.

    Otherwise every service would try on for as long as it may take to start, and say so in a log of its own.
    """
    try:
        store = await (_open(url) if open_session is None else open_session(url))
    except (ValueError, InvalidRequest) as error:
        raise StoreRefusedError(str(error), exit_status=ExitStatus.WRONG_USE) from error
    except ModuleNotFoundError as error:
        raise StoreRefusedError(str(error), exit_status=ExitStatus.FAILED) from error
    except ConnectionLoss as error:
        raise StoreRefusedError(
            f"no coordination store answers at {shown(url)} ({error}); start it, correct the URL, or leave "
            "--coordination out for one that is started here",
            exit_status=ExitStatus.UNAVAILABLE,
        ) from error
    await store.close()


def shown(url: str) -> str:
    """The URL for messages: without its options, and without what somebody may have written before an ``@``."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _open(url: str) -> Awaitable[Store]:
    return open_store(url, operation_timeout_s=ANSWER_WITHIN_S)
