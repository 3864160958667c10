"""One term as the active quota process: its buckets, and the quotas they follow.

Buckets are this process's alone, so it judges only while its session is confirmed (safety rule S8): after the local
deadline another process may have begun a term. A term never outlives its session.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

import structlog
from regnum.types.v1 import errors_pb2
from regnum_coordination.errors import ConnectionLoss, SessionExpired
from regnum_coordination.port import SessionState, Store
from regnum_coordination.recipes.announced import Announced, touches_quotas
from regnum_coordination.recipes.stored_quotas import Complaints, StoreReader, newest_change, read_quotas
from regnum_coordination.timing import Backoff
from regnum_model import quotas
from regnum_model.quota_matching import BucketKey
from regnum_model.quotas import QuotaTable, change_number
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.slices import slices

from regnum_quota.admission import Conversion, Ledger
from regnum_quota.usage import Used

BUCKETS_PER_TURN: Final = 1_000
"""Buckets that get another quota between two turns of the event loop (safety rule S22)."""


class Term:
    """From the win of the seat to its loss."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        incarnation: str,
        exempt: frozenset[str],
        backoff: Backoff | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._incarnation = incarnation
        self._exempt = exempt
        self._backoff = Backoff() if backoff is None else backoff
        self._complaints: Final = Complaints()
        self._reading = asyncio.Lock()
        self._ledger: Ledger | None = None
        self._change = 0
        """Newest change that the quotas are as new as."""
        self._as_new_as = 0
        """Change that somebody had seen before they were last read."""
        self._log = structlog.get_logger("term").bind(incarnation=incarnation)

    @property
    def incarnation(self) -> str:
        """Names the term: whoever sees another one hands its buckets over (safety rule S21)."""
        return self._incarnation

    @property
    def bucket_count(self) -> int:
        """Buckets that are kept. Any thread."""
        return 0 if self._ledger is None else self._ledger.bucket_count

    @property
    def tokens_least(self) -> float | None:
        """Fewest tokens of any bucket, as of when it was drawn on last; None without buckets. Any thread."""
        return None if self._ledger is None else self._ledger.tokens_least

    def usages(self) -> tuple[Used, ...]:
        """Buckets that were used within the last hour, most recently used first. Any thread."""
        ledger, now_s = self._ledger, self._clock.monotonic()
        if ledger is None:
            return ()
        return tuple(found for key in ledger.in_use(now_s) if (found := ledger.usage(key, now_s)) is not None)

    @property
    def ledger(self) -> Ledger:
        """The buckets, to be used before the next await. Raises RegnumError NOT_COORDINATOR when it may not judge."""
        if self._ledger is None:
            raise not_coordinator("this quota process has just become active and reads the quotas; try again shortly")
        self._require_session()
        return self._ledger

    async def run(self) -> None:
        """Begin, and follow changes until the session is over; raises SessionExpired."""
        await self._read_until_read()
        self._log.info("active", change=self._change)
        async with aclosing(self._store.watch_children(quotas.CHANGES)) as changes:
            announced, seen = Announced(), frozenset[str]()
            async for children in changes:
                names = frozenset(children.names)
                changed = await self._look(announced, children.names)
                tells = self._tells_something(names, seen)
                if tells and touches_quotas(changed):
                    await self._read_until_read()
                    self._log.info("quotas read again", change=self._change)
                elif tells:
                    # Settings, access rules, tokens: what is known of quotas is as new as that.
                    self._change = max(self._change, newest_change(names))
                seen = names
        raise SessionExpired("the watch on changes of quotas ended; open a new store")

    async def catch_up(self, change: int) -> None:
        """Return when the quotas are at least as new as a change that the caller has seen.

        Raises RegnumError NOT_COORDINATOR when they cannot be read.
        """
        if self._knows(change):
            return
        self._require_session()
        async with self._reading:
            if self._knows(change):
                return
            try:
                await self._read()
            except (ConnectionLoss, SessionExpired) as error:
                raise not_coordinator(f"this quota process cannot read the quotas: {error}; try again") from error
            # Also when that change is not there any more: what was read is newer than the question.
            self._as_new_as = max(self._as_new_as, change)

    async def _look(self, announced: Announced, names: Sequence[str]) -> frozenset[str] | None:
        try:
            return await announced.look(StoreReader(self._store), names)
        except ConnectionLoss:
            # Anything may have changed.
            return None

    def _tells_something(self, names: frozenset[str], seen: frozenset[str]) -> bool:
        # Not only what is newer: a store that was put back to an older state counts, and whatever people put there.
        newest, numbers = newest_change(seen), map(change_number, names - seen)
        return newest_change(names) != self._change or any(number is None or number < newest for number in numbers)

    def _require_session(self) -> None:
        if self._store.session_state is not SessionState.CONNECTED:
            raise not_coordinator("this quota process has lost the store and no longer decides; look for another one")

    def _knows(self, change: int) -> bool:
        return self._ledger is None or change <= max(self._change, self._as_new_as)

    async def _read_until_read(self) -> None:
        attempts = 0
        while True:
            try:
                async with self._reading:
                    await self._read()
            except ConnectionLoss as error:
                attempts += 1
                self._log.warning("quotas not read, trying again", reason=str(error))
                await self._clock.sleep(self._backoff.pause_s(attempts))
            else:
                return

    async def _read(self) -> None:
        table = (await read_quotas(StoreReader(self._store), self._complaints)).table
        now_s = self._clock.monotonic()
        if self._ledger is None:
            self._ledger = Ledger(table.limits, active_since_s=now_s, exempt=self._exempt, windows=table.windows)
        else:
            await take_up_limits(self._ledger, table, self._clock)
        self._change = table.change


async def take_up_limits(ledger: Ledger, table: QuotaTable, clock: Clock) -> None:
    """Give a ledger other quotas without holding the loop (safety rule S22); it is asked meanwhile, by the former."""
    converted: dict[BucketKey, Conversion] = {}
    async for keys in slices(ledger.keys, BUCKETS_PER_TURN):
        converted |= ledger.converted(table.limits, keys, clock.monotonic())
    ledger.set_limits(table.limits, clock.monotonic(), converted, windows=table.windows)


def not_coordinator(message: str, **facts: str) -> RegnumError:
    """The refusal of a process that may not judge."""
    return RegnumError(errors_pb2.ERROR_CODE_NOT_COORDINATOR, message, metadata=facts)
