"""Bytes that are no message, and messages that something happened to, to every call of every process.

The calls of the protos and those that the processes serve are the same: a service that nobody serves is never tried.
"""

import asyncio
import importlib
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import regnum
import structlog
from regnum_service.own_process import look
from regnum_testing.every_call import Call
from regnum_testing.every_kind import KINDS, EveryKind
from regnum_testing.fuzzed_cluster import World
from regnum_testing.hostile_bytes import bent, hostile, noise

SEED = 20_261_123
MINUTES = 3.0
"""How long the long one goes on."""

GROWTH_BYTES_MAX = 200 * 1024 * 1024
"""What may be resident more after the long one than when it had sent a part of it."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with asyncio.Runner() as runner:
        world = World(runner, EveryKind(tmp_path))
        runner.run(world.begin())
        yield world
        runner.run(world.cluster.close())
        world.alive()


def declared() -> set[str]:
    """Every call of the protos, by path."""
    found: set[str] = set()
    for root in map(Path, regnum.__path__):
        for file in root.rglob("*_pb2.py"):
            module = ".".join(("regnum", *file.relative_to(root).with_suffix("").parts))
            for service in importlib.import_module(module).DESCRIPTOR.services_by_name.values():
                found |= {f"/{service.full_name}/{method.name}" for method in service.methods}
    return found


def log_bytes(world: World) -> dict[str, int]:
    """The logs of the broker, by file."""
    return {str(file): file.stat().st_size for file in world.cluster.root.rglob("*.log")}


def send_noise(world: World, address: object, call: Call, chance: random.Random, count: int) -> int:
    """Nothing of it is a message: all of it is refused, and neither the store nor a log knows of it."""
    grown: set[str] = set()
    for _ in range(2):
        before = log_bytes(world)
        requests = [noise(call.method.input_type, chance) for _ in range(count)]
        world.send(address, call, requests, half_close=True)  # type: ignore[arg-type]
        grown = {file for file, size in log_bytes(world).items() if size > before.get(file, 0)}
        if not grown:
            return count
        # What came before it, and was a message, may be written later; what this one does it does again.
        world.runner.run(world.quiet())
    pytest.fail(f"{call.path}: no message, and these have grown: {grown}")


def send_bent(world: World, address: object, call: Call, chance: random.Random, count: int) -> int:
    """Much of it is a message, and may do what such a message does; nobody ends for it."""
    known = world.known()
    messages = [hostile(call.method.input_type, known, chance) for _ in range(count)]
    requests = [bent(message.SerializeToString(), chance) for message in messages]
    before = world.cluster.nodes()
    world.send(address, call, requests, half_close=chance.random() < 0.5)  # type: ignore[arg-type]
    if world.cluster.nodes() != before:
        world.runner.run(world.make_good())
    return count


def everything(world: World) -> Iterator[tuple[object, Call]]:
    for kind in KINDS:
        for address in world.cluster.processes[kind].listeners.values():
            for call in world.calls(address):
                yield address, call


@pytest.mark.full
@pytest.mark.timeout(120)
def test_noise_and_bent_messages_end_no_process_and_are_refused_without_a_trace(world: World) -> None:
    chance = random.Random(SEED)
    tried: set[str] = set()
    for address, call in everything(world):
        if call.path in tried:
            continue
        tried.add(call.path)
        send_noise(world, address, call, chance, 6)
        send_bent(world, address, call, chance, 6)
    assert declared() <= tried, "each call of the protos is served by some process"
    world.runner.run(world.make_good())
    world.runner.run(world.create_and_write("afterwards"))


@pytest.mark.full
@pytest.mark.timeout(900)
def test_minutes_of_it_leave_memory_bounded_and_the_cluster_at_work(world: World) -> None:
    chance = random.Random(SEED)
    sent: Counter[str] = Counter()
    resident_bytes = 0
    until_s = time.monotonic() + 60.0 * MINUTES
    rounds = 0
    while time.monotonic() < until_s:
        for address, call in everything(world):
            sent[call.path] += send_noise(world, address, call, chance, 40)
            sent[call.path] += send_bent(world, address, call, chance, 40)
        rounds += 1
        if rounds == 1:
            # By then every handler has run, and what is kept for good is there.
            resident_bytes = look().resident_bytes
    growth_bytes = look().resident_bytes - resident_bytes
    structlog.get_logger("fuzz").warning(
        "sent", requests=sum(sent.values()), calls=len(sent), rounds=rounds, resident_bytes_more=growth_bytes
    )
    assert declared() <= sent.keys()
    assert growth_bytes < GROWTH_BYTES_MAX
    world.runner.run(world.create_and_write("afterwards"))
