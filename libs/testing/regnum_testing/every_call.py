"""Every call that a listener serves, found by its own reflection, and messages to call it with.

A new service, call or field is covered as soon as it is served: nothing here names any.
"""

import asyncio
import importlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import regnum
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from grpc_reflection.v1alpha import reflection, reflection_pb2
from hypothesis import strategies as st
from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address
from regnum_service.channel import open_channel

from regnum_testing.waiting import DEADLINE_S

DEPTH_MAX: Final = 4
"""Messages within messages."""

MANY: Final = 2_000
"""Elements of a repeated field that is meant to be too long."""

LONG: Final = "x" * 70_000
"""A text longer than any name."""

_INTEGERS: Final[Mapping[int, tuple[int, int]]] = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
}

_UNEXPECTED: Final = frozenset(
    {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS, grpc.StatusCode.UNAVAILABLE}
)
_FOR_A_MOMENT: Final = (
    "still reads what is known of",
    "does not exist yet, or this broker has not heard of it",
    "has not looked for strays yet",
)
"""A coordinator of groups says so for a moment after it began, or before there is any, and a broker that has just
registered: an answer, with the code of who does not answer."""

_OF_OUR_OWN_SIDE: Final = "Internal error from Core"
"""How gRPC's client ends a stream that it was told to write to after the server had closed it."""
_UNKNOWN_OUTCOME: Final = frozenset({grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})

Known = Mapping[str, Sequence[Any]]
"""Values that are true of the cluster, by the name of the field that carries them: random input alone gets no further
than the first check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a listener."""

    method: MethodDescriptor
    """What it takes and answers."""

    @property
    def path(self) -> str:
        """Its name on the wire."""
        service = self.method.containing_service
        return f"/{service.full_name}/{self.method.name}"

    def empty(self) -> Message:
        """A request that says nothing."""
        return _empty(self.method.input_type)


async def calls_of(channel: grpc.aio.Channel) -> list[Call]:
    """Every call that the listener at the other end says it serves."""
    for folder in map(Path, regnum.__path__):
        for module in folder.rglob("*_pb2.py"):
            # Each module adds its messages to the pool. Their folders are namespaces, which pkgutil does not walk.
            importlib.import_module(".".join(("regnum", *module.relative_to(folder).with_suffix("").parts)))
    ask: Any = channel.stream_stream(
        f"/{reflection.SERVICE_NAME}/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    stream = ask(timeout=DEADLINE_S)
    await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    names = [service.name for service in (await stream.read()).list_services_response.service]
    calls: list[Call] = []
    for name in names:
        await stream.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=name))
        answer = await stream.read()
        for data in answer.file_descriptor_response.file_descriptor_proto:
            served = descriptor_pb2.FileDescriptorProto.FromString(data)
            for service in served.service:
                if f"{served.package}.{service.name}" == name:
                    known = descriptor_pool.Default().FindServiceByName(name)
                    calls += [Call(method=known.methods_by_name[method.name]) for method in service.method]
    await stream.done_writing()
    return calls


def messages(type_: Descriptor, known: Known, depth: int = 0) -> st.SearchStrategy[Message]:
    """Messages with a part of their fields set: to what is true, to what is extreme, and to anything."""
    fields = {field.name: _values(field, known, depth) for field in type_.fields}
    return st.fixed_dictionaries({}, optional=fields).map(lambda chosen: _filled(type_, chosen))


