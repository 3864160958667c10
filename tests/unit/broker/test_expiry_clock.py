"""Whether a broker may delete and forget by the time of day: only while its wall clock agrees with the controller's."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum_broker.maintenance import ProducerExpiry
from regnum_broker.retention.clocks import WINDOW_S, ControllerClock, Known, Unknown, heard, may_expire
from regnum_broker.retention.expiry_clock import ClockDifference, ExpiryClock
from regnum_model.ids import LeaderEpoch
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.batches import batch_of
from regnum_testing.clock import FakeClock
from regnum_testing.leading_replicas import LeadingReplicas
from structlog.testing import capture_logs

YEAR_S = 365 * 86_400.0
LIMIT_S = 300.0


class Compared:
    """A broker's clock, and a controller's that goes as right as time itself."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.expiry = ExpiryClock(self.clock, difference_s_max=LIMIT_S, metrics=self.metrics)
        self._controllers_ms = self.clock.wall_ms() - round(self.clock.monotonic() * 1000)

    def hear(self, *, delay_s: float = 0.0, off_s: float = 0.0) -> None:
        """A message that was under way for so long, of a controller whose clock is off by so much."""
        self.expiry.hear(self._controllers_ms + round((self.clock.monotonic() - delay_s + off_s) * 1000))

    @property
    def may(self) -> bool:
        return self.expiry.now_ms() is not None

    @property
    def shown(self) -> list[float]:
        """The metric."""
        (reading,) = [one for one in self.metrics.read() if one.instrument is instruments.CLOCK_DIFFERENCE]
        return [value for _, value in reading.numbers]


@pytest.fixture
def compared() -> Compared:
    return Compared()


def test_the_example_of_the_decision_is_right() -> None:
    known = heard(Unknown.NOT_HEARD, 1_000_000, now_s=50.0)
    assert known == ControllerClock(distance_ms=950_000, former_ms=950_000, since_s=50.0)
    for wall_ms, may in ((1_310_000, True), (1_310_001, False), (710_000, True), (709_999, False)):
        assert may_expire(known, wall_ms=wall_ms, now_s=60.0, difference_ms_max=300_000) is may


def test_before_a_controller_was_heard_nothing_expires(compared: Compared) -> None:
    """A machine may start with any clock; it has led nothing yet either."""
    assert not compared.may
    assert compared.shown == []
    compared.hear()
    assert compared.expiry.now_ms() == compared.clock.wall_ms()
    assert compared.shown == [0.0]


def test_under_a_controller_that_does_not_tell_its_clock_all_expires_as_in_release_0_1_0(compared: Compared) -> None:
    compared.expiry.begin_stream()
    compared.expiry.hear(None)
    assert compared.may
    assert compared.expiry.difference is None
    compared.expiry.begin_stream()
    compared.hear(off_s=YEAR_S)
    assert not compared.may, "the next controller tells"
    compared.expiry.begin_stream()
    assert not compared.may, "until the controller after it has said anything, this one counts"
    compared.expiry.hear(None)
    assert compared.may


@pytest.mark.parametrize("ahead_s", [YEAR_S, -YEAR_S, LIMIT_S + 1, -LIMIT_S - 1])
def test_a_clock_that_jumps_is_not_believed_at_the_next_look_and_again_when_it_is_right(
    compared: Compared, ahead_s: float
) -> None:
    compared.hear()
    compared.clock.jump(ahead_s)
    assert not compared.may, "no message has come since"
    assert compared.shown == [ahead_s]
    with capture_logs() as logs:
        for _ in range(300):
            compared.clock.skip(0.1)
            compared.hear()
            assert not compared.may
    assert [line["ahead_s"] for line in logs if line["log_level"] == "error"] == [ahead_s], "once"
    assert compared.expiry.difference == ClockDifference(ahead_ms=round(ahead_s * 1000), held_back=True)
    compared.clock.jump(-ahead_s)
    assert compared.may
    with capture_logs() as logs:
        compared.hear()
    assert [line["log_level"] for line in logs] == ["info"]


