"""Topics of a calibration's own: created and deleted at a rate, and none of them left behind."""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.admin.admin import Admin
from regnum_client.admin.describing.quota_usage import QueueWait
from regnum_client.admin.topics import CreatedTopic, DeletedTopic, NewTopic
from regnum_client.commands.quotas.calibration import Step
from regnum_client.commands.quotas.janitor import PREFIX, Janitor, leftovers, sweep

TICK_S: Final = 0.5
"""Between two calls."""
BEHIND_MAX: Final = 8
"""Calls under way beyond which nothing more is offered in a step: the cluster is behind."""
PARTITIONS: Final = 5
"""Of each topic."""
LOOK_S: Final = 2.0
"""How long the cluster is watched before anything is tried."""
STRAY: Final = 2
"""Events of a few that may wait for reasons of their own."""
BUSY_MUTATIONS_PER_S: Final = 2.0
"""Steps of other people's changes a second from which on the cluster is under load."""


class Trial:
    """What a calibration does to a cluster. Belongs to one event loop."""

    def __init__(self, admin: Admin, clock: Clock, prefix: str) -> None:
        """Only assigns."""
        self._admin: Final = admin
        self._clock: Final = clock
        self._prefix: Final = prefix
        self._number = 0
        self._standing: deque[str] = deque()
        """Topics that are there and not being deleted."""
        self._done = 0
        """Partitions that were created and deleted."""

    async def step(self, rate: float, seconds: float) -> Step:
        """Offer so many partitions a second for so long. Raises RegnumError when a change is refused."""
        before, begun_s, self._done = await waits(self._admin), self._clock.monotonic(), 0
        tick, calls, owed = 0, set[asyncio.Task[None]](), 0.0
        try:
            while (moment_s := begun_s + tick * TICK_S) < begun_s + seconds:
                await self._clock.sleep(moment_s - self._clock.monotonic())
                tick += 1
                owed += rate * TICK_S / PARTITIONS
                count, owed = int(owed), owed - int(owed)
                if count and len(calls) < BEHIND_MAX:
                    call = asyncio.create_task(self._change(count), name=f"tick {tick}")
                    calls.add(call)
                for call in [call for call in calls if call.done()]:
                    calls.discard(call)
                    call.result()
            await self._clock.sleep(begun_s + seconds - self._clock.monotonic())
            for call in await _ended(calls):
                call.result()
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        taken_s = self._clock.monotonic() - begun_s
        p99_s = longest(before, await waits(self._admin))
        return Step(
            offered_rate=rate, done_rate=self._done / taken_s, seconds=taken_s, wait_p99_ms=round(p99_s * 1000, 3)
        )

    async def _change(self, count: int) -> None:
        """Half of it creations, half deletions of what is there; at the beginning there is nothing."""
        gone = [self._standing.popleft() for _ in range(min(count // 2 if count > 1 else count, len(self._standing)))]
        names = [self._next_name() for _ in range(count - len(gone))]
        if names:
            topics = [NewTopic(name=name, partitions=PARTITIONS) for name in names]
            created = await self._admin.create_topics(topics, retry_on_quota_violation=False)
            self._count(created, CreatedTopic)
            self._standing += [name for name, answer in created.items() if isinstance(answer, CreatedTopic)]
        if gone:
            self._count(await self._admin.delete_topics(gone, retry_on_quota_violation=False), DeletedTopic)

    def _count(self, answers: Mapping[str, object], kind: type) -> None:
        for answer in answers.values():
            if isinstance(answer, RegnumError):
                raise answer
            self._done += PARTITIONS * isinstance(answer, kind)

    def _next_name(self) -> str:
        self._number += 1
        return f"{self._prefix}{self._number:06d}"


@asynccontextmanager
async def trial(admin: Admin, clock: Clock, bootstrap: str) -> AsyncIterator[Trial]:
    """A trial whose topics are deleted at its end: by this process, and by one that watches it.

    That one is told that nothing is left only where the trial ended well: else calls may be under way that were given
    up, and what they create comes after this process has looked.
    """
    prefix = f"{PREFIX}{secrets.token_hex(4)}-"
    janitor = Janitor.start(bootstrap, prefix)
    try:
        yield Trial(admin, clock, prefix)
    finally:
        await sweep(admin, prefix, clock=clock, quiet_s=0.0)
    # Only here where nothing was raised.
    janitor.dismiss()


async def waits(admin: Admin) -> Mapping[str, QueueWait]:
    """How long what the controller took had waited, by kind."""
    return (await admin.describe_quota_usage(1)).queue_waits


def longest(before: Mapping[str, QueueWait], after: Mapping[str, QueueWait]) -> float:
    """Seconds within which 99 of 100 events were taken in between, of all kinds together; 0 when there were none.

    Of fewer than 200, all but two: one pause of the machine is not what a rate costs.
    """
    since = [wait.since(before.get(kind)) for kind, wait in after.items()]
    if not since:
        return 0.0
    counts = tuple(map(sum, zip(*(wait.counts for wait in since), strict=True)))
    share = min(0.99, (sum(counts) - STRAY) / max(1, sum(counts)))
    return QueueWait(bounds_s=since[0].bounds_s, counts=counts).quantile_s(share) or 0.0


async def why_not(admin: Admin, clock: Clock, wait_max_ms: float) -> str | None:
    """Why nothing should be tried on this cluster now; None: nothing speaks against it."""
    if left := await leftovers(admin, PREFIX):
        return f"{len(left)} topics of another calibration are there: one runs, or one died a moment ago"
    health = await admin.describe_health()
    troubled = sorted(kind.name.lower() for kind, count in health.troubles.items() if count.partitions)
    if troubled:
        return f"partitions are unhealthy: {', '.join(troubled).replace('_', '-')}"
    before = await waits(admin)
    await clock.sleep(LOOK_S)
    after = await waits(admin)
    changes = sum(after["mutations"].since(before.get("mutations")).counts) if "mutations" in after else 0
    if changes > BUSY_MUTATIONS_PER_S * LOOK_S:
        return f"others change topics: {changes / LOOK_S:.0f} steps a second"
    if longest(before, after) * 1000 > wait_max_ms:
        return f"events wait longer than {wait_max_ms:g} ms in the controller's queue as it is"
    return None


async def _ended(calls: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Those that are under way may take a moment longer than the step: what they do is in its time."""
    if not calls:
        return set()
    ended, _ = await asyncio.wait(calls)
    return ended
