"""From the thread of a caller to the event loop of a client and back.

A synchronous class names the methods of its async class (``Blocking``, ``Iterating``) and has no logic of its own;
types, defaults and docstrings are those of the async methods.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError

from regnum_client.errors import ClientClosedError
from regnum_client.sync.loop_thread import SHARED


class AsyncClient(Protocol):
    """What is in front of here."""

    async def start(self) -> None:
        """Open it."""

    async def close(self) -> None:
        """Close it."""


C = TypeVar("C", bound=AsyncClient)
P = ParamSpec("P")
R = TypeVar("R")


class Bridge(Generic[C]):
    """The way to one async client, which lives on the loop of ``SHARED`` between ``open`` and ``close``."""

    def __init__(self, what: str, make: Callable[[], C]) -> None:
        """Only assigns.

        Args:
            what: name of the client in errors.
            make: makes the async client; called on its event loop.
        """
        self._what: Final = what
        self._make: Final = make
        self._lock: Final = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: C | None = None
        self._process = 0

    @property
    def client(self) -> C:
        """The async client, for use on its loop only. Raises ClientClosedError, and INVALID_REQUEST after a fork."""
        client = self._client
        if client is None:
            raise self.closed_error()
        self._check_process()
        return client

    @property
    def is_open(self) -> bool:
        """It was opened in this process, and was not closed."""
        return self._client is not None and self._process == os.getpid()

    def closed_error(self) -> ClientClosedError:
        """It is not open."""
        return ClientClosedError(self._what, opened_by="with")

    def _check_process(self) -> None:
        if self._process not in {0, os.getpid()}:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST,
                f"this {self._what} was opened before a fork, in process {self._process}, and works there only; "
                f"make another one in process {os.getpid()}",
            )

    def open(self) -> None:
        """Make the client and start it. Raises what its start raises; nothing happens when it is open."""
        self._check_process()
        with self._lock:
            if self._client is not None:
                return
            with ExitStack() as undo:
                loop = SHARED.lease()
                undo.callback(SHARED.release)
                self._process = os.getpid()
                client = self._run(self._started(), loop)
                undo.pop_all()
            # Whoever finds the client finds its loop.
            self._loop = loop
            self._client = client

    async def _started(self) -> C:
        async with AsyncExitStack() as undo:
            client = self._make()
            undo.push_async_callback(client.close)
            await client.start()
            undo.pop_all()
        return client

    def close(self, closing: Callable[[C], Coroutine[Any, Any, None]]) -> None:
        """End the client by ``closing``; nothing happens when it is not open, or was opened before a fork."""
        if self._process != os.getpid():
            return
        with self._lock:
            client, loop = self._client, self._loop
            if client is None or loop is None:
                return
            if SHARED.is_current():
                raise self._own_thread_error()
            # From here on nobody else begins anything; what has begun still finds the loop.
            self._client = None
            try:
                self._run(closing(client), loop)
            finally:
                self._loop = None
                SHARED.release()

    def wait(self, work: Coroutine[Any, Any, R]) -> R:
        """Run ``work`` on the loop and wait for what comes of it. Given up (Ctrl-C), it is cancelled."""
        with ExitStack() as undo:
            undo.callback(work.close)
            loop = self._loop_to_wait_for()
            undo.pop_all()
        return self._run(work, loop)

    def _loop_to_wait_for(self) -> asyncio.AbstractEventLoop:
        _ = self.client
        loop = self._loop
        if loop is None:
            raise self.closed_error()
        if SHARED.is_current():
            raise self._own_thread_error()
        return loop

    def tell(self, action: Callable[[], object]) -> None:
        """Let the loop do something soon, and do not wait."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(action)

    @property
    def is_on_loop(self) -> bool:
        """Whether the caller is a callback on the background thread, which must wait for nothing."""
        return SHARED.is_current()

    @staticmethod
    def _run(work: Coroutine[Any, Any, R], loop: asyncio.AbstractEventLoop) -> R:
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        finally:
            # Of no effect when it has ended.
            future.cancel()

    def _own_thread_error(self) -> RegnumError:
        return RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
            f"a callback of the {self._what} would wait for the thread that it runs on; do it in a thread of your own",
        )


