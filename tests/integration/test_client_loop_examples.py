"""The client loops in other languages meet answers that a healthy cluster seldom gives: scripted brokers give them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from regnum.broker.v1 import log_pb2, log_pb2_grpc, producer_pb2, producer_pb2_grpc
from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_service.errors import RegnumError
from regnum_service.interceptor import abort
from regnum_service.status import to_status

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(300)]

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
COMMANDS: Final = {
    "node": ("node/node_modules", "npm install", "exec node node/client.js"),
    "go": ("go/client", "go build -o client .", "cd go; exec ./client"),
    "java": (
        "java/target/dependency",
        "mvn package",
        "exec java -cp 'java/target/classes:java/target/dependency/*' Client",
    ),
}
"""What each needs that is no part of the set-up, what makes it, how it is started from the folder of the examples."""
RECORDS: Final = 100
PADDING: Final = b"k" * 65536
"""Key of each record where answers are to be large: a hundred of them are more than gRPC's 4 MiB."""
EXAMPLE_S_MAX: Final = 60.0
"""More than an example takes; with a fault it goes on for ever."""
THROTTLED: Final = RegnumError(
    errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, "no room for the answer", retry_after_ms=20
)
NOT_REGISTERED: Final = RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "this broker is not registered")
ELSEWHERE: Final = RegnumError(errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER, "another broker leads")

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


@dataclass(slots=True)
class Log:
    """The only partition of ``numbers``; shared by the brokers."""

    values: list[bytes] = field(default_factory=list)
    key: bytes = b""
    fetches: list[log_pb2.FetchRequest] = field(default_factory=list)
    behind: int = 0
    """So many answers to Fetch tell, and send, one record: as of a leader that has just begun."""


class ScriptedBroker(
    log_pb2_grpc.LogServiceServicer,
    producer_pb2_grpc.ProducerServiceServicer,
    metadata_pb2_grpc.MetadataServiceServicer,
):
    """A broker that says what a test wants."""

    def __init__(self, log: Log) -> None:
        self._log: Final = log
        self.version = 0
        self.leader = -1
        """Who leads, as far as it knows; -1: it knows no topic."""
        self.leads = False
        self.known: dict[int, int] = {}
        """Brokers by port."""
        self.failures: dict[str, list[RegnumError]] = {}
        """What the next calls of a method fail with as a whole."""

    async def _fail(self, method: str, context: Context) -> None:
        if left := self.failures.get(method):
            await abort(context, left.pop())

    async def GetMetadata(  # noqa: N802 - names of the wire
        self, request: metadata_pb2.GetMetadataRequest, context: Context
    ) -> metadata_pb2.GetMetadataResponse:
        """Brokers, and the topic."""
        await self._fail("GetMetadata", context)
        answer = metadata_pb2.GetMetadataResponse(version=self.version)
        for id, port in self.known.items():
            answer.brokers.add(id=id, client=types_pb2.Endpoint(host="127.0.0.1", port=port))
        (name,) = request.topics
        about = answer.topics.add(topic=types_pb2.TopicState(name=name))
        if self.leader < 0 or name != "numbers":
            about.error_code = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
        else:
            about.topic.partitions.add(partition=0, leader=self.leader)
        return answer

    async def InitProducerId(  # noqa: N802
        self, _request: producer_pb2.InitProducerIdRequest, context: Context
    ) -> producer_pb2.InitProducerIdResponse:
        """A producer id."""
        await self._fail("InitProducerId", context)
        return producer_pb2.InitProducerIdResponse(producer_id=7)

    async def Produce(  # noqa: N802
        self, request: log_pb2.ProduceRequest, context: Context
    ) -> log_pb2.ProduceResponse:
        """Append each sequence number once."""
        await self._fail("Produce", context)
        if not self.leads:
            refused = log_pb2.ProduceResult(error_code=ELSEWHERE.code, base_offset=-1, status=to_status(ELSEWHERE))
            return log_pb2.ProduceResponse(results=[refused])
        plain = request.partitions[0].plain
        if plain.base_sequence == len(self._log.values):
            self._log.values += [record.value for record in plain.records]
        return log_pb2.ProduceResponse(results=[log_pb2.ProduceResult(base_offset=plain.base_sequence)])

    async def Fetch(self, request: log_pb2.FetchRequest, context: Context) -> log_pb2.FetchResponse:  # noqa: N802
        """Everything from the offset on, up to the high watermark."""
        await self._fail("Fetch", context)
        self._log.fetches.append(request)
        end = 1 if self._log.behind else len(self._log.values)
        self._log.behind = max(0, self._log.behind - 1)
        first = request.partitions[0].offset
        records = [
            log_pb2.Record(offset=offset, key=self._log.key, value=value)
            for offset, value in enumerate(self._log.values[first:end], start=first)
        ]
        return log_pb2.FetchResponse(results=[log_pb2.FetchResult(high_watermark=end, records=records)])


