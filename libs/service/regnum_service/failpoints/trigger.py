"""Counts the steps of a process, and ends, stops or delays it at the one that a file names.

Goals: a test hurts the process that is the controller at this moment, at a step that it chose beforehand, once, and
needs no restart to choose the next one. It learns from the process which steps there are.

Algorithm: the setting names a file that need not exist. Before each step the file is looked at; what stands in it is
the failpoint (see ``failpoint``), and counting begins anew with each content. When it is its last turn, the file is
removed first, so that the process that is started next runs on. Each write and each order is a line of ``FILE.steps``
before it is taken, and what became of an order is another one, with its number in the life of the process:

    {"write": [["set", "/brokers/topics/t"]]}
    {"order": "LeaderAndIsr", "broker": 2, "topics": ["t"], "number": 1}
    {"taken": "LeaderAndIsr", "broker": 2, "number": 1}
    {"refused": "LeaderAndIsr", "broker": 2, "number": 1, "reason": "STALE_CONTROLLER_EPOCH"}

The file is read on the event loop: it is small, it is local, and nobody runs so in production.
"""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from regnum_model.ids import BrokerId

from regnum_service.errors import RegnumError, reason_of
from regnum_service.failpoints.failpoint import (
    BYTES_MAX,
    Action,
    Failpoint,
    FailpointError,
    Moment,
    Order,
    Point,
    Step,
    Write,
    parse,
)

T = TypeVar("T")


class FailpointTrigger:
    """The failpoint of one process. All that takes steps in the process shares it; any thread."""

    def __init__(
        self,
        file: Path,
        act: "Callable[[Action], None] | None" = None,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        block: Callable[[float], None] = time.sleep,
    ) -> None:
        """Only assigns.

        Args:
            file: where the failpoint stands, while there is one.
            act: ends or stops the process; ``end_or_stop`` when None.
            sleep: lets so many seconds pass, for a step of an event loop.
            block: the same for a step of a thread.
        """
        self._file: Final = file
        self._act: Final = act or end_or_stop
        self._sleep: Final = sleep
        self._block: Final = block
        self._lock: Final = threading.Lock()
        self._text: str | None = None
        self._failpoint: Failpoint | None = None
        self._count = 0
        self._orders = 0

    @property
    def file(self) -> Path:
        """Where the failpoint stands, while there is one."""
        return self._file

    def check(self) -> None:
        """Raise FailpointError when something stands in the file that is no failpoint."""
        with self._lock:
            self._look()

    def meets(self, step: Step) -> Failpoint | None:
        """Count a step that is about to be taken; the failpoint, if this is its turn. Raises FailpointError."""
        with self._lock:
            self._look()
            self._note(step)
            failpoint = self._failpoint
            if failpoint is None or not failpoint.matches(step):
                return None
            self._count += 1
            return failpoint if failpoint.is_due(self._count) else None

    async def fire(self, failpoint: Failpoint) -> None:
        """Do what the failpoint says; returns after the delay, and where the process was stopped and went on."""
        delay_s = self._begin(failpoint)
        if delay_s:
            await self._sleep(delay_s)

    def _begin(self, failpoint: Failpoint) -> float:
        """End or stop the process; the delay in seconds where it is neither."""
        with self._lock:
            if failpoint is self._failpoint and failpoint.is_last(self._count):
                self._file.unlink(missing_ok=True)
                self._look()
        if failpoint.action is not Action.DELAY:
            self._act(failpoint.action)
        return failpoint.delay_ms / 1000

    async def reach(self, point: str, topics: Iterable[str] = ()) -> None:
        """Take a step that has no answer."""
        failpoint = self.meets(Point(point, tuple(dict.fromkeys(topics))))
        if failpoint is not None:
            await self.fire(failpoint)

    def reach_on_thread(self, point: str, topics: Iterable[str] = ()) -> None:
        """The same, on a thread that has no event loop."""
        failpoint = self.meets(Point(point, tuple(dict.fromkeys(topics))))
        if failpoint is not None and (delay_s := self._begin(failpoint)):
            self._block(delay_s)

    async def around_point(
        self, point: str, topics: Iterable[str], take: Callable[[], Awaitable[T]], broker: BrokerId | None = None
    ) -> T:
        """Take a step that has an answer; ``broker``: whose."""
        return await self.around(Point(point, tuple(dict.fromkeys(topics)), broker), take)

    async def around(self, step: Step, take: Callable[[], Awaitable[T]]) -> T:
        """Take a step, with what happens before or after it. After: also when it failed."""
        failpoint = self.meets(step)
        if failpoint is None:
            return await take()
        if failpoint.moment is Moment.BEFORE:
            await self.fire(failpoint)
            return await take()
        try:
            return await take()
        finally:
            await self.fire(failpoint)

    def _look(self) -> None:
        try:
            with self._file.open(encoding="utf-8") as opened:
                text = opened.read(BYTES_MAX + 1)
        except FileNotFoundError:
            text = None
        except UnicodeDecodeError:
            raise FailpointError("it is no text") from None
        if text != self._text:
            self._failpoint = None if text is None else parse(text)
            self._text = text
            self._count = 0

    async def send(self, order: Order, send: Callable[[], Awaitable[T]]) -> T:
        """Send an order, with what happens before or after it, and write down what became of it."""
        self._orders += 1
        number = self._orders
        try:
            answer = await self.around(order, send)
        except RegnumError as error:
            reason = reason_of(error.code)
            self._write_down({"refused": order.kind, "broker": order.broker, "number": number, "reason": reason})
            raise
        self._write_down({"taken": order.kind, "broker": order.broker, "number": number})
        return answer

    def _note(self, step: Step) -> None:
        if isinstance(step, Point):
            return
        if isinstance(step, Write):
            self._write_down({"write": step.operations})
            return
        line = {"order": step.kind, "broker": step.broker, "topics": step.topics, "number": self._orders}
        self._write_down(line)

    def _write_down(self, line: Mapping[str, object]) -> None:
        with Path(f"{self._file}.steps").open("a", encoding="utf-8") as notes:
            notes.write(json.dumps(line) + "\n")


def end_or_stop(action: Action) -> None:
    """Send the signal to this process; what stands behind the call does not run before it has worked."""
    if action is Action.KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    elif action is Action.STOP:
        # To this thread: another one could take the signal while this one goes on for a moment.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
