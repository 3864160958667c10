"""Sessions of a process with the store that it was told of: what no repetition mends is a refused start."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

from regnum_coordination import open_store
from regnum_coordination.errors import ConnectionLoss, InvalidRequest, NoAuth
from regnum_coordination.port import Store
from regnum_telemetry.metrics import Metrics

from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.measured_store import MeasuredStore
from regnum_service.settings import ServiceSettings
from regnum_service.store_contact import StoreContact
from regnum_service.store_refusals import StoreRefusals
from regnum_service.store_trust import StoreTrust

OpenSession = Callable[[ServiceSettings], Awaitable[Store]]
"""Opens a session with the store that the settings name."""


class ToldStore:
    """The store of ``--coordination``; one for each process. A user that was taken once may be taken again."""

    def __init__(
        self,
        told: ServiceSettings,
        *,
        open_session: OpenSession | None = None,
        metrics: Metrics | None = None,
        trust: StoreTrust | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Only assigns; its calls are timed when there are metrics. ``trust`` None: that of the settings."""
        self._told: Final = told
        self._open: Final = open_told if open_session is None else open_session
        self._metrics: Final = metrics
        self._opened = False
        self.trust: Final = StoreTrust(told) if trust is None else trust
        """Whether it may be relied on for access rules."""
        self._clock: Final = clock or SystemClock()
        self.refusals: Final = StoreRefusals(self._clock)
        """What the store refuses this process for want of rights."""
        self.why_none = "none was opened yet"
        """Why there is no session, when there is none."""

    async def open(self) -> Store:
        """Open a session.

        Raises ConnectionLoss while no store answers; NoAuth while it refuses a process that it took before, whose
        files may be in the making, too. StartRefusedError at the first session, when the URL is wrong or the store does
        not take the user, when it does not authenticate where it has to, and when the library of the driver is missing.
        """
        try:
            store = await self._open(self._told)
            async with AsyncExitStack() as undo:
                undo.push_async_callback(store.close)
                await self.trust.check()
                undo.pop_all()
        except (ValueError, InvalidRequest, NoAuth) as error:
            if self._opened:
                refusal = NoAuth(str(error))
                self.why_none = str(error)
                self.refusals.met(refusal)
                raise refusal from error
            raise StartRefusedError(f"--coordination: {error}", exit_status=ExitStatus.WRONG_USE) from error
        except ModuleNotFoundError as error:
            raise StartRefusedError(f"--coordination: {error}", exit_status=ExitStatus.FAILED) from error
        except ConnectionLoss as error:
            self.why_none = str(error)
            raise
        self._opened, self.why_none = True, "it was lost, and another one is being opened"
        if self._metrics is None:
            return store
        return MeasuredStore(store, self._clock, self._metrics, refused=self.refusals.met)

    def contact(self, store: Callable[[], Store | None], clock: Clock, metrics: Metrics) -> StoreContact:
        """How the process stands with it; arguments as of StoreContact."""
        return StoreContact(store, clock, metrics, why_none=lambda: self.why_none, refused=lambda: self.refusals.now)


def open_told(told: ServiceSettings) -> Awaitable[Store]:
    """Open a session with the store that the settings name; raises as ``open_store``."""
    return open_store(told.coordination, session_timeout_s=told.session_timeout_s)
