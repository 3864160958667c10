"""A cluster in this process with a Kafka listener, and a client that speaks every version of every call, by kio."""

import asyncio
import dataclasses
import datetime as dt
import importlib
import io
import itertools
import typing
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from kio.serial import entity_reader, entity_writer
from regnum.admin.v1 import admin_pb2, admin_pb2_grpc
from regnum_model.nodes import Address

from regnum_testing.every_call import opened
from regnum_testing.every_kind import EveryKind
from regnum_testing.waiting import DEADLINE_S, eventually

_NUMBERS: Final = itertools.count(1)


class KafkaWorld:
    """The cluster, and a loop that turns while a test waits for it."""

    def __init__(self, runner: asyncio.Runner, cluster: EveryKind) -> None:
        """Only assigns."""
        self.runner, self.cluster = runner, cluster

    @property
    def servers(self) -> str:
        """For ``bootstrap.servers``."""
        return str(self.cluster.kafka)

    def run(self, work: Any) -> Any:
        """What it returns, within a deadline."""
        return self.runner.run(asyncio.wait_for(work, DEADLINE_S))

    def ask(self, message: str, version: int, **fields: Any) -> Any:
        """The answer to a call, as kio reads it.

        Args:
            message: kio's name of it.
            version: of it.
            fields: of the request; structs as dictionaries. What the version does not have is left out.
        """
        return self.run(asked(self.cluster.kafka, message, version, fields))


@contextmanager
def kafka_world(
    root: Path, *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> Iterator[KafkaWorld]:
    """It knows itself and a controller; topics have one replica unless they say otherwise."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        cluster = EveryKind(root)
        world = KafkaWorld(runner, cluster)
        runner.run(cluster.start())

        async def ready() -> bool:
            try:
                async with admin(world) as client:
                    described = await client.describe_cluster()
            except KafkaError:
                return False
            return described["controller_id"] == 1 and len(described["brokers"]) == 1

        runner.run(eventually(ready, what="the broker knows itself and a controller"))
        runner.run(_one_replica(cluster.processes["election"].listeners["client_listen"]))
        yield world
        runner.run(cluster.close())
        for process in cluster.processes.values():
            if process.supervisor.failure is not None:
                raise process.supervisor.failure


async def _one_replica(address: Address) -> None:
    """There is one broker: topics of groups have one replica, too."""
    resource = admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_BROKER)
    alteration = admin_pb2.ConfigAlteration(resource=resource)
    alteration.configs.add(name="default.replication.factor", value="1", op=admin_pb2.ALTER_CONFIG_OP_SET)
    async with opened(address) as channel:
        stub: admin_pb2_grpc.AdminServiceAsyncStub = admin_pb2_grpc.AdminServiceStub(channel)
        answer = await stub.IncrementalAlterConfigs(
            admin_pb2.IncrementalAlterConfigsRequest(alterations=[alteration]), timeout=DEADLINE_S
        )
    if [one.error_code for one in answer.results] != [0]:
        raise AssertionError(answer)


class admin:  # noqa: N801 - used as a function
    """A client for administration that is closed."""

    def __init__(self, world: KafkaWorld) -> None:
        """Only assigns."""
        self.client = AIOKafkaAdminClient(bootstrap_servers=world.servers)

    async def __aenter__(self) -> AIOKafkaAdminClient:
        """Connect."""
        await self.client.start()
        return self.client

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.client.close()


async def made(world: KafkaWorld, name: str, partitions: int = 1) -> None:
    """A topic."""
    async with admin(world) as client:
        answer = await client.create_topics([NewTopic(name, partitions, 1)])
    if [error[1] for error in answer.topic_errors] != [0]:
        raise AssertionError(answer)


class KafkaConnection:
    """One connection, over which any version of any call goes. ``connected`` makes one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str = "kio") -> None:
        """Only assigns."""
        self._reader, self.writer, self._client_id = reader, writer, client_id

    def send(self, message: str, version: int, **fields: Any) -> int:
        """Send a request; its correlation id. Several may be sent before an answer is read."""
        kind, _ = _kinds(message, version)
        number = next(_NUMBERS)
        buffer = io.BytesIO()
        header = kind.__header_schema__
        given = {"request_api_key": kind.__api_key__, "request_api_version": version, "correlation_id": number}
        if "client_id" in header.__dataclass_fields__:
            given["client_id"] = self._client_id
        entity_writer(header)(buffer, header(**given))
        entity_writer(kind)(buffer, _built(kind, fields))
        frame = buffer.getvalue()
        self.writer.write(len(frame).to_bytes(4, "big") + frame)
        return number

    async def receive(self, message: str, version: int, number: int) -> Any:
        """The next answer, which is to have that correlation id."""
        _, response = _kinds(message, version)
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        answer = await self._reader.readexactly(size)
        head, at = entity_reader(response.__header_schema__)(answer, 0)
        read, taken = entity_reader(response)(answer, at)
        if head.correlation_id != number or (taken != len(answer) - at and at + taken != len(answer)):
            raise AssertionError(f"{message} v{version}: {len(answer)} bytes, of which {taken} were read")
        return read

    async def ask(self, message: str, version: int, **fields: Any) -> Any:
        """Send, and read the answer."""
        return await self.receive(message, version, self.send(message, version, **fields))


@asynccontextmanager
async def connected(address: Address, client_id: str = "kio") -> AsyncIterator[KafkaConnection]:
    """A connection, which is closed."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        yield KafkaConnection(reader, writer, client_id)
    finally:
        writer.close()


async def asked(address: Address, message: str, version: int, fields: dict[str, Any]) -> Any:
    """The answer to one call over a connection of its own."""
    async with connected(address) as connection:
        return await connection.ask(message, version, **fields)


def _kinds(message: str, version: int) -> tuple[Any, Any]:
    """Kio's classes of a request and its response."""
    name = "".join(part.capitalize() for part in message.split("_"))
    request = importlib.import_module(f"kio.schema.{message}.v{version}.request")
    response = importlib.import_module(f"kio.schema.{message}.v{version}.response")
    return getattr(request, f"{name}Request"), getattr(response, f"{name}Response")


def _built(kind: Any, fields: dict[str, Any]) -> Any:
    hints = typing.get_type_hints(kind)
    return kind(
        **{
            field.name: _value(field, hints[field.name], fields[field.name])
            for field in dataclasses.fields(kind)
            if field.name in fields
        }
    )


def _value(field: Any, hint: Any, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_value(field, hint, one) for one in value)
    if isinstance(value, dict):
        return _built(next(_structs(hint)), value)
    if field.metadata.get("kafka_type", "").startswith("timedelta"):
        return dt.timedelta(milliseconds=value)
    return value


def _structs(hint: Any) -> Iterator[Any]:
    if dataclasses.is_dataclass(hint):
        yield hint
    for inner in typing.get_args(hint):
        yield from _structs(inner)
