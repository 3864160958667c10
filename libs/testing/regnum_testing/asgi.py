"""Asks an ASGI application without a socket: whole answers, and streams of server-sent events that go on."""

import asyncio
import json
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import unquote

from regnum_testing.waiting import DEADLINE_S

HOST: Final = "127.0.0.1:8090"

Application = Callable[[Any, Any, Any], Any]


@dataclass(slots=True)
class Answer:
    """What came."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def text(self) -> str:
        """The body."""
        return self.body.decode()


def scope_of(path: str, method: str, headers: Mapping[str, str], client: str = "127.0.0.1") -> dict[str, Any]:
    """An HTTP request as ASGI has it; ``path`` with its query, ``client``: address that it comes from."""
    raw, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": (client, 50_000),
        "server": ("127.0.0.1", 8090),
    }


async def ask(
    app: Application,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    client: str = "127.0.0.1",
) -> Answer:
    """The whole answer."""
    answer = Answer()
    sent = False
    ended = asyncio.Event()

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if sent:
            await ended.wait()
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        answer.body += message.get("body", b"")
        if not message.get("more_body"):
            ended.set()

    async with asyncio.timeout(DEADLINE_S):
        await app(scope_of(path, method, {"Host": HOST, **(headers or {})}, client), receive, send)
    return answer


class EventStream:
    """An open stream of server-sent events. ``async with`` opens it and hangs up."""

    def __init__(self, app: Application, path: str, *, headers: Mapping[str, str] | None = None) -> None:
        self._app: Final = app
        self._headers: Final = {"Host": HOST, **(headers or {})}
        self._path: Final = path
        self._came: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1_000)
        self._hung_up: Final = asyncio.Event()
        self._rest = b""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="event stream")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._hung_up.set()
        if self._task is not None:
            async with asyncio.timeout(DEADLINE_S):
                await self._task

    async def next(self, event: str) -> dict[str, Any]:
        """The data of the next event with that name; others are passed over."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                while b"\n\n" not in self._rest:
                    self._rest += await self._came.get()
                block, _, self._rest = self._rest.partition(b"\n\n")
                fields = dict(line.split(": ", 1) for line in block.decode().splitlines())
                if fields.get("event") == event:
                    data: dict[str, Any] = json.loads(fields["data"])
                    return data

    async def ended(self) -> None:
        """Return when the application has ended it."""
        if self._task is not None:
            async with asyncio.timeout(DEADLINE_S):
                await asyncio.shield(self._task)

    async def _run(self) -> None:
        began = False

        async def receive() -> dict[str, Any]:
            nonlocal began
            if not began:
                began = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await self._hung_up.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.body":
                await self._came.put(message.get("body", b""))

        await self._app(scope_of(self._path, "GET", self._headers), receive, send)
