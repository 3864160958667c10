"""The session of a process with the store that it was told of: what no repetition mends is a refused start."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from regnum_coordination import open_store
from regnum_coordination.errors import InvalidRequest
from regnum_coordination.port import Store
from regnum_telemetry.metrics import Metrics

from regnum_service.clock import SystemClock
from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.measured_store import MeasuredStore
from regnum_service.settings import ServiceSettings
from regnum_service.store_trust import StoreTrust


async def open_told_store(
    told: ServiceSettings,
    *,
    open_session: Callable[[ServiceSettings], Awaitable[Store]] | None = None,
    metrics: Metrics | None = None,
    trust: StoreTrust | None = None,
) -> Store:
    """Open a session with the store of ``--coordination``; its calls are timed when there are metrics.

    ``trust`` says whether it may be relied on, the first time; None: nobody asks.

    Raises ConnectionLoss while no store answers; StartRefusedError when the URL is wrong, the store does not take the
    user, does not authenticate where it has to, or the library of the driver is missing.
    """
    try:
        store = await (_open(told) if open_session is None else open_session(told))
    except (ValueError, InvalidRequest) as error:
        raise StartRefusedError(f"--coordination: {error}", exit_status=ExitStatus.WRONG_USE) from error
    except ModuleNotFoundError as error:
        raise StartRefusedError(f"--coordination: {error}", exit_status=ExitStatus.FAILED) from error
    if trust is not None:
        async with AsyncExitStack() as undo:
            undo.push_async_callback(store.close)
            await trust.check()
            undo.pop_all()
    return store if metrics is None else MeasuredStore(store, SystemClock(), metrics)


def _open(told: ServiceSettings) -> Awaitable[Store]:
    return open_store(told.coordination, session_timeout_s=told.session_timeout_s)