@dataclass(frozen=True, slots=True)
class Brokers:
    """Two brokers; the second leads, and knows it."""

    log: Log
    first: ScriptedBroker
    second: ScriptedBroker
    bootstrap: str

    async def run(self, language: str, topic: str = "numbers") -> tuple[int, str]:
        """Exit status and all that it printed."""
        needed, made, command = COMMANDS[language]
        if not (EXAMPLES / needed).exists():
            pytest.skip(f"{made} in examples/{language} comes first")
        process = await asyncio.create_subprocess_shell(
            f"{command} {self.bootstrap} {topic} {RECORDS}",
            cwd=EXAMPLES,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            said, _ = await asyncio.wait_for(process.communicate(), EXAMPLE_S_MAX)
        except TimeoutError:
            process.kill()
            await process.wait()
            pytest.fail("the example did not end")
        assert process.returncode is not None
        return process.returncode, said.decode()


@asynccontextmanager
async def brokers() -> AsyncIterator[Brokers]:
    """Both listen, and each knows of both."""
    log = Log()
    made, servers = [ScriptedBroker(log), ScriptedBroker(log)], []
    known: dict[int, int] = {}
    for id, broker in enumerate(made, start=1):
        server = grpc.aio.server()
        log_pb2_grpc.add_LogServiceServicer_to_server(broker, server)
        producer_pb2_grpc.add_ProducerServiceServicer_to_server(broker, server)
        metadata_pb2_grpc.add_MetadataServiceServicer_to_server(broker, server)
        known[id] = server.add_insecure_port("127.0.0.1:0")
        broker.known, broker.version, broker.leader, broker.leads = known, 9, 2, id == 2
        await server.start()
        servers.append(server)
    try:
        yield Brokers(log, *made, bootstrap=",".join(f"127.0.0.1:{port}" for port in known.values()))
    finally:
        for server in servers:
            await server.stop(None)


def without_metadata(given: Brokers) -> None:
    """A broker that has just started: it knows of nobody, and gives no ids."""
    given.first.known, given.first.version, given.first.leader = {}, 0, -1
    given.first.failures["InitProducerId"] = [NOT_REGISTERED] * RECORDS


def cut_off(given: Brokers) -> None:
    """A broker that led once, and goes on answering with what was true then."""
    given.first.version, given.first.leader = 5, 1


def throttled(given: Brokers) -> None:
    """Whole calls are refused for a while."""
    for method in ("GetMetadata", "InitProducerId", "Produce", "Fetch"):
        given.second.failures[method] = [THROTTLED]
    given.first.failures["InitProducerId"] = [THROTTLED]


def large_answers(given: Brokers) -> None:
    """More than 4 MiB in one answer."""
    given.log.key = PADDING


def behind_at_first(given: Brokers) -> None:
    """The high watermark goes back, as after a change of leader, and is behind what was acknowledged."""
    given.log.behind = 3


@pytest.mark.parametrize("language", COMMANDS)
@pytest.mark.parametrize("trouble", [without_metadata, cut_off, throttled, large_answers, behind_at_first])
async def test_an_example_writes_and_reads_each_record_once_whatever_it_is_answered(
    trouble: Callable[[Brokers], None], language: str
) -> None:
    async with brokers() as given:
        trouble(given)
        said = await given.run(language)
        assert said == (0, f"{RECORDS} acknowledged, {RECORDS} read, 0 lost, 0 twice\n")
        assert len(given.log.values) == RECORDS
        assert {(one.max_bytes, one.min_bytes) for one in given.log.fetches} == {(1024 * 1024, 1)}


@pytest.mark.parametrize("language", COMMANDS)
async def test_an_example_says_that_there_is_no_such_topic(language: str) -> None:
    async with brokers() as given:
        status, said = await given.run(language, "nubmers")
        assert status == 1
        assert "no partitions of topic nubmers found" in said
        assert "UNKNOWN_TOPIC_OR_PARTITION" in said
