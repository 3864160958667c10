"""A session whose operations on data are written down as a history.

What the port's errors mean for a history: NodeExists, NoNode and BadVersion are answers. ConnectionLoss is an unknown
outcome (safety rule S1). SessionExpired says that nothing happened and nothing will: the operation is left out, so
that data of it which is found later shows up as data that nobody wrote.

A check of absence tells one thing of a node, and is written down as the operation that tells the same: one that held as
a get that found nothing, one that failed as a creation that was refused. So other judges, to which such a check is
unknown, can read it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from regnum_coordination.errors import BadVersion, ConnectionLoss, NodeExists, NoNode
from regnum_coordination.port import Absent, Create, Node, Store

from regnum_testing.linearizability.register import Action, Operation, Outcome

_REFUSALS = {NodeExists: Outcome.NODE_EXISTS, NoNode: Outcome.NO_NODE, BadVersion: Outcome.BAD_VERSION}


class Recorder:
    """One client of a store; it asks for one thing at a time."""

    def __init__(
        self,
        store: Store,
        *,
        client: int,
        monotonic_ns: Callable[[], int],
        write_down: Callable[[Operation], None],
        current_reads: bool = True,
    ) -> None:
        """``current_reads`` False asks for reads that may be of the past: their history need not be linearizable."""
        self._store = store
        self._current_reads = current_reads
        self._client = client
        self._monotonic_ns = monotonic_ns
        self._write_down = write_down

    async def create(self, key: str, value: str) -> Operation:
        """Create a node."""
        return await self._record(
            Action.CREATE, key, lambda: self._store.create(key, value.encode()), expected=None, value=value
        )

    async def create_beside(self, key: str, value: str, *, absent: str) -> Operation:
        """Create a node while another one is absent; the operation on the one that decided."""
        asked = Operation(
            client=self._client,
            key=key,
            action=Action.CREATE,
            call_ns=self._monotonic_ns(),
            return_ns=0,
            outcome=Outcome.OK,
            value=value,
        )
        try:
            await self._store.multi([Absent(absent), Create(key, value.encode())])
        except NodeExists as refusal:
            asked = replace(asked, key=refusal.path, outcome=Outcome.NODE_EXISTS)
        except ConnectionLoss:
            asked = replace(asked, outcome=Outcome.UNKNOWN)
        done = replace(asked, return_ns=self._monotonic_ns())
        if done.key == key and done.outcome is not Outcome.UNKNOWN:
            # The check came first, and held whatever became of the creation.
            self._write_down(replace(done, key=absent, action=Action.GET, outcome=Outcome.NO_NODE, value=None))
        self._write_down(done)
        return done

    async def get(self, key: str) -> Operation:
        """Read a node, as it is now unless the recorder was told otherwise."""
        return await self._record(
            Action.GET, key, lambda: self._store.get(key, current=self._current_reads), expected=None
        )

    async def set(self, key: str, value: str, *, version: int | None) -> Operation:
        """Replace the data of a node."""
        return await self._record(
            Action.SET,
            key,
            lambda: self._store.set(key, value.encode(), version=version),
            expected=version,
            value=value,
        )

    async def delete(self, key: str, *, version: int | None) -> Operation:
        """Delete a node."""
        return await self._record(
            Action.DELETE, key, lambda: self._store.delete(key, version=version), expected=version
        )

    async def _record(
        self,
        action: Action,
        key: str,
        ask: Callable[[], Awaitable[object]],
        *,
        expected: int | None,
        value: str | None = None,
    ) -> Operation:
        call_ns = self._monotonic_ns()
        outcome, found = Outcome.OK, None
        try:
            found = await ask()
        except (NodeExists, NoNode, BadVersion) as refusal:
            outcome = _REFUSALS[type(refusal)]
        except ConnectionLoss:
            outcome = Outcome.UNKNOWN
        operation = Operation(
            client=self._client,
            key=key,
            action=action,
            call_ns=call_ns,
            return_ns=self._monotonic_ns(),
            outcome=outcome,
            expected=expected,
            value=value,
        )
        if isinstance(found, Node):
            operation = replace(operation, version=found.stat.version, value=found.data.decode())
        self._write_down(operation)
        return operation
