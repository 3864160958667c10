"""Attacks on the Kafka listener of a cluster in this process: what holds its loop, what it keeps, whether it goes on.

The attackers are threads with sockets of their own, so that the time of the loop's thread is the broker's alone.
"""

import asyncio
import os
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from regnum_model.nodes import Address
from regnum_service.collector import short_collections

from regnum_testing.held_loop import HeldLoop, noting_loop
from regnum_testing.kafka_fuzz.findings import Findings, read_frame
from regnum_testing.kafka_fuzz.mutations import mutated
from regnum_testing.kafka_world import KafkaWorld, kafka_world
from regnum_testing.process_memory import resident_bytes

ATTACKERS: Final = 8
FRAMES_MAX: Final = 6
"""Requests that an attacker sends before it reads anything."""
ANSWER_S: Final = 0.3
"""The longest wait for an answer."""
DEAR_S: Final = 60.0
"""But for the answer to a request that is as large as it may be."""
SIZE_WRONG: Final = 0.02
"""Part of the requests whose size is a lie."""
READABLE: Final = 0.98
"""How often a request that cannot be read is thrown away."""


def sized(frame: bytes) -> bytes:
    """As on the wire."""
    return struct.pack(">i", len(frame)) + frame


def outcome_of(address: Address, data: bytes, answers: int, within_s: float) -> str:
    """Send, and read that many answers."""
    with socket.create_connection((address.host, address.port), timeout=within_s) as client:
        client.sendall(data)
        try:
            for _ in range(answers):
                size = int.from_bytes(_read(client, 4), "big")
                _read(client, size)
        except TimeoutError:
            return "no answer"
        except (ConnectionError, EOFError):
            return "closed"
    return "answered"


def _read(client: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        part = client.recv(min(size - len(found), 1 << 20))
        if not part:
            raise EOFError
        found += part
    return bytes(found)


def mutants(frames: Sequence[bytes], inputs: int, seed: int) -> Iterable[tuple[bytes, int]]:
    """What an attacker sends by one connection after another, and how many requests that are."""
    chance = random.Random(seed)
    while inputs > 0:
        count = min(inputs, chance.randint(1, FRAMES_MAX))
        data = bytearray()
        for _ in range(count):
            frame = mutated(frames, chance)
            # (One that cannot be read ends its connection: most are to get further.)
            while chance.random() < READABLE and read_frame(frame) != "read":
                frame = mutated(frames, chance)
            wrong = chance.random() < SIZE_WRONG
            data += struct.pack(">i", len(frame) + chance.choice((-3, 1, 500))) if wrong else sized(frame)[:4]
            data += frame
        yield bytes(data), count
        inputs -= count


class ListenerAttack:
    """One cluster, attacked by threads. Use ``attacked``."""

    def __init__(self, world: KafkaWorld, held: HeldLoop) -> None:
        """Only assigns."""
        self.world: Final = world
        self.held: Final = held
        self._lock: Final = threading.Lock()
        self.findings: Final = Findings()

    def fuzz(self, frames: Sequence[bytes], inputs: int, seed: int) -> int:
        """Send mutants; how much memory the process has more than before, in bytes."""
        each = inputs // ATTACKERS

        def attack(number: int) -> None:
            for data, count in mutants(frames, each, seed + number):
                self._sent(data, count, ANSWER_S)

        before = resident_bytes(os.getpid())
        with self.held.measuring("fuzz"):
            self._run([lambda number=number: attack(number) for number in range(ATTACKERS)])  # type: ignore[misc]
        return resident_bytes(os.getpid()) - before

    def dear(self, requests: Iterable[tuple[str, bytes]]) -> None:
        """Send each of these by itself, and measure what it costs the loop, by its name."""
        for name, frame in requests:
            with self.held.measuring(name):
                self._run([lambda frame=frame: self._sent(sized(frame), 1, DEAR_S)])  # type: ignore[misc]

    def _sent(self, data: bytes, count: int, within_s: float) -> None:
        outcome = outcome_of(self.world.cluster.kafka, data, count, within_s)
        with self._lock:
            self.findings.inputs += count
            self.findings.outcomes[outcome] += 1

    def _run(self, attacks: Sequence[Callable[[], None]]) -> None:
        """Have them done on threads, while the loop goes on. The first that fails fails here."""

        async def done() -> None:
            await asyncio.gather(*(asyncio.to_thread(attack) for attack in attacks))

        self.world.runner.run(done())
        for process in self.world.cluster.processes.values():
            if process.supervisor.failure is not None:
                raise process.supervisor.failure


def attacked(root: Path, attack: Callable[[ListenerAttack], None]) -> HeldLoop:
    """Have a cluster attacked; how long its loop was held, by what was measured."""
    held = HeldLoop()
    with short_collections(), kafka_world(root, loop_factory=lambda: noting_loop(held)) as world:
        attack(ListenerAttack(world, held))
    return held
