"""A console that visitors sign in at, over clusters that are made of values: one for each token, its owner's view."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Final
from urllib.parse import urlencode

from regnum.types.v1 import errors_pb2
from regnum_console.app import application
from regnum_console.guard import Guard, Hosts
from regnum_console.live.feed import ChangeFeed, Source
from regnum_console.port import Ports
from regnum_console.visitors.contexts import VisitorContexts
from regnum_console.visitors.sessions import Sessions
from regnum_console.visitors.visitors import Visitors
from regnum_service.errors import RegnumError

from regnum_testing.asgi import Answer, EventStream, ask
from regnum_testing.clock import FakeClock
from regnum_testing.fake_console import FakeConsoleCluster, FakeLog, FakeReader, FakeWriter, topic_of

NAME: Final = "console.example"
ORIGIN: Final = f"https://{NAME}:8443"


def credential_of(name: str) -> str:
    """In the form of a token's."""
    return f"{name:i<22}.{name:h<86}"


class FakeVisitors:
    """See above. ``add`` makes a visitor."""

    def __init__(self, *, source: Source | None = None, name: str = NAME) -> None:
        self.clusters: Final[dict[str, FakeConsoleCluster]] = {}
        """By credential."""
        self.logs: Final[dict[str, FakeLog]] = {}
        self.asked = 0
        """Tokens that the cluster was asked about."""
        self.open = 0
        """Connections of sessions."""
        self.checking = 0
        self.checking_most = 0
        self.clock: Final = FakeClock()
        contexts = VisitorContexts(ChangeFeed(source, self.clock), self.clock)
        self.sessions: Final = Sessions(self.clock, self._enter, contexts.make)
        hosts = Hosts(scheme="https", names=(name, NAME))
        self.app: Final = Guard(application(Visitors(self.sessions, self.clock)), lambda: hosts)

    def add(self, name: str, *topics: str) -> FakeConsoleCluster:
        """A visitor with a token, who sees these topics."""
        cluster = FakeConsoleCluster(topics={topic: topic_of(topic, [[1, 2, 3], [2, 3]]) for topic in topics})
        self.clusters[credential_of(name)] = cluster
        log = self.logs[name] = FakeLog()
        log.gate.set()
        return cluster

    @asynccontextmanager
    async def _enter(self, credential: str) -> AsyncIterator[Ports]:
        self.asked += 1
        self.checking += 1
        self.checking_most = max(self.checking, self.checking_most)
        try:
            await self.clock.sleep(0)
            cluster = self.clusters.get(credential)
            if cluster is None:
                raise RegnumError(errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED, "the delegation token is unknown")
        finally:
            self.checking -= 1
        log = next(self.logs[name] for name in self.logs if credential_of(name) == credential)
        self.open += 1
        try:
            yield Ports(
                cluster=cluster,
                connect=lambda: nullcontext(cluster),
                read=lambda: FakeReader(log),
                write=lambda: nullcontext(FakeWriter(log)),
            )
        finally:
            self.open -= 1

    async def post(
        self, path: str, *, cookie: str = "", origin: str | None = ORIGIN, client: str = "10.0.0.9", **fields: str
    ) -> Answer:
        """A form as a browser sends it."""
        headers = {"Host": f"{NAME}:8443", "Content-Type": "application/x-www-form-urlencoded"}
        headers |= {"Cookie": cookie} if cookie else {}
        headers |= {"Origin": origin} if origin is not None else {}
        body = urlencode(fields).encode()
        return await ask(self.app, path, method="POST", headers=headers, body=body, client=client)

    async def get(self, path: str, *, cookie: str = "") -> Answer:
        """A page."""
        return await ask(self.app, path, headers=_headers(cookie))

    def stream(self, path: str, *, cookie: str = "") -> EventStream:
        """Its stream."""
        return EventStream(self.app, path, headers=_headers(cookie))

    async def sign_in(self, name: str) -> str:
        """The cookie that a browser keeps then."""
        answer = await self.post("/sign-in", token=credential_of(name))
        if answer.status != 303:
            raise AssertionError(answer.text)
        return answer.headers["set-cookie"].partition(";")[0]


def _headers(cookie: str) -> dict[str, str]:
    return {"Host": f"{NAME}:8443", **({"Cookie": cookie} if cookie else {})}
