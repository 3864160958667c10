"""A client that does nothing wrong: it writes a record, waits for its acknowledgement, and reads what it wrote.

In a process of its own, so that what the attackers compute beside it is not in what it measures:

    python -m regnum_testing.attacks.bystander BOOTSTRAP TOPIC PARTITIONS CA CERTIFICATE KEY

Each line of its output is a sample, ``Sample.line``; time is the machine's monotonic clock, which processes share.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from regnum_client import Consumer, Producer, TlsFiles
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError

from regnum_testing.under_load import until

CLOCK: Final = SystemClock()
PAUSE_S: Final = 0.02
"""Between the acknowledgement of a record and the next one of that partition."""
FIRST: Final = 20
"""Records of each partition after which it is taken to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One wait."""

    kind: str
    """``ack``: from sending a record to its acknowledgement; ``read``: to its reader; ``error``: to the error that
    sending it ended with; ``told``: for so long a broker has asked it to wait so far."""
    partition: int
    """Whose."""
    begun_s: float
    """When."""
    took_s: float
    """How long."""

    @property
    def line(self) -> str:
        """As text."""
        return f"{self.kind} {self.partition} {self.begun_s:.6f} {self.took_s:.6f}"

    @classmethod
    def of(cls, line: str) -> "Sample":
        """From ``line``."""
        kind, partition, begun_s, took_s = line.split()
        return cls(kind=kind, partition=int(partition), begun_s=float(begun_s), took_s=float(took_s))


class Bystander:
    """The process, as the test sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Only assigns."""
        self._process: Final = process
        self.samples: Final[list[Sample]] = []
        """All so far."""

    async def listen(self) -> None:
        """Take samples until the process ends."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.samples.append(Sample.of(line.decode()))

    def waits_s(self, kind: str, begun_s: float, ended_s: float) -> list[float]:
        """Waits of a kind that were under way in that time, the shortest first."""
        return sorted(
            one.took_s
            for one in self.samples
            if one.kind == kind and one.begun_s < ended_s and one.begun_s + one.took_s >= begun_s
        )

    def count(self, kind: str) -> int:
        """Samples of a kind."""
        return sum(one.kind == kind for one in self.samples)

    async def all_from(self, at_s: float, partitions: int) -> None:
        """Wait until all that began before that time has come: each partition has a later sample of both kinds."""

        async def later() -> bool:
            assert self._process.returncode is None, "the bystander has ended"
            seen = {(one.kind, one.partition) for one in reversed(self.samples) if one.begun_s >= at_s}
            return all((kind, number) in seen for kind in ("ack", "read") for number in range(partitions))

        await until(later, within_s=180.0)


@contextlib.asynccontextmanager
async def bystander(bootstrap: Sequence[str], topic: str, partitions: int, tls: TlsFiles) -> AsyncIterator[Bystander]:
    """The process; it writes and reads already."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "regnum_testing.attacks.bystander", ",".join(bootstrap), topic, str(partitions)),
        *(str(path) for path in tls.paths),
        stdout=asyncio.subprocess.PIPE,
        limit=2**20,
    )
    found = Bystander(process)
    listening = asyncio.create_task(found.listen(), name="bystander")

    async def runs() -> bool:
        assert process.returncode is None, "the bystander has ended"
        return min(found.count("ack"), found.count("read")) >= FIRST * partitions

    try:
        await until(runs)
        yield found
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await listening


def _say(kind: str, partition: int, begun_s: float) -> None:
    sample = Sample(kind=kind, partition=partition, begun_s=begun_s, took_s=CLOCK.monotonic() - begun_s)
    sys.stdout.write(f"{sample.line}\n")
    sys.stdout.flush()


async def _write(producer: Producer, topic: str, partition: int) -> None:
    told_s = 0.0
    while True:
        begun_s = CLOCK.monotonic()
        try:
            await (await producer.send(topic, repr(begun_s).encode(), partition=partition))
        except RegnumError as error:
            _say("error", partition, begun_s)
            sys.stderr.write(f"bystander: {error}\n")
        else:
            _say("ack", partition, begun_s)
        if producer.throttle_time_s > told_s:
            _say("told", partition, begun_s)
            told_s = producer.throttle_time_s
        await CLOCK.sleep(PAUSE_S)


async def _read(consumer: Consumer) -> None:
    async for record in consumer:
        _say("read", record.partition, float(record.value or b"0"))


async def main(bootstrap: str, topic: str, partitions: int, tls: TlsFiles) -> None:
    """Write and read until killed."""
    async with (
        Producer(bootstrap.split(","), tls=tls) as producer,
        Consumer(bootstrap.split(","), tls=tls) as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        await consumer.assign(topic, start="latest")
        tasks.create_task(_read(consumer))
        for number in range(partitions):
            tasks.create_task(_write(producer, topic, number))


if __name__ == "__main__":
    _place, _topic, _partitions, *_files = sys.argv[1:]
    _ca, _certificate, _key = map(Path, _files)
    asyncio.run(main(_place, _topic, int(_partitions), TlsFiles(ca=_ca, certificate=_certificate, key=_key)))
