"""The kit of attacks: raw calls are calls, and what is beyond a bound is found."""

import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from regnum_local.cluster import LocalCluster
from regnum_model.nodes import Address
from regnum_service.listening import make_server
from regnum_testing.attacks import guests, writers
from regnum_testing.attacks.attack import Attack
from regnum_testing.attacks.bystander import Bystander, Sample
from regnum_testing.attacks.figures import Figures, Waits, table, write_json
from regnum_testing.attacks.raw_calls import RawCall, literal, send_many, send_paced
from regnum_testing.attacks.target import APP, ATTACKERS, GUEST, MIB, PRODUCER, Target

ROOT = Path(__file__).parents[3]
CHECK = "/grpc.health.v1.Health/Check"
QUESTION = health_pb2.HealthCheckRequest(service="q" * 200_000).SerializeToString()
CALM = Waits(count=100, p50_s=0.01, p99_s=0.02, max_s=0.03)
CALM_ALL = {"ack": CALM, "read": CALM, "call": CALM}
WELL = Figures(
    attack="none",
    client="guest",
    has_quotas=True,
    is_charged=True,
    heard={"ended": 3},
    quiet=CALM_ALL,
    attacked=CALM_ALL,
    errors=0,
    told=0,
    throttled=1,
    isr_shrinks=0,
    ended=(),
    held_max=256 * MIB,
    held_peak=0,
    brokers=1_024 * MIB,
    others=400 * MIB,
)


class Health(health_pb2_grpc.HealthServicer):
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.asked: Counter[int] = Counter()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> health_pb2.HealthCheckResponse:  # noqa: N802
        self.asked[len(request.service)] += 1
        return health_pb2.HealthCheckResponse()


@pytest.fixture
async def place() -> AsyncIterator[tuple[Address, Health]]:
    server, health = make_server(), Health()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield Address(host="127.0.0.1", port=port), health
    await server.stop(None)


async def test_raw_calls_arrive_whole_and_are_answered(place: tuple[Address, Health]) -> None:
    address, health = place
    call = RawCall(path=CHECK, message=QUESTION)
    assert await send_many(address, None, call, connections=2, of_each=3, seconds=30.0) == {"ended": 6}
    # Larger than the window of a stream: the server's words about windows were heard.
    assert health.asked == {200_000: 6}
    packed = RawCall(path=CHECK, message=gzip.compress(QUESTION), encoding="gzip")
    heard = await send_many(address, None, packed, connections=1, of_each=2, seconds=30.0)
    assert heard["ended"] + heard["reset"] == 2
    assert health.asked == {200_000: 6}, "what is packed is not taken"


async def test_a_client_that_reads_nothing_is_never_done(place: tuple[Address, Health]) -> None:
    address, health = place
    call = RawCall(path=CHECK, message=health_pb2.HealthCheckRequest(service="q").SerializeToString())
    heard = await send_many(
        address, None, call, connections=1, of_each=2, seconds=30.0, reads=False, given_up_after_s=0.1
    )
    # There is no window for the answer.
    assert heard == {"given up": 2}
    assert health.asked == {1: 2}


async def test_paced_calls_take_turns(place: tuple[Address, Health]) -> None:
    address, health = place
    calls = [
        RawCall(path=CHECK, message=health_pb2.HealthCheckRequest(service="q" * size).SerializeToString())
        for size in (1, 2)
    ]
    heard = await send_paced(address, None, calls, connections=2, per_s=100.0, seconds=0.2)
    # How many of them a busy machine begins, and how many of those come, is its own matter.
    assert heard.total() >= max(1, health.asked.total())
    assert set(health.asked) <= {1, 2}


def test_a_header_that_is_too_long_for_its_length_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 126"):
        literal(b"x", b"y" * 127)


@pytest.mark.parametrize("attack", [*guests.ATTACKS, *writers.ATTACKS], ids=lambda attack: attack.name)
def test_each_attack_stands_on_the_page_of_attacks(attack: Attack) -> None:
    assert f"`{attack.name}`" in (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_what_is_within_its_bounds_is_no_finding() -> None:
    assert WELL.findings() == []
    assert "3 ended" in table([WELL])


def test_figures_are_one_document(tmp_path: Path) -> None:
    write_json(tmp_path / "figures.json", [WELL, replace(WELL, errors=1)])
    found = json.loads((tmp_path / "figures.json").read_text())
    assert [len(one["findings"]) for one in found] == [0, 1]
    assert found[0]["heard"] == {"ended": 3}


@pytest.mark.parametrize(
    ("figures", "word"),
    [
        (replace(WELL, attacked={**CALM_ALL, "ack": replace(CALM, p99_s=0.51)}), "ack: p99 0.510 s, bound 0.500"),
        (replace(WELL, attacked={**CALM_ALL, "read": replace(CALM, p99_s=0.51)}), "read: p99"),
        (replace(WELL, errors=1), "ended with errors"),
        (replace(WELL, isr_shrinks=1), "in-sync sets"),
        (replace(WELL, ended=("broker-1",)), "ended: broker-1"),
        (replace(WELL, brokers=1_024 * MIB + 1), "a broker had 1024 MiB"),
        (replace(WELL, others=400 * MIB + 1), "no broker had 400 MiB"),
        (replace(WELL, told=1), "bystander was asked to wait"),
        (replace(WELL, throttled=0), "attacker was never asked"),
    ],
)
def test_what_is_beyond_a_bound_is_found(figures: Figures, word: str) -> None:
    (found,) = figures.findings()
    assert word in found


def test_a_machine_that_is_busy_by_itself_moves_the_bound() -> None:
    busy = replace(CALM, p99_s=0.2)
    waits = {**CALM_ALL, "ack": replace(CALM, p99_s=0.9)}
    assert replace(WELL, quiet={**CALM_ALL, "ack": busy}, attacked=waits).findings() == []
    assert replace(WELL, attacked=waits).findings() != []


def test_waits_are_those_that_were_under_way_in_a_time() -> None:
    sample = Sample(kind="ack", place=2, begun_s=5.25, took_s=0.125)
    assert Sample.of(sample.line) == sample
    bystander = Bystander(None)  # type: ignore[arg-type]
    bystander.samples.extend([sample, replace(sample, begun_s=6.0, took_s=4.0), replace(sample, kind="read")])
    assert bystander.waits_s("ack", 5.0, 7.0) == [0.125, 4.0]
    assert bystander.waits_s("ack", 5.0, 6.0) == [0.125]
    assert bystander.waits_s("ack", 5.25, 5.3) == [0.125]
    assert bystander.waits_s("ack", 8.0, 9.0) == [4.0], "one that began long before"
    assert bystander.count("read") == 1


def test_each_attack_has_a_client_of_its_own(tmp_path: Path) -> None:
    target = Target(LocalCluster(tmp_path), has_quotas=True)
    for client, is_its_own in ((GUEST, True), (APP, True), (PRODUCER, False)):
        shown = {target.attacked_by(number).files(client).certificate for number in range(ATTACKERS)}
        assert len(shown) == (ATTACKERS if is_its_own else 1)
    assert len(guests.ATTACKS) + len(writers.ATTACKS) <= ATTACKERS
