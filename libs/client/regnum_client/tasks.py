"""The background tasks of a client: made in one place, which hears when one ends that was to go on.

A client is what its tasks do. One that is missing leaves a client that takes records and sends none, or reads and
finds nothing, for ever. So the end of one, whatever brought it, is the end of the client: every call raises from then
on, and what waits is told. A task ends early by a defect, or because something else cancelled it: ``asyncio.run``
cancels every task of the loop when its main coroutine returns, and so do some frameworks.
"""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from regnum_service.cancellation import end_task, is_asked_to_end

from regnum_client.errors import BackgroundTaskError, ClientClosedError

T = TypeVar("T")

END_S: Final = 5.0
"""How long the end of a task is waited for; one that does not heed its cancellation must not hold ``close``."""

_LOG: Final = logging.getLogger("regnum_client")


class Tasks:
    """Of one client. Belongs to its event loop."""

    def __init__(self, client: str) -> None:
        """Only assigns; ``client``: its name in errors."""
        self._client: Final = client
        self._listeners: Final[list[Callable[[BackgroundTaskError], None]]] = []
        self._failure: BackgroundTaskError | None = None

    @property
    def failure(self) -> BackgroundTaskError | None:
        """Which part ended, and why; None: none did."""
        return self._failure

    def check(self) -> None:
        """Raise BackgroundTaskError if a part ended."""
        if self._failure is not None:
            raise self._failure

    def closed_error(self) -> ClientClosedError:
        """What calls raise that find the client closed."""
        return ClientClosedError(self._client)

    def listen(self, listener: Callable[[BackgroundTaskError], None]) -> None:
        """Call ``listener`` when a part ends: it ends what waits for it. Once, for the first."""
        self._listeners.append(listener)

    def start(
        self, name: str, coroutine: Coroutine[Any, Any, T], *, context: contextvars.Context | None = None
    ) -> asyncio.Task[T]:
        """Run a coroutine as a part of the client: it may return, or be ended by ``end``; all else is a failure."""
        task = asyncio.create_task(coroutine, name=name, context=context)
        task.add_done_callback(self._part_ended)
        return task

    def start_question(self, name: str, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """The same for a task whose result, or error, is awaited by what started it (``answer_of``)."""
        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(self._question_ended)
        return task

    async def answer_of(self, question: Awaitable[T]) -> T:
        """What a question came to. Raises BackgroundTaskError if it was cancelled, and its caller was not."""
        try:
            return await uncancelled(question)
        except _CancelledElsewhereError:
            # One turn: the callbacks of the task have been called then.
            await asyncio.sleep(0)
            raise self._failure or BackgroundTaskError(self._client, "a question", None) from None

    async def end(self, *tasks: asyncio.Task[Any]) -> None:
        """End tasks of this client and wait for that, ``END_S`` at most; what they end with is of no concern."""
        for task in tasks:
            end_task(task)
        if not tasks:
            return
        done, pending = await asyncio.wait(tasks, timeout=END_S)
        for task in done:
            if not task.cancelled():
                task.exception()  # asyncio complains of an error that is not asked for
        for task in pending:
            _LOG.warning("task %s does not heed its cancellation", task.get_name())

    def _part_ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self._question_ended(task)
        elif (error := task.exception()) is not None:
            self._fail(task.get_name(), error)

    def _question_ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled() and not is_asked_to_end(task):
            self._fail(task.get_name(), None)

    def _fail(self, part: str, error: BaseException | None) -> None:
        if self._failure is not None:
            return
        self._failure = error if isinstance(error, BackgroundTaskError) else _failure(self._client, part, error)
        for listener in self._listeners:
            listener(self._failure)


class Closing:
    """The end of a client, in a task of its own, which all who close the client share.

    Who closes it may be cancelled at every await, and more than once: in his task, what comes behind that await would
    stay open, and who waits for it would wait for ever.
    """

    def __init__(self) -> None:
        """Only assigns."""
        self._task: asyncio.Task[None] | None = None

    async def ended(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait until ``close`` has ended, which begins unless it runs; it goes on when the caller is cancelled.

        Raises what it raises. Cancelled itself, as ``asyncio.run`` does at its end, it has ended, too.
        """
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(close(), name="client-closing")
        task = self._task
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()


class AbandonedError(Exception):
    """What was waited for was given up."""


class Abandonable:
    """What a task waits for, and its owner may give up for as long as it waits: the task goes on without it.

    Any number of times, and too late: a task that was cancelled twice for it, or once it has gone on with the answer,
    would end, and its client with it.
    """

    __slots__ = ("_waiting", "given_up")

    def __init__(self) -> None:
        """Only assigns."""
        self._waiting: asyncio.Task[Any] | None = None
        self.given_up = False
        """Whether it was given up."""

    def give_up(self) -> None:
        """Wait for it no more."""
        if self._waiting is not None and not self.given_up:
            self.given_up = True
            self._waiting.cancel()

    async def answer(self, awaited: Awaitable[T]) -> T:
        """What came. Raises AbandonedError if it was given up."""
        task = self._waiting = asyncio.current_task()
        try:
            return await awaited
        except asyncio.CancelledError:
            if not self.given_up or task is None or task.uncancel():
                raise
            raise AbandonedError from None
        finally:
            self._waiting = None


class _CancelledElsewhereError(Exception):
    """What was awaited was cancelled, and what awaited it was not."""


async def uncancelled(awaited: Awaitable[T]) -> T:
    """The result of something; raises CancelledError only if the calling task is to end."""
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        return await awaited
    except asyncio.CancelledError:
        if task is None or task.cancelling() > before:
            raise
        raise _CancelledElsewhereError from None


async def together(name: str, *coroutines: Coroutine[Any, Any, T]) -> list[T]:
    """The results of coroutines that run beside one another, in order; the others end with the first that fails.

    Raises the first error, and BackgroundTaskError if one of them was cancelled and the caller was not.
    """
    tasks = [asyncio.create_task(one, name=name) for one in coroutines]
    try:
        return await uncancelled(asyncio.gather(*tasks))
    except _CancelledElsewhereError:
        raise _failure("call", name, None) from None
    finally:
        for task in tasks:
            end_task(task)
        await asyncio.gather(*tasks, return_exceptions=True)


async def first_of(name: str, *coroutines: Coroutine[Any, Any, T]) -> T:
    """The first result of coroutines, one at least, that run beside one another; the others end with it.

    Raises the error of the last one where all have failed, and BackgroundTaskError if one of them was cancelled and the
    caller was not.
    """
    tasks = [asyncio.create_task(one, name=name) for one in coroutines]
    pending = set(tasks)
    last: BaseException = ValueError("one coroutine at least")
    try:
        while pending:
            ended, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                if task.cancelled():
                    raise _failure("call", name, None)
                error = task.exception()
                if error is None:
                    return task.result()
                last = error
        raise last
    finally:
        for task in tasks:
            end_task(task)
        await asyncio.gather(*tasks, return_exceptions=True)


def _failure(client: str, part: str, error: BaseException | None) -> BackgroundTaskError:
    failure = BackgroundTaskError(client, part, error)
    failure.__cause__ = error
    return failure