def extremes(type_: Descriptor) -> list[Message]:
    """All fields at once as small, as large, as many as they can be."""
    return [_extreme(type_, which, 0) for which in ("smallest", "largest", "many", "unknown")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a call ended."""

    code: grpc.StatusCode
    """Its status; CANCELLED when we dropped it, DEADLINE_EXCEEDED when it would have waited longer than we."""
    responses: tuple[Message, ...]
    """What was answered before that."""
    details: str = ""
    """What the status says in words."""

    @property
    def refused(self) -> bool:
        """Whether the request was refused, as a whole or each of its items."""
        if self.code is not grpc.StatusCode.OK:
            return self.code not in _UNKNOWN_OUTCOME
        codes = [code for response in self.responses for code in _error_codes(response)]
        return bool(codes) and all(codes)

    @property
    def unexpected(self) -> bool:
        """Whether the server did not know what to answer."""
        if self.details == _OF_OUR_OWN_SIDE or any(words in self.details for words in _FOR_A_MOMENT):
            return False
        return self.code in _UNEXPECTED or any(
            code == errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR
            for response in self.responses
            for code in _error_codes(response)
        )


@asynccontextmanager
async def opened(address: Address) -> AsyncIterator[grpc.aio.Channel]:
    """A channel for the length of a block."""
    channel = open_channel(address)
    try:
        yield channel
    finally:
        await channel.close()


async def send_all(
    channel: grpc.aio.Channel,
    call: Call,
    requests: Sequence[Message | bytes],
    *,
    half_close: bool,
    timeout_s: float,
) -> list[Answer]:
    """A call for each request, at the same time; where it takes a stream, also one with all and one with none."""
    data = [request if isinstance(request, bytes) else request.SerializeToString() for request in requests]
    each = [[one] for one in data]
    if call.method.client_streaming:
        each += [[], data]
    return await asyncio.gather(
        *(answer_to(channel, call, one, half_close=half_close, timeout_s=timeout_s) for one in each)
    )


async def answer_to(
    channel: grpc.aio.Channel, call: Call, requests: Sequence[bytes], *, half_close: bool, timeout_s: float
) -> Answer:
    """Call; a stream is written to the end of ``requests`` and then closed at our side, or dropped."""
    responses: list[Message] = []
    calling = _begin(channel, call, requests, timeout_s)
    try:
        if call.method.client_streaming:
            await _write(calling, requests, half_close=half_close)
        await _read(calling, responses, many=call.method.server_streaming, to_the_end=half_close)
        if not half_close:
            calling.cancel()
        code = await calling.code()
        details = await calling.details() or ""
    except grpc.aio.AioRpcError as error:
        code, details = error.code(), error.details() or ""
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        code, details = grpc.StatusCode.CANCELLED, ""
    return Answer(code=code, details=details, responses=tuple(responses))


def _begin(channel: grpc.aio.Channel, call: Call, requests: Sequence[bytes], timeout_s: float) -> Any:
    method = call.method
    parse = message_factory.GetMessageClass(method.output_type).FromString
    kind: Any
    if method.client_streaming:
        kind = channel.stream_stream if method.server_streaming else channel.stream_unary
        return kind(call.path, response_deserializer=parse)(timeout=timeout_s)
    (request,) = requests
    kind = channel.unary_stream if method.server_streaming else channel.unary_unary
    return kind(call.path, response_deserializer=parse)(request, timeout=timeout_s)


async def _write(calling: Any, requests: Sequence[bytes], *, half_close: bool) -> None:
    try:
        for request in requests:
            await calling.write(request)
        if half_close:
            await calling.done_writing()
    except (asyncio.InvalidStateError, grpc.aio.BaseError):
        # It ended before it had heard everything; the status says why.
        return


async def _read(calling: Any, responses: list[Message], *, many: bool, to_the_end: bool) -> None:
    if not many:
        if to_the_end:
            responses.append(await calling)
    elif to_the_end:
        responses += [response async for response in calling]
    else:
        first = await calling.read()
        if first is not grpc.aio.EOF:
            responses.append(first)


def _error_codes(message: Message) -> list[int]:
    """Every error code in a message, NONE included."""
    codes: list[int] = []
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.enum_type is not None and field.enum_type.name == "ErrorCode":
            codes.append(value)
        elif field.message_type is not None and not _is_map(field):
            inner = value if field.is_repeated else [value] if message.HasField(field.name) else []
            codes += [code for one in inner for code in _error_codes(one)]
    return codes


def _empty(type_: Descriptor) -> Message:
    return message_factory.GetMessageClass(type_)()


def _is_map(field: Any) -> bool:
    of = field.message_type
    return of is not None and of.GetOptions().map_entry


def _values(field: FieldDescriptor, known: Known, depth: int) -> st.SearchStrategy[Any]:
    one = _single(field, known, depth)
    return st.lists(one, max_size=3) if field.is_repeated else one


def _single(field: FieldDescriptor, known: Known, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        if depth >= DEPTH_MAX or _is_map(field):
            return st.just(_empty(field.message_type))
        return messages(field.message_type, known, depth + 1)
    anything = _scalars(field)
    true = known.get(field.name, ())
    return st.one_of(st.sampled_from(true), anything) if true else anything


def _scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return st.binary(max_size=200)
        case FieldDescriptor.CPPTYPE_STRING:
            return st.one_of(st.sampled_from(["", ".", "..", "/", "a/b", "\0", LONG]), st.text(max_size=30))
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return st.floats(width=32)
        case kind:
            low, high = _INTEGERS[kind]
            return st.one_of(
                st.sampled_from([low, high, high - 1, 0, 1, max(low, -1), max(low, -2)]), st.integers(low, high)
            )


def _filled(type_: Descriptor, chosen: Mapping[str, Any]) -> Message:
    message = _empty(type_)
    for field in type_.fields:
        if field.name in chosen:
            _put(message, field, chosen[field.name])
    return message


def _put(message: Message, field: FieldDescriptor, value: Any) -> None:
    target = getattr(message, field.name)
    if _is_map(field):
        return
    if field.is_repeated:
        target.extend(value)
    elif field.message_type is not None:
        target.CopyFrom(value)
    else:
        setattr(message, field.name, value)


def _extreme(type_: Descriptor, which: str, depth: int) -> Message:
    message = _empty(type_)
    for field in type_.fields:
        if field.message_type is not None:
            if depth >= DEPTH_MAX or _is_map(field):
                continue
            one: Any = _extreme(field.message_type, which, depth + 1)
        else:
            one = _extreme_scalar(field, which)
        # Many within many would be more than a message can hold.
        count = MANY if which == "many" and depth == 0 else 2
        _put(message, field, [one] * count if field.is_repeated else one)
    return message


def _extreme_scalar(field: FieldDescriptor, which: str) -> Any:
    small = which == "smallest"
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_BOOL:
            return not small
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return b"" if small else b"\xff" * (70_000 if which == "largest" else 70)
        case FieldDescriptor.CPPTYPE_STRING:
            return {"smallest": "", "largest": LONG, "many": "many", "unknown": "."}[which]
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return {"smallest": float("-inf"), "largest": float("inf"), "many": 0.0, "unknown": float("nan")}[which]
        case kind:
            low, high = _INTEGERS[kind]
            return {"smallest": low, "largest": high, "many": 0, "unknown": high // 2 + 1}[which]
