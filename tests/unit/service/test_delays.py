"""A failpoint that delays: the steps it names wait, so many of them and so long, and no others."""

from pathlib import Path

import pytest
from regnum_model.ids import BrokerId
from regnum_service.errors import StartRefusedError
from regnum_service.failpoints.announcing import announce
from regnum_service.failpoints.failpoint import POINTS, Action, FailpointError, Point, Write, parse
from regnum_service.failpoints.trigger import FailpointTrigger


class Scene:
    """A process that takes steps, and how long it waited."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "failpoint"
        self.waited: list[float] = []
        self.blocked: list[float] = []
        self.trigger = FailpointTrigger(self.file, sleep=self._sleep, block=self.blocked.append)

    async def _sleep(self, seconds: float) -> None:
        self.waited.append(seconds)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_delay_is_read_with_all_its_words() -> None:
    found = parse("action=delay ms=200 when=before step=send n=2 times=3 topic=a*")
    assert (found.action, found.delay_ms, found.point) == (Action.DELAY, 200, "send")
    assert [found.is_due(count) for count in range(1, 7)] == [False, True, True, True, False, False]
    assert [found.is_last(count) for count in range(1, 7)] == [False, False, False, True, True, True]
    assert found.matches(Point("send", ("x", "ab")))
    assert not found.matches(Point("send", ("x",)))
    assert not found.matches(Point("learn", ("ab",)))
    assert parse("action=delay ms=1 when=before step=send broker=2").matches(Point("send", (), BrokerId(2)))
    assert not parse("action=delay ms=1 when=before step=send broker=2").matches(Point("send", (), BrokerId(1)))
    assert not found.matches(Write((("set", "/a"),)))
    every = parse("action=delay ms=1 when=before step=append times=all")
    assert every.matches(Point("append"))
    assert (every.is_due(10**9), every.is_last(10**9)) == (True, False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("action=delay when=before step=send", "needs ms="),
        ("action=delay ms=0 when=before step=send", "from 1"),
        ("action=delay ms=5 times=none when=before step=send", "from 1"),
        ("action=kill ms=5 when=before step=send", "action=kill has no ms="),
        ("action=stop times=2 when=before step=write", "action=stop has no times="),
        ("action=delay ms=5 when=before step=send path=/a", "step=send has no path="),
        ("action=delay ms=5 when=before step=write topic=a", "step=write has no topic="),
        ("action=delay ms=5 when=before step=sent", "lifeline, knock"),
    ],
)
def test_what_is_no_delay_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(FailpointError, match=said):
        parse(text)


@pytest.mark.parametrize("point", POINTS)
async def test_every_point_can_be_delayed_on_a_loop_and_on_a_thread(scene: Scene, point: str) -> None:
    scene.file.write_text(f"action=delay ms=50 when=before step={point} times=2")
    await scene.trigger.reach("another")
    await scene.trigger.reach(point, ("t", "t"))
    assert scene.file.exists()
    scene.trigger.reach_on_thread(point)
    assert not scene.file.exists(), "the next life of the process runs on"
    await scene.trigger.reach(point)
    scene.trigger.reach_on_thread(point)
    assert (scene.waited, scene.blocked) == ([0.05], [0.05])


async def test_a_step_is_delayed_before_it_or_after_its_answer(scene: Scene) -> None:
    async def send() -> int:
        return len(scene.waited)

    scene.file.write_text("action=delay ms=50 when=before step=send times=all")
    assert await scene.trigger.around_point("send", ("t",), send) == 1
    scene.file.write_text("action=delay ms=200 when=after step=send times=all topic=t")
    assert await scene.trigger.around_point("send", ("t",), send) == 1
    assert await scene.trigger.around_point("send", ("other",), send) == 2
    assert scene.waited == [0.05, 0.2]
    assert scene.file.exists(), "it holds until a test takes it away"


def test_a_process_says_that_it_has_failpoints(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    announce(None)
    assert capsys.readouterr().out == ""
    announce(scene.trigger)
    assert "failpoints are on" in capsys.readouterr().out
    scene.file.write_text("nonsense")
    with pytest.raises(StartRefusedError, match="--failpoint-file: 'nonsense' is not one of"):
        announce(scene.trigger)
