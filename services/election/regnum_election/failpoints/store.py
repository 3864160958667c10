"""A store whose writes a failpoint may be about."""

from collections.abc import Sequence
from typing import Final

from regnum_coordination.forwarding import ForwardingStore
from regnum_coordination.port import (
    Absent,
    Check,
    Create,
    Created,
    Delete,
    Group,
    Operation,
    OperationResult,
    Outcome,
    Set,
    Stat,
    Store,
)
from regnum_service.failpoints.failpoint import Moment, Write
from regnum_service.failpoints.trigger import FailpointTrigger

_NAMES: Final = {Create: "create", Set: "set", Delete: "delete"}


class FailpointStore(ForwardingStore):
    """A session like the one it is made of, until it is the failpoint's turn."""

    def __init__(self, store: Store, trigger: FailpointTrigger) -> None:
        """Only assigns."""
        super().__init__(store)
        self._trigger: Final = trigger

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False, make_parents: bool = False
    ) -> Created:
        """See Store."""
        return await self._trigger.around(
            _write("create", path),
            lambda: self._store.create(
                path, data, ephemeral=ephemeral, sequential=sequential, make_parents=make_parents
            ),
        )

    async def set(self, path: str, data: bytes, *, version: int | None) -> Stat:
        """See Store."""
        return await self._trigger.around(_write("set", path), lambda: self._store.set(path, data, version=version))

    async def delete(self, path: str, *, version: int | None) -> None:
        """See Store."""
        await self._trigger.around(_write("delete", path), lambda: self._store.delete(path, version=version))

    async def delete_below(self, path: str) -> None:
        """See Store."""
        await self._trigger.around(_write("delete_below", path), lambda: self._store.delete_below(path))

    async def multi(self, operations: Sequence[Operation]) -> tuple[OperationResult, ...]:
        """See Store."""
        return await self._trigger.around(_group(operations), lambda: self._store.multi(operations))

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """See Store. A batch is cut at the failpoint: its groups are independent, and any number may have happened."""
        outcomes: list[Outcome] = []
        begun = 0
        for index, group in enumerate(groups):
            failpoint = self._trigger.meets(_group(group))
            if failpoint is None:
                continue
            cut = index if failpoint.moment is Moment.BEFORE else index + 1
            outcomes.extend(await self._store.write_batch(groups[begun:cut], fence=fence) if cut > begun else ())
            begun = cut
            await self._trigger.fire(failpoint)
        if begun == len(groups):
            return tuple(outcomes)
        return (*outcomes, *await self._store.write_batch(groups[begun:], fence=fence))


def _write(operation: str, path: str) -> Write:
    return Write(((operation, path),))


def _group(operations: Sequence[Operation]) -> Write:
    return Write(tuple((_NAMES[type(one)], one.path) for one in operations if not isinstance(one, Check | Absent)))
