"""Messages of a lifeline, its end and attempts to connect come as late as a failpoint says."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest
from regnum.election.v1 import controller_pb2
from regnum_election.failpoints.lifeline import FailpointLifelines, failpoint_probe
from regnum_model.contact import Contact
from regnum_model.nodes import Address
from regnum_service.failpoints.trigger import FailpointTrigger
from regnum_testing.waiting import until, within

Request, Response = controller_pb2.BrokerLifelineRequest, controller_pb2.BrokerLifelineResponse


class Lifelines:
    """Answers each message; notes what it hears, and that it ended."""

    def __init__(self, told: list[str]) -> None:
        self.told = told

    async def BrokerLifeline(  # noqa: N802 - gRPC's name
        self, request_iterator: AsyncIterator[Request], context: object
    ) -> AsyncGenerator[Response, None]:
        try:
            async for request in request_iterator:
                self.told.append(f"heard {request.beat}")
                yield Response(beat=request.beat)
        finally:
            self.told.append("ended")


class Scene:
    """A lifeline behind a failpoint."""

    def __init__(self, file: Path) -> None:
        self.told: list[str] = []
        self.requests: asyncio.Queue[Request | None] = asyncio.Queue()
        self.file = file
        trigger = FailpointTrigger(file, sleep=self._sleep)
        self.trigger = trigger
        self.answers = FailpointLifelines(Lifelines(self.told), trigger).BrokerLifeline(self._all(), None)

    async def _sleep(self, _seconds: float) -> None:
        self.told.append("waited")

    async def _all(self) -> AsyncIterator[Request]:
        while (request := await self.requests.get()) is not None:
            yield request


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "failpoint")


async def test_messages_and_the_end_are_late_and_in_order(scene: Scene) -> None:
    scene.file.write_text("action=delay ms=200 when=before step=lifeline times=all")
    for beat in (1, 2):
        scene.requests.put_nowait(Request(beat=beat))
    assert [(await within(anext(scene.answers))).beat for _ in range(2)] == [1, 2]
    assert (scene.told.count("waited"), scene.told[0]) == (2, "waited")
    assert [told for told in scene.told if told != "waited"] == ["heard 1", "heard 2"]
    scene.requests.put_nowait(None)
    assert await within(anext(scene.answers, None)) is None
    assert scene.told[4:6] == ["waited", "ended"]


async def test_a_connection_that_breaks_is_heard_of_late(scene: Scene) -> None:
    """GRPC cancels the handler; what is behind the failpoint goes on until that lets it end."""
    scene.requests.put_nowait(Request(beat=1))
    await within(anext(scene.answers))
    scene.file.write_text("action=delay ms=200 when=before step=lifeline")

    async def hold() -> None:
        async for _ in scene.answers:
            pass

    handler = asyncio.create_task(hold())
    await asyncio.sleep(0)
    handler.cancel()
    await asyncio.wait([handler])
    await scene.answers.aclose()
    await until(lambda: "ended" in scene.told)
    assert scene.told == ["heard 1", "waited", "ended"]


async def test_an_attempt_to_connect_waits(scene: Scene) -> None:
    async def probe(_address: Address) -> Contact:
        scene.told.append("knocked")
        return Contact.REFUSED

    knock = failpoint_probe(probe, scene.trigger)
    scene.file.write_text("action=delay ms=200 when=before step=knock n=2")
    for _ in range(2):
        assert await knock(Address(host="h", port=1)) is Contact.REFUSED
    assert scene.told == ["knocked", "waited", "knocked"]
