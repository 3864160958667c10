"""Requests to the controller: they wait in the controller's queue and are answered through futures."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from regnum.types.v1 import errors_pb2
from regnum_service.errors import Code, RegnumError

from regnum_election.reign.events import EventQueue, Mutation, QueueFullError
from regnum_election.reign.mutation_lanes import Caller
from regnum_election.reign.reign import DeposedError

T = TypeVar("T")


class RequestQueue:
    """Takes requests for as long as one reign lasts."""

    def __init__(self, queue: EventQueue, *, refuses: str = "") -> None:
        """Only assigns; ``refuses``: why nothing can be asked of this reign; empty: it can."""
        self._queue = queue
        self._refuses = refuses
        self._store_refuses = ""
        self._open: dict[asyncio.Future[Any], None] = {}
        """What waits for the store or in the queue, but for what is urgent."""
        self._closed = False

    def store_refuses(self, because: str) -> None:
        """The store takes no writes, for that reason: who waits hears it now. Empty: it takes them."""
        self._store_refuses = because and f"the coordination store takes no writes: {because}"
        for result in tuple(self._open) if because else ():
            if not result.done():
                unknown = (
                    f"{self._store_refuses}. What was asked for may be done once it does: look before asking again"
                )
                result.set_exception(RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, unknown))

    def check_store(self, code: Code) -> None:
        """Raise RegnumError with that code while the store takes no writes; for what is urgent, too."""
        if self._store_refuses:
            raise RegnumError(code, f"{self._store_refuses}; nothing was changed")

    def close(self) -> None:
        """The reign is over: nothing is taken any more."""
        self._closed = True

    def require_room(self) -> None:
        """Raise RegnumError when no mutation can be queued now."""
        self._check_taken()
        # Not worth repeating: who asks is to hear of it, and not of a time that is up.
        self.check_store(errors_pb2.ERROR_CODE_INVALID_REQUEST)
        if self._closed:
            raise cut_off(begun=False)
        if self._queue.is_full:
            raise _full()

    def submit(
        self,
        name: str,
        steps: AsyncGenerator[None, None],
        result: "asyncio.Future[T]",
        *,
        begun: Callable[[], bool],
        urgent: bool = False,
        gives_way_of: Caller | None = None,
    ) -> None:
        """Queue work whose steps set ``result``. Raises RegnumError when it cannot be queued.

        Args:
            name: what it is, for the log.
            steps: the work.
            result: where its outcome goes.
            begun: whether anything may have been written.
            urgent: whether it counts as a cluster event.
            gives_way_of: who wants it, where other callers' mutations may come between its steps; None: nothing may.
        """
        self._check_taken()
        if self._closed:
            raise cut_off(begun=False)

        def abandon() -> None:
            if not result.done():
                result.set_exception(cut_off(begun=begun()))

        mutation = Mutation(
            name=name,
            steps=_answering(steps, result),
            abandon=abandon,
            caller=gives_way_of or ("", ""),
            gives_way=gives_way_of is not None,
        )
        if urgent:
            self._queue.put_urgent(mutation)
            return
        self.check_store(errors_pb2.ERROR_CODE_INVALID_REQUEST)
        try:
            self._queue.put_mutation(mutation)
        except QueueFullError:
            raise _full() from None
        # Not before: nobody waits for the result of what was not queued.
        self._open[result] = None
        result.add_done_callback(lambda done: self._open.pop(done, None))

    def _check_taken(self) -> None:
        if self._refuses:
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, self._refuses)

    async def answer(self, result: "asyncio.Future[T]", wait_s: float) -> T:
        """The outcome of submitted work. Raises RegnumError."""
        try:
            async with asyncio.timeout(wait_s):
                return await result
        except TimeoutError:
            raise RegnumError(
                errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
                "the controller is still at work on it; look at the topics before sending it again",
            ) from None


async def beside(work: Coroutine[Any, Any, T], wait_s: float, *, late: str) -> T:
    """Work that is done beside the controller's task. Raises RegnumError.

    Args:
        work: what may raise DeposedError.
        wait_s: how long it may take.
        late: what to do when it takes longer.
    """
    try:
        async with asyncio.timeout(wait_s):
            return await work
    except TimeoutError:
        raise RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, late) from None
    except DeposedError:
        raise cut_off(begun=False) from None


def cut_off(*, begun: bool) -> RegnumError:
    """What callers hear when the reign is over."""
    if begun:
        return RegnumError(
            errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
            "the controller changed while it was at work on it; look at the topics before sending it again",
        )
    return RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "the controller changed; ask the new one")


def _full() -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
        "too many requests wait for the controller; try again later",
        retry_after_ms=1_000,
    )


async def _answering(steps: AsyncGenerator[None, None], result: "asyncio.Future[T]") -> AsyncGenerator[None, None]:
    """The steps; an error that is meant for the caller reaches the caller and not the controller."""
    async with aclosing(steps):
        try:
            async for _ in steps:
                yield
        except RegnumError as error:
            if not result.done():
                result.set_exception(error)
