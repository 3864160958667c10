"""Which connections of the Kafka listener go when there are more than are kept."""

from ipaddress import IPv4Address
from typing import Any

import pytest
from regnum_broker.kafka.connections import Crowd, Host
from regnum_service.connection_limit import CROWDED_S, Crowding, Uses
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.clock import FakeClock


class World:
    def __init__(self, most: int, of_address_max: int | None = None) -> None:
        self.clock, metrics = FakeClock(), Metrics()
        self.too_many = metrics.counter(instruments.CONNECTIONS_CLOSED, "kafka", "listener")
        self.too_many_of_address = metrics.counter(instruments.CONNECTIONS_CLOSED, "kafka", "address")
        self.crowding = Crowding(most, listener="kafka", option="--o", which="idle ones", clock=self.clock)
        self.crowd = Crowd(
            most,
            of_address_max,
            uses=Uses(self.clock.monotonic),
            too_many=self.too_many,
            too_many_of_address=self.too_many_of_address,
            crowded=self.crowding.noted,
        )
        self.closed: list[str] = []

    def connect(self, name: str, *, asks: bool = False) -> "Connection":
        connection = Connection(self, name)
        self.crowd.opened(connection)
        if asks:
            self.crowd.used(connection)
        return connection


class Connection:
    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.host: Host | None = IPv4Address(f"10.0.0.{ord(name[0])}")

    def get_extra_info(self, name: str) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        self.world.crowd.closed(self)
        self.world.closed.append(self.name)


def test_those_that_say_nothing_take_the_place_of_none_that_has_asked() -> None:
    world = World(3)
    for name in ("a1", "b1"):
        world.connect(name, asks=True)
    for number in range(1, 8):
        world.connect(f"x{number}")
    assert world.closed == [f"x{number}" for number in range(1, 7)]
    assert world.too_many.value == 6
    assert not world.crowding.words, "those are closed without a word"


def test_where_all_have_asked_the_one_goes_that_did_so_the_longest_time_ago_and_it_is_told_for_a_while() -> None:
    world = World(2)
    first = world.connect("a1", asks=True)
    world.connect("b1", asks=True)
    world.crowd.used(first)
    world.connect("c1", asks=True)
    assert world.closed == ["b1"]
    assert "more than 2 connections at its kafka listener: idle ones, are closed; see --o" in world.crowding.words
    world.clock.skip(CROWDED_S)
    assert not world.crowding.words


@pytest.mark.parametrize("asked", [False, True])
def test_those_of_one_address_go_for_others_of_it_only(asked: bool) -> None:
    world = World(10, of_address_max=2)
    world.connect("b1")
    for number in range(1, 4):
        world.connect(f"a{number}", asks=asked)
    assert world.closed == ["a1"]
    assert (world.too_many.value, world.too_many_of_address.value) == (0, 1)
    assert bool(world.crowding.words) == asked


def test_nothing_is_remembered_of_those_that_are_gone() -> None:
    world = World(10)
    connections = [world.connect(name, asks=name > "b") for name in ("a1", "a2", "b1", "c1")]
    assert len(world.crowd) == 4
    connections[0].close()
    world.crowd.used(connections[0])
    world.crowd.close()
    assert (len(world.crowd), world.crowd._of_host) == (0, {})