class Face(Generic[C]):
    """What all synchronous clients have in common."""

    def __init__(self, bridge: Bridge[C]) -> None:
        """Only assigns."""
        self.bridge: Final = bridge
        """How calls get to the async client."""

    def start(self) -> None:
        """Find the cluster. Raises as the async client; nothing happens when it is open."""
        self.bridge.open()

    def close(self) -> None:
        """Close the connections; nothing happens when it is not open, and after a fork in the child."""
        self.bridge.close(lambda client: client.close())

    def settle(self) -> None:
        """Called on the loop before calls that change where the client stands."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Blocking(Generic[P, R]):
    """A coroutine method of the async class that is waited for; with ``settles``, after ``Face.settle``."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], *, settles: bool = False) -> None:
        self._method: Final = method
        self._settles: Final = settles
        self.__doc__ = method.__doc__
        self.__wrapped__ = method

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...
    @overload
    def __get__(self, face: Face[Any], owner: type) -> Callable[P, R]: ...
    def __get__(self, face: Face[Any] | None, owner: type) -> Self | Callable[P, R]:
        """The method of this client."""
        if face is None:
            return self

        def wait(*args: P.args, **kwargs: P.kwargs) -> R:
            return face.bridge.wait(self._call(face, face.bridge.client, *args, **kwargs))

        wait.__doc__ = self.__doc__
        return wait

    async def _call(self, face: Face[Any], client: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._settles:
            face.settle()
        return await self._method(client, *args, **kwargs)


class OnLoop(Generic[P, R]):
    """An ordinary method of the async class, which belongs to its loop; with ``settles``, after ``Face.settle``."""

    def __init__(self, method: Callable[Concatenate[Any, P], R], *, settles: bool = False) -> None:
        self._method: Final = method
        self._settles: Final = settles
        self.__doc__ = method.__doc__
        self.__wrapped__ = method

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...
    @overload
    def __get__(self, face: Face[Any], owner: type) -> Callable[P, R]: ...
    def __get__(self, face: Face[Any] | None, owner: type) -> Self | Callable[P, R]:
        """The method of this client."""
        if face is None:
            return self

        def wait(*args: P.args, **kwargs: P.kwargs) -> R:
            return face.bridge.wait(self._call(face, face.bridge.client, *args, **kwargs))

        wait.__doc__ = self.__doc__
        return wait

    async def _call(self, face: Face[Any], client: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._settles:
            face.settle()
        return self._method(client, *args, **kwargs)


class Iterating(Generic[P, R]):
    """An async iterator of the async class, as an iterator."""

    def __init__(self, method: Callable[Concatenate[Any, P], AsyncIterator[R]]) -> None:
        self._method: Final = method
        self.__doc__ = method.__doc__
        self.__wrapped__ = method

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...
    @overload
    def __get__(self, face: Face[Any], owner: type) -> Callable[P, Iterator[R]]: ...
    def __get__(self, face: Face[Any] | None, owner: type) -> Self | Callable[P, Iterator[R]]:
        """The iterator of this client."""
        if face is None:
            return self

        def iterate(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
            source = self._method(face.bridge.client, *args, **kwargs)
            try:
                while (item := face.bridge.wait(_next(source))) is not _END:
                    yield item  # type: ignore[misc]
            finally:
                face.bridge.wait(_closed(source))

        iterate.__doc__ = self.__doc__
        return iterate


_END: Final = object()


async def _next(source: AsyncIterator[R]) -> R | object:
    return await anext(source, _END)


async def _closed(source: AsyncIterator[Any]) -> None:
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()
