"""A client that does nothing wrong: it writes a record, waits for its acknowledgement, and reads what it wrote.

Beside that it makes calls that have one message each, to every listener for clients: producers and consumers of the SDK
have streams, and streams have begun before an attack does.

In a process of its own, so that what the attackers compute beside it is not in what it measures:

    python -m regnum_testing.attacks.bystander BOOTSTRAP TOPIC PARTITIONS CA CERTIFICATE KEY LISTENER...

A listener is ``broker-1=host:port``. The leader of each partition P of the topic is broker P + 1.

Each line of its output is a sample, ``Sample.line``; time is the machine's monotonic clock, which processes share.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
from regnum.admin.v1 import admin_pb2, admin_pb2_grpc
from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_client import Consumer, Producer, TlsFiles
from regnum_model.nodes import Address
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error
from regnum_service.tls.channels import opener
from regnum_service.tls.files import WatchedFiles

from regnum_testing.under_load import until

CLOCK: Final = SystemClock()
PAUSE_S: Final = 0.02
"""Between the acknowledgement of a record and the next one of that partition."""
CALLS_PAUSE_S: Final = 0.05
"""Between the answer to a call and the next one to that listener."""
FIRST: Final = 20
"""Samples of each partition after which it is taken to run."""
CALL_S: Final = 120.0
"""Deadline of a call: as long as that of a record."""
KINDS: Final = ("ack", "read", "call")
"""Of samples that are waits for what was promised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One wait."""

    kind: str
    """``ack``: from sending a record to its acknowledgement; ``read``: to its reader; ``call``: from a call to its
    answer; ``error``: to the error that either ended with; ``told``: since a broker has asked it to wait."""
    place: int
    """Of records their partition, of calls the number of the listener."""
    begun_s: float
    """When."""
    took_s: float
    """How long."""

    @property
    def line(self) -> str:
        """As text."""
        return f"{self.kind} {self.place} {self.begun_s:.6f} {self.took_s:.6f}"

    @classmethod
    def of(cls, line: str) -> "Sample":
        """From ``line``."""
        kind, place, begun_s, took_s = line.split()
        return cls(kind=kind, place=int(place), begun_s=float(begun_s), took_s=float(took_s))


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

    async def all_from(self, at_s: float) -> None:
        """Wait until all that began before that time has come: of each kind and place there is something later."""
        places = {(one.kind, one.place) for one in self.samples if one.kind in KINDS}

        async def later() -> bool:
            assert self._process.returncode is None, "the bystander has ended"
            return places <= {(one.kind, one.place) for one in reversed(self.samples) if one.begun_s >= at_s}

        await until(later, within_s=180.0)


@contextlib.asynccontextmanager
async def bystander(
    bootstrap: Sequence[str], topic: str, partitions: int, tls: TlsFiles, listeners: Mapping[str, Address]
) -> AsyncIterator[Bystander]:
    """The process; it writes, reads and calls already."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "regnum_testing.attacks.bystander", ",".join(bootstrap), topic, str(partitions)),
        *(str(path) for path in tls.paths),
        *(f"{name}={address}" for name, address in listeners.items()),
        stdout=asyncio.subprocess.PIPE,
        limit=2**20,
    )
    found = Bystander(process)
    listening = asyncio.create_task(found.listen(), name="bystander")

    async def runs() -> bool:
        assert process.returncode is None, "the bystander has ended"
        return all(found.count(kind) >= FIRST * partitions for kind in KINDS)

    try:
        await until(runs)
        yield found
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await listening


def _say(kind: str, place: int, begun_s: float) -> None:
    sample = Sample(kind=kind, place=place, begun_s=begun_s, took_s=CLOCK.monotonic() - begun_s)
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


async def _ask(name: str, channel: grpc.aio.Channel, topic: str, begun_s: float) -> str:
    """Make one call; returns what was wrong, or nothing."""
    role, _, broker = name.partition("-")
    match role:
        case "broker":
            batch = build_batch([NewRecord(value=repr(begun_s).encode())], timestamp_ms=1)
            sent = log_pb2.ProduceRequest(timeout_ms=int(CALL_S * 1e3))
            sent.partitions.add(topic=topic, partition=int(broker) - 1, record_batch=batch)
            answer = await log_pb2_grpc.LogServiceStub(channel).Produce(sent, timeout=CALL_S)
            return answer.results[0].error_message
        case "metadata":
            asked = metadata_pb2.GetMetadataRequest(topics=[topic])
            await metadata_pb2_grpc.MetadataServiceStub(channel).GetMetadata(asked, timeout=CALL_S)
        case _:
            listed = admin_pb2.ListPartitionReassignmentsRequest()
            await admin_pb2_grpc.AdminServiceStub(channel).ListPartitionReassignments(listed, timeout=CALL_S)
    return ""


async def _call(number: int, name: str, channel: grpc.aio.Channel, topic: str) -> None:
    """One call after another to a listener."""
    while True:
        begun_s = CLOCK.monotonic()
        try:
            wrong = await _ask(name, channel, topic, begun_s)
        except grpc.aio.AioRpcError as error:
            # One that is refused for want of a right is answered, too.
            is_denied = from_rpc_error(error).code == errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED
            wrong = "" if is_denied else f"{error.code().name}: {error.details()}"
        _say("error" if wrong else "call", number, begun_s)
        if wrong:
            sys.stderr.write(f"bystander: {name}: {wrong}\n")
        await CLOCK.sleep(CALLS_PAUSE_S)


async def main(bootstrap: str, topic: str, partitions: int, tls: TlsFiles, listeners: Sequence[str]) -> None:
    """Write, read and call until killed."""
    opened = opener(WatchedFiles(tls))
    async with (
        Producer(bootstrap.split(","), tls=tls) as producer,
        Consumer(bootstrap.split(","), tls=tls) as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        await consumer.assign(topic, start="latest")
        tasks.create_task(_read(consumer))
        for number in range(partitions):
            tasks.create_task(_write(producer, topic, number))
        for number, listener in enumerate(listeners):
            name, _, address = listener.partition("=")
            tasks.create_task(_call(number, name, opened(Address.parse(address)), topic))


if __name__ == "__main__":
    _place, _topic, _partitions, _ca, _certificate, _key, *_listeners = sys.argv[1:]
    _tls = TlsFiles(ca=Path(_ca), certificate=Path(_certificate), key=Path(_key))
    asyncio.run(main(_place, _topic, int(_partitions), _tls, _listeners))
