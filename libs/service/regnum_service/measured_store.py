"""A store whose calls are timed: how long the coordination store takes, by operation and outcome."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from regnum_coordination.errors import CoordinationError, NoAuth
from regnum_coordination.forwarding import ForwardingStore
from regnum_coordination.port import (
    Check,
    Children,
    Created,
    Group,
    Node,
    Operation,
    OperationResult,
    Outcome,
    Stat,
    Store,
    Unknown,
)
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Histogram, Metrics

from regnum_service.clock import Clock

T = TypeVar("T")

OK: Final = "ok"
"""Outcome of a call that did not raise; conflicts in a batch are answers."""

CANCELLED: Final = "cancelled"
"""Outcome of a call that its caller gave up."""

UNKNOWN: Final = "Unknown"
"""Outcome of a batch of which some group may or may not have happened (safety rule S1)."""


class MeasuredStore(ForwardingStore):
    """A session like the one it is made of. Watches and walks through trees last as long as they last: not timed."""

    def __init__(
        self, store: Store, clock: Clock, metrics: Metrics, *, refused: Callable[[NoAuth], None] = lambda _: None
    ) -> None:
        """Only assigns; ``refused``: told of every call that the store refuses for want of rights."""
        self._refused: Final = refused
        super().__init__(store)
        self._clock: Final = clock
        self._metrics: Final = metrics
        self._calls: Final[dict[tuple[str, str], Histogram]] = {}

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False, make_parents: bool = False
    ) -> Created:
        """See Store."""
        creating = self._store.create(path, data, ephemeral=ephemeral, sequential=sequential, make_parents=make_parents)
        return await self._timed("create", creating)

    async def get(self, path: str, *, current: bool = False) -> Node:
        """See Store."""
        return await self._timed("get", self._store.get(path, current=current))

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        """See Store."""
        return await self._timed("get_many", self._store.get_many(paths, current=current))

    async def exists(self, path: str, *, current: bool = False) -> Stat | None:
        """See Store."""
        return await self._timed("exists", self._store.exists(path, current=current))

    async def children(self, path: str, *, current: bool = False) -> Children:
        """See Store."""
        return await self._timed("children", self._store.children(path, current=current))

    async def set(self, path: str, data: bytes, *, version: int | None) -> Stat:
        """See Store."""
        return await self._timed("set", self._store.set(path, data, version=version))

    async def delete(self, path: str, *, version: int | None) -> None:
        """See Store."""
        await self._timed("delete", self._store.delete(path, version=version))

    async def delete_below(self, path: str) -> None:
        """See Store."""
        await self._timed("delete_below", self._store.delete_below(path))

    async def multi(self, operations: Sequence[Operation]) -> tuple[OperationResult, ...]:
        """See Store."""
        return await self._timed("multi", self._store.multi(operations))

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """See Store."""
        began_s = self._clock.monotonic()
        outcome = CANCELLED
        try:
            outcomes = await self._store.write_batch(groups, fence=fence)
            unknown = [one for one in outcomes if isinstance(one, Unknown)]
            outcome = UNKNOWN if unknown else OK
            for one in unknown:
                if isinstance(one.because, NoAuth):
                    outcome = type(one.because).__name__
                    self._refused(one.because)
                    break
        except CoordinationError as error:
            outcome = self._named(error)
            raise
        finally:
            self._record("write_batch", outcome, began_s)
        return outcomes

    async def _timed(self, operation: str, call: Awaitable[T]) -> T:
        began_s = self._clock.monotonic()
        outcome = CANCELLED
        try:
            answer = await call
            outcome = OK
        except CoordinationError as error:
            outcome = self._named(error)
            raise
        finally:
            self._record(operation, outcome, began_s)
        return answer

    def _named(self, error: CoordinationError) -> str:
        if isinstance(error, NoAuth):
            self._refused(error)
        return type(error).__name__

    def _record(self, operation: str, outcome: str, began_s: float) -> None:
        known = self._calls.get((operation, outcome))
        if known is None:
            known = self._metrics.histogram(instruments.STORE_CALLS, operation, outcome)
            self._calls[operation, outcome] = known
        known.record(self._clock.monotonic() - began_s)
