"""The work of `regnum load`: sends at a rate, and tells each second how it goes."""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from regnum_service.clock import Clock

from regnum_client.commands.load.figures import Tally, due
from regnum_client.producer.producer import Producer
from regnum_client.records import RecordMetadata

TICK_S: Final = 0.005
"""Between two looks at what is due."""
AT_ONCE: Final = 200
"""Records that are sent before the event loop has a turn."""
VALUES: Final = 64
"""Different values: made once, for to make them takes longer than to send them."""
VALUES_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all of them: large ones are fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be sent."""

    rate: float
    """Records a second; 0: as fast as the brokers take them."""
    size_bytes: int
    """Of a value."""
    keys: int
    """Different keys; 0: records have none."""
    records_max: int | None
    """Records in all; None: no limit."""
    duration_s: float | None
    """How long; None: no limit."""
    interval_s: float
    """How often it is told how it goes."""


class Generator:
    """One run."""

    def __init__(self, producer: Producer, topic: str, plan: Plan, *, clock: Clock, chance: random.Random) -> None:
        """Only assigns, and makes the values."""
        self._producer: Final = producer
        self._topic: Final = topic
        self._plan: Final = plan
        self._clock: Final = clock
        values = max(1, min(VALUES, VALUES_BYTES_MAX // plan.size_bytes))
        self._values: Final = [chance.randbytes(plan.size_bytes) for _ in range(values)]
        self._began_s = 0.0
        self.tally: Final = Tally(record_bytes=plan.size_bytes + (len(self._key(0) or b"")))
        """What became of the records."""
        self.failure: BaseException | None = None
        """What the first failed record failed with."""

    @property
    def elapsed_s(self) -> float:
        """Since it began."""
        return self._clock.monotonic() - self._began_s

    async def run(self, report: Callable[[Mapping[str, Any]], None]) -> None:
        """Send until a limit is reached, and wait for what is on its way. ``report`` gets the row of each interval."""
        self._began_s = told_s = self._clock.monotonic()
        while (left := self._left()) > 0:
            count = min(left, self._due(), AT_ONCE)
            for _ in range(count):
                await self._send()
            # With nothing due there is time; otherwise callbacks have their turn, and it goes on.
            await self._clock.sleep(0.0 if count else TICK_S)
            now_s = self._clock.monotonic()
            if now_s - told_s >= self._plan.interval_s:
                report(self.tally.interval(now_s - self._began_s, now_s - told_s))
                told_s = now_s
        await self._producer.flush()

    def _left(self) -> int:
        """Records that may still be sent."""
        if self._plan.duration_s is not None and self.elapsed_s >= self._plan.duration_s:
            return 0
        return AT_ONCE if self._plan.records_max is None else self._plan.records_max - self.tally.sent

    def _due(self) -> int:
        """Records whose time has come."""
        return due(self.elapsed_s, self._plan.rate) - self.tally.sent if self._plan.rate else AT_ONCE

    async def _send(self) -> None:
        number = self.tally.sent
        due_s = self._began_s + number / self._plan.rate if self._plan.rate else self._clock.monotonic()
        self.tally.sent += 1
        delivery = await self._producer.send(
            self._topic, self._values[number % len(self._values)], key=self._key(number)
        )
        delivery.add_done_callback(partial(self._ended, due_s))

    def _key(self, number: int) -> bytes | None:
        return b"key-%08d" % (number % self._plan.keys) if self._plan.keys else None

    def _ended(self, due_s: float, delivery: asyncio.Future[RecordMetadata]) -> None:
        if delivery.cancelled():
            self.tally.failed += 1
            return
        error = delivery.exception()
        if error is None:
            self.tally.acknowledged(max(0.0, self._clock.monotonic() - due_s))
        else:
            self.tally.failed += 1
            self.failure = self.failure or error
