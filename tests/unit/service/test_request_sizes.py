"""What would become very many objects is refused before it is parsed, and costs the loop next to nothing."""

import asyncio
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum.admin.v1 import admin_pb2, events_pb2
from regnum.broker.v1 import group_pb2, log_pb2, log_pb2_grpc
from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1 import events_pb2 as events_types_pb2
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_service.gates import Messages
from regnum_service.muting import Muting
from regnum_service.request_sizes import (
    CONTROL_BYTES_MAX,
    COUNTED_BYTES_MIN,
    FIELDS_PER_PIECE,
    LIST_MAX,
    OBJECTS_MAX,
    PARSED_BYTES_MAX,
    TEXT_BYTES_MAX,
    Parsing,
)
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.status import from_rpc_error
from regnum_service.supervisor import Supervisor
from regnum_service.topic_pages import NAMES_MAX
from regnum_service.wire_objects import FIELDS_OF_OBJECT, ObjectCount
from regnum_testing.waiting import DEADLINE_S

MIB = 1024 * 1024
PRODUCE = "/regnum.broker.v1.LogService/Produce"
FETCH = "/regnum.broker.v1.LogService/Fetch"
EMPTY_PARTITION = log_pb2.ProduceRequest(partitions=[log_pb2.ProducePartition()]).SerializeToString()
HOSTILE = EMPTY_PARTITION * (30 * MIB // len(EMPTY_PARTITION))
"""30 MB of empty items: 850 MB once they are parsed."""


def objects(message: log_pb2.ProduceStreamRequest, most: int = 10**9) -> int:
    count = ObjectCount(message.SerializeToString(), message.DESCRIPTOR, most=most)
    assert count.go_on(10**9)
    return count.objects


def request(partitions: int, records: int = 0) -> log_pb2.ProduceRequest:
    made = log_pb2.ProduceRequest()
    for number in range(partitions):
        item = made.partitions.add(topic="t", partition=number, record_batch=b"x" * 300)
        for _ in range(records):
            item.plain.records.add(key=b"k", value=b"v").headers.add(key="h")
    return made


def stream_of(*requests: log_pb2.ProduceRequest) -> log_pb2.ProduceStreamRequest:
    first, *rest = (log_pb2.ProduceStreamRequest(request=one) for one in requests)
    first.more.extend(rest)
    return first


def test_every_message_inside_is_counted_wherever_it_stands() -> None:
    assert objects(stream_of(request(0))) == 1
    assert objects(stream_of(request(5))) == 1 + 5
    inside = 1 + 2 * (1 + 1 + 3 * 2)
    assert objects(stream_of(request(2, records=3))) == inside
    assert objects(stream_of(request(2, records=3), request(2, records=3))) == inside + 1 + inside


@given(st.integers(min_value=1, max_value=40), st.lists(st.integers(min_value=0, max_value=4), min_size=1, max_size=6))
def test_a_count_in_parts_is_the_count_at_once(part: int, records: list[int]) -> None:
    message = stream_of(*(request(2, records=many) for many in records))
    count = ObjectCount(message.SerializeToString(), message.DESCRIPTOR, most=10**9)
    while not count.go_on(part):
        pass
    assert count.objects == objects(message)


@given(st.binary(max_size=200))
def test_any_bytes_end_the_count(data: bytes) -> None:
    count = ObjectCount(data, log_pb2.ProduceStreamRequest.DESCRIPTOR, most=10**9)
    assert count.go_on(10_000)
    assert count.objects <= len(data)


def test_a_batch_of_a_mebibyte_is_counted_in_a_few_fields() -> None:
    made = log_pb2.ProduceRequest()
    for number in range(50):
        made.partitions.add(topic="t" * 100, partition=number, record_batch=bytes(MIB // 10))
    count = ObjectCount(made.SerializeToString(), made.DESCRIPTOR, most=OBJECTS_MAX)
    assert count.go_on(FIELDS_PER_PIECE), "at once"


@pytest.mark.full
async def test_thirty_megabytes_of_empty_items_are_refused_and_take_no_memory() -> None:
    parsing = Parsing(PRODUCE, log_pb2.ProduceRequest.FromString)
    turns = 0
    done = asyncio.Event()

    async def others() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0.001)

    watching = asyncio.create_task(others())
    await asyncio.sleep(0)
    tracemalloc.start()
    try:
        with pytest.raises(RegnumError) as refused:
            await parsing.message(HOSTILE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        done.set()
    await watching
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert peak < MIB
    assert turns > 3, "the loop went on while they were counted"


NUMBERS = log_pb2.ProduceRequest(timeout_ms=1).SerializeToString()
"""A field of two bytes that becomes no object, and is said as often as one likes."""


async def test_numbers_without_end_are_not_counted_to_their_end() -> None:
    parsing = Parsing(PRODUCE, log_pb2.ProduceRequest.FromString, objects_max=10_000)
    most = FIELDS_OF_OBJECT * 10_000
    assert (await parsing.message(NUMBERS * most)).timeout_ms == 1
    count = ObjectCount(NUMBERS * (4 * most), log_pb2.ProduceRequest.DESCRIPTOR, most=10_000)
    while not count.go_on(FIELDS_PER_PIECE):
        pass
    assert most < count.fields <= most + FIELDS_PER_PIECE
    with pytest.raises(RegnumError) as refused:
        await parsing.message(NUMBERS * (most + FIELDS_PER_PIECE))
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST


async def test_counts_without_end_keep_no_other_request_waiting() -> None:
    parsing = Parsing(FETCH, log_pb2.ProduceRequest.FromString)
    hostile = NUMBERS * (CONTROL_BYTES_MAX // len(NUMBERS))
    counts = [asyncio.create_task(parsing.message(hostile)) for _ in range(3)]
    await asyncio.sleep(0)  # they begin
    honest = NUMBERS * COUNTED_BYTES_MIN
    assert (await parsing.message(honest)).timeout_ms == 1
    assert not any(one.done() for one in counts), "they are counted in turns with it"
    for one in counts:
        one.cancel()
    await asyncio.wait(counts)
    assert (await parsing.message(honest)).timeout_ms == 1, "what nobody waits for is not counted on"


def fetch_of(partitions: int) -> bytes:
    item = log_pb2.FetchPartition(topic="t" * 8, partition=1, offset=123_456, max_bytes=1)
    return log_pb2.FetchRequest(partitions=[item] * partitions).SerializeToString()


async def test_what_a_request_of_many_items_costs_is_in_proportion_to_parsing_it() -> None:
    """Counted field by field, this one took fifty times as long as to parse it."""
    data, parsing = fetch_of(LIST_MAX), Parsing(FETCH, log_pb2.FetchRequest.FromString)

    async def spent_s(step: Callable[[], Awaitable[object]]) -> float:
        began_s = time.thread_time()
        await step()
        return time.thread_time() - began_s

    async def parsed() -> object:
        return log_pb2.FetchRequest.FromString(data)

    bare_s = min([await spent_s(parsed) for _ in range(3)])
    assert min([await spent_s(lambda: parsing.message(data)) for _ in range(3)]) < 15 * bare_s


async def test_of_requests_that_come_together_one_is_parsed_in_a_turn_of_the_loop() -> None:
    parsing, data = Parsing(FETCH, log_pb2.FetchRequest.FromString), fetch_of(1_000)
    done: list[int] = []

    async def parse() -> None:
        await parsing.message(data)
        done.append(turns)

    calls = [asyncio.create_task(parse()) for _ in range(5)]
    turns = 0
    while not all(call.done() for call in calls):
        turns += 1
        await asyncio.sleep(0)
    assert len(set(done)) == len(calls)


@pytest.mark.parametrize("more", [0, PARSED_BYTES_MAX], ids=["parsed first", "counted first"])
async def test_a_list_that_comes_in_parts_is_one_list(more: int) -> None:
    """A message that may be there once, and is there twice, is both of them together."""
    kinds = events_pb2.EventFilter(kinds=[events_types_pb2.EVENT_KIND_LEADER_ELECTED] * (LIST_MAX // 2 + 1))
    part = events_pb2.DescribeEventsRequest(filter=kinds).SerializeToString()
    padding = bytes((15 << 3 | 2,)) + bytes((0x80 | more & 0x7F, 0x80 | more >> 7 & 0x7F, more >> 14)) + bytes(more)
    parsing = Parsing("/regnum.admin.v1.EventService/DescribeEvents", events_pb2.DescribeEventsRequest.FromString)
    assert len((await parsing.message(part + padding)).filter.kinds) == LIST_MAX // 2 + 1
    with pytest.raises(RegnumError, match=f"more than {LIST_MAX} elements"):
        await parsing.message(part + part + padding)


async def test_numbers_in_one_field_are_elements_of_a_list() -> None:
    parsing = Parsing("/regnum.admin.v1.AdminService/CreateTopics", admin_pb2.CreateTopicsRequest.FromString)
    for count, topics in ((LIST_MAX, 1), (LIST_MAX + 1, 1), (LIST_MAX, 60), (LIST_MAX + 1, 60)):
        replicas = admin_pb2.ReplicaAssignment(replicas=[1] * count)
        request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(assignment=[replicas])] * topics)
        with pytest.raises(RegnumError, match=f"{LIST_MAX} elements") if count > LIST_MAX else nullcontext():
            assert await parsing.message(request.SerializeToString()) == request


async def test_a_method_without_records_takes_less_than_its_listener() -> None:
    wide = log_pb2.FetchRequest(client_rack="x" * CONTROL_BYTES_MAX).SerializeToString()
    with pytest.raises(RegnumError) as refused:
        await Parsing(FETCH, log_pb2.FetchRequest.FromString).message(wide)
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert str(CONTROL_BYTES_MAX) in refused.value.message
    batch = log_pb2.ProduceRequest(
        partitions=[log_pb2.ProducePartition(record_batch=bytes(2 * CONTROL_BYTES_MAX))]
    ).SerializeToString()
    assert (await Parsing(PRODUCE, log_pb2.ProduceRequest.FromString).message(batch)).ByteSize() == len(batch)


async def test_a_text_without_end_is_refused_wherever_it_stands_and_records_are_not_looked_at() -> None:
    create = Parsing("/regnum.admin.v1.AdminService/CreateTopics", admin_pb2.CreateTopicsRequest.FromString)
    for length, refused in ((TEXT_BYTES_MAX, False), (TEXT_BYTES_MAX + 1, True)):
        named = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(), admin_pb2.NewTopic(name="x" * length)])
        with pytest.raises(RegnumError, match=f"{length} bytes") if refused else nullcontext():
            await create.message(named.SerializeToString())
    header = log_pb2.RecordHeader(key="k" * (TEXT_BYTES_MAX + 1))
    produced = log_pb2.ProduceRequest(
        partitions=[log_pb2.ProducePartition(plain=log_pb2.PlainRecords(records=[log_pb2.Record(headers=[header])]))]
    ).SerializeToString()
    assert await Parsing(PRODUCE, log_pb2.ProduceRequest.FromString).message(produced)
    joined = group_pb2.JoinGroupRequest(protocols=[group_pb2.GroupProtocol(metadata=bytes(4 * TEXT_BYTES_MAX))])
    join = Parsing("/regnum.broker.v1.GroupService/JoinGroup", group_pb2.JoinGroupRequest.FromString)
    assert await join.message(joined.SerializeToString()) == joined, "bytes are no text"


async def test_the_largest_requests_that_are_allowed_get_in() -> None:
    largest = stream_of(*(request(10_000) for _ in range(4))).SerializeToString()
    parsing = Parsing("/regnum.broker.v1.LogService/ProduceStream", log_pb2.ProduceStreamRequest.FromString)
    assert len((await parsing.message(largest)).more) == 3
    assert OBJECTS_MAX > 64 * (10_000 + 2)
    # By name, each as long as one may be: 2.5 MB.
    names = metadata_pb2.GetMetadataRequest(topics=[f"{number:0249d}" for number in range(NAMES_MAX)])
    asked = await Parsing("/regnum.metadata.v1.MetadataService/GetMetadata", names.FromString).message(
        names.SerializeToString()
    )
    assert len(asked.topics) == NAMES_MAX


async def test_what_is_no_message_is_the_callers_mistake() -> None:
    with pytest.raises(RegnumError) as refused:
        await Parsing(FETCH, log_pb2.FetchRequest.FromString).message(b"\xff\xff\xff")
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert "Fetch" in refused.value.message


class Log(log_pb2_grpc.LogServiceServicer):
    """Counts what reaches it."""

    def __init__(self) -> None:
        self.reached = 0

    async def Produce(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802 - the name in the proto
        self.reached += 1
        return log_pb2.ProduceResponse()

    async def ProduceStream(self, request_iterator, context):  # type: ignore[no-untyped-def]  # noqa: N802 - the same
        assert isinstance(request_iterator, Messages)
        async for _ in request_iterator:
            self.reached += 1
            yield log_pb2.ProduceStreamResponse()


@pytest.fixture
async def served() -> AsyncIterator[tuple[Log, grpc.aio.Channel]]:
    supervisor, log = Supervisor("test"), Log()
    service = ServiceRegistration(
        name="regnum.broker.v1.LogService", servicer=log, add_to_server=log_pb2_grpc.add_LogServiceServicer_to_server
    )
    address = Address(host="127.0.0.1", port=0)
    server = GrpcServer(address, [service], supervisor=supervisor, gates=(Muting(SystemClock()),))
    await server.start()
    async with open_channel(server.address) as channel:
        yield log, channel
    await server.stop(0)


async def test_a_hostile_call_is_answered_and_no_handler_sees_it(served: tuple[Log, grpc.aio.Channel]) -> None:
    log, channel = served
    call = channel.unary_unary(PRODUCE, response_deserializer=log_pb2.ProduceResponse.FromString)
    for data in (HOSTILE, b"\xff\xff\xff"):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(data, timeout=DEADLINE_S)
        error = from_rpc_error(refused.value)
        assert error.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert log.reached == 0
    await call(request(3).SerializeToString(), timeout=DEADLINE_S)
    assert log.reached == 1


async def test_a_hostile_message_ends_its_stream_with_the_reason(served: tuple[Log, grpc.aio.Channel]) -> None:
    log, channel = served
    call = channel.stream_stream("/regnum.broker.v1.LogService/ProduceStream")(timeout=DEADLINE_S)
    await call.write(stream_of(request(1)).SerializeToString())
    await call.read()
    inner = log_pb2.ProduceStreamRequest(more=[log_pb2.ProduceStreamRequest()]).SerializeToString()
    await call.write(inner * (8 * MIB // len(inner)))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call.read()
    assert from_rpc_error(refused.value).code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert log.reached == 1