@pytest.mark.parametrize("ahead_s", [LIMIT_S, -LIMIT_S])
def test_clocks_may_differ_by_what_is_set(compared: Compared, ahead_s: float) -> None:
    compared.hear()
    compared.clock.jump(ahead_s)
    assert compared.may


def test_without_a_controller_the_last_one_counts_and_a_jump_is_seen_as_well(compared: Compared) -> None:
    compared.hear()
    compared.clock.skip(7 * 86_400.0)
    assert compared.may
    compared.clock.jump(YEAR_S)
    assert not compared.may
    compared.clock.skip(7 * 86_400.0)
    assert not compared.may
    compared.clock.jump(-YEAR_S)
    assert compared.may


@pytest.mark.parametrize("pause_s", [10.0, 3_600.0])
def test_a_pause_makes_no_clock_differ(compared: Compared, pause_s: float) -> None:
    """What was under way meanwhile comes all at once, and says what the time was."""
    for _ in range(50):
        compared.clock.skip(0.1)
        compared.hear()
    compared.clock.skip(pause_s)
    for late in range(10):
        compared.hear(delay_s=pause_s - late * 0.1)
        assert compared.may
        assert compared.shown == [0.0]


def test_a_controllers_clock_that_is_set_back_is_believed_for_two_windows_more() -> None:
    known: Known = Unknown.NOT_HEARD
    now_s = 0.0
    for off_ms in (*[5_000_000] * 300, *[0] * 210):
        now_s += 0.1
        known = heard(known, round(now_s * 1000) + off_ms, now_s=now_s)
    assert isinstance(known, ControllerClock)
    assert known.ahead_ms(wall_ms=round(now_s * 1000), now_s=now_s) == 0
    assert 2 * WINDOW_S + 1.1 >= 210 * 0.1


def test_another_controller_is_believed_at_once(compared: Compared) -> None:
    compared.hear(off_s=YEAR_S)
    assert not compared.may
    compared.expiry.begin_stream()
    compared.hear()
    assert compared.may


class Remembering:
    """A log that remembers a producer, and what forgets those that have gone away."""

    def __init__(self, leading: LeadingReplicas, compared: Compared) -> None:
        self.leading = leading
        self.compared = compared
        self.expiry = ProducerExpiry(
            storage=leading.storage,
            expiration_ms=86_400_000,
            clock=compared.clock,
            expiry_now_ms=compared.expiry.now_ms,
        )

    async def append(self) -> None:
        batch = batch_of(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
        log = self.leading.partition().log
        await self.leading.storage.write(lambda: log.append_as_leader([batch], leader_epoch=LeaderEpoch(0)))

    async def known(self) -> set[int]:
        await self.expiry.expire()
        return set(self.leading.partition().log.producers.entries)


@pytest.fixture
async def remembering(tmp_path: Path, compared: Compared) -> AsyncIterator[Remembering]:
    async with LeadingReplicas(tmp_path, partitions=1, clock=compared.clock) as leading:
        leading.files.wall_ms = compared.clock.wall_ms()
        made = Remembering(leading, compared)
        await made.append()
        yield made


async def test_no_producer_is_forgotten_by_a_clock_that_jumped(remembering: Remembering) -> None:
    clock = remembering.compared.clock
    remembering.compared.hear()
    clock.jump(YEAR_S)
    assert await remembering.known() == {7}
    clock.jump(-YEAR_S)
    assert await remembering.known() == {7}
    clock.skip(86_401.0)
    assert await remembering.known() == set()


async def test_no_producer_is_forgotten_before_the_clocks_were_compared(remembering: Remembering) -> None:
    """A broker that starts has no controller, and may have any clock."""
    remembering.compared.clock.skip(YEAR_S)
    assert await remembering.known() == {7}
    remembering.compared.hear()
    assert await remembering.known() == set(), "what was held back"
