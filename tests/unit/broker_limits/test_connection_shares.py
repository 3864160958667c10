"""Producers under one quota: who sends little gets in beside who sends much, and together they stay within it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regnum_broker.limits.client_quotas import SHARES_MAX, ClientQuotas
from regnum_broker.limits.connection_shares import CONNECTIONS_MAX, GRACE_S, ConnectionShares
from regnum_broker.limits.throttling import Throttling
from regnum_model.bucket import Windows
from regnum_model.quotas import DEFAULT, PRODUCER_BYTE_RATE, QuotaEntity, QuotaTable
from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call
from regnum_testing.clock import FakeClock

RATE = 1 << 20
SPAN_S = Windows().span_s
LARGE, SMALL = 30 << 20, 1 << 10
STEP_S = 0.1


class World:
    """Connections of one client id under a quota of 1 MiB/s, who send whenever they like."""

    def __init__(self) -> None:
        self.clock, self.quotas = FakeClock(), ClientQuotas()
        bounds = {QuotaEntity(client_id=DEFAULT): float(RATE)}
        self.quotas.take_up(QuotaTable(client_rates={PRODUCER_BYTE_RATE: bounds}))
        self.throttling = Throttling(self.quotas, clock=self.clock)
        self.sent: dict[str, int] = {}
        self.told_s: dict[str, float] = {}

    def send(self, name: str, size: int) -> bool:
        """Whether it is let in."""
        quota = self.throttling.writing(Call(peer=name, client_id="c"))
        try:
            quota.check("c", size)
        except RegnumError as error:
            self.told_s[name] = (error.retry_after_ms or 0) / 1000
            return False
        until_s = quota.charge("c", size)
        self.told_s[name] = quota.left_ms(until_s) / 1000
        self.sent[name] = self.sent.get(name, 0) + size
        return True

    @property
    def total(self) -> int:
        return sum(self.sent.values())


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.full
def test_shares_under_any_number_of_client_ids_are_bounded_and_go_with_their_connections() -> None:
    quotas, shared = ClientQuotas(), 50
    quotas.take_up(QuotaTable(client_rates={PRODUCER_BYTE_RATE: {QuotaEntity(client_id=DEFAULT): float(RATE)}}))
    for number in range(SHARES_MAX // shared + 100):
        quotas.sent_s("", f"c{number}", "0", 30 * LARGE, 0.0)
        for connection in range(shared):
            assert quotas.refused_s("", f"c{number}", f"{connection}", SMALL, 0.0) > 0
    names = quotas.names()
    assert SHARES_MAX - shared < len(names) <= SHARES_MAX
    # Those that were heard of last are kept.
    quotas.keep(names, {"7": 1})
    assert set(quotas.names()) == {"7"}
    assert len(quotas.names()) == len(names) // shared


def test_who_sends_little_gets_in_beside_who_sends_much_and_ignores_what_it_is_told(world: World) -> None:
    steps, let_in = 1_200, 0
    for _ in range(steps):
        world.send("large", LARGE)
        let_in += world.send("small", SMALL)
        world.clock.skip(STEP_S)
    assert let_in >= steps - 5
    assert world.sent["large"] >= 2 * LARGE, "and the other goes on, too"
    assert world.total <= RATE * (steps * STEP_S + SPAN_S) + 2 * LARGE


def test_a_connection_is_told_to_wait_for_what_came_by_itself(world: World) -> None:
    assert world.send("large", LARGE)
    assert world.told_s["large"] > 15.0
    assert not world.send("small", SMALL)
    assert world.told_s["small"] < 0.1
    world.clock.skip(world.told_s["small"])
    assert world.send("small", SMALL)
    assert world.told_s["small"] < 0.1, "its connection is not held for what the other sent"


def test_new_connections_for_each_large_message_starve_nobody_and_get_no_more_in(world: World) -> None:
    steps, let_in = 1_200, 0
    for step in range(steps):
        name = f"large-{step}"
        world.send(name, LARGE)
        # It is gone: the broker looks once a second.
        world.quotas.keep([name], {})
        let_in += world.send("small", SMALL)
        world.clock.skip(STEP_S)
    assert let_in >= steps - 10
    assert world.total <= RATE * (steps * STEP_S + SPAN_S) + 2 * LARGE


def test_two_that_send_as_much_as_they_can_get_as_much(world: World) -> None:
    steps = 3_000
    for _ in range(steps):
        world.send("thick", 4 << 20)
        world.send("thin", 64 << 10)
        world.clock.skip(STEP_S)
    assert world.sent["thin"] >= 0.8 * world.total / 2
    assert world.sent["thick"] >= 0.8 * world.total / 2
    assert world.total <= RATE * (steps * STEP_S + SPAN_S) + 2 * (4 << 20)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdefgh"),
            st.sampled_from([SMALL, 100 << 10, 1 << 20, 5 << 20, LARGE]),
            st.floats(0.0, 20.0),
        ),
        min_size=1,
        max_size=150,
    )
)
@settings(deadline=None, max_examples=50)
def test_together_they_stay_within_rate_windows_and_two_messages_whatever_they_send(
    asked: list[tuple[str, int, float]],
) -> None:
    world, now_s = World(), 0.0
    for name, size, pause_s in asked:
        world.send(name, size)
        # What connections have saved up may come at once: seconds of their shares, or the message that each waits for.
        assert world.total <= RATE * (now_s + 2 * SPAN_S) + 2 * LARGE + 8 * LARGE
        world.clock.skip(pause_s)
        now_s += pause_s


@given(
    sizes=st.lists(st.sampled_from([SMALL, 100 << 10, 1 << 20, 5 << 20, LARGE]), min_size=2, max_size=8),
    quiet=st.floats(0.0, 5.0),
)
@settings(deadline=None, max_examples=30)
def test_whoever_comes_back_when_it_was_told_to_is_let_in_however_others_behave(sizes: list[int], quiet: float) -> None:
    world = World()
    for turn in range(3):
        for number in range(1, len(sizes)):
            world.send(f"other-{number}-{turn}", LARGE)
    world.clock.skip(quiet)
    connections = 4 * (len(sizes) - 1) + 1
    enough_s = world.clock.monotonic() + 2 * connections * sizes[0] / RATE + SPAN_S
    while not world.send("patient", sizes[0]):
        assert world.clock.monotonic() < enough_s, "its share would have paid for it"
        wait_s = world.told_s["patient"] + 0.001
        for _ in range(4):
            for number in range(1, len(sizes)):
                world.send(f"other-{number}", sizes[number])
            world.clock.skip(wait_s / 4)


def test_shares_are_of_those_who_ask_and_are_bounded() -> None:
    shares = ConnectionShares(0.0)
    assert shares.asks("a", 100.0, 100.0, 0.0) == 1.0
    assert shares.asks("b", 100.0, 100.0, 0.0) == 2.0
    assert shares.asks("a", 100.0, 100.0, 2.0) == 0.0
    shares.forget("b")
    assert (len(shares), list(shares.names())) == (1, ["a"])
    for number in range(2 * CONNECTIONS_MAX):
        shares.asks(f"c{number}", 1.0, 1e9, 2.0)
    assert len(shares) == CONNECTIONS_MAX
    shares.asks("last", 1.0, 1e9, 3.0 + 2 * GRACE_S)
    assert len(shares) == 1, "who does not come back shares no more"
