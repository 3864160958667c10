"""Every field of a request that may be long has a bound, and a call that goes beyond it is refused."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError
from regnum_service.request_sizes import CONTROL_BYTES_MAX, COUNTED_BYTES_MIN, LIST_MAX, TEXT_BYTES_MAX, Parsing
from regnum_testing.every_call import Call, calls_of, opened
from regnum_testing.every_kind import EveryKind
from regnum_testing.request_bounds import (
    BOUNDS,
    CLUSTER,
    LIST,
    OF_CLIENTS,
    PREFIX,
    RECORDS,
    LongField,
    Refused,
    fields,
    methods,
    path_of,
    sender_of,
)
from regnum_testing.waiting import DEADLINE_S

NEEDS_MORE = {
    # Topics are looked for first, and a broker is told its epochs.
    "admin.v1.ElectLeadersRequest.topics",
    "admin.v1.GiveUpPartitionsRequest.partitions",
    "admin.v1.RecoverPartitionsRequest.partitions",
}
"""Refused for more than their bound by other tests (``docs/largest_inputs.md``): an empty request is refused before."""


FIXED_WIDTHS = {
    FieldDescriptor.TYPE_DOUBLE,
    FieldDescriptor.TYPE_FLOAT,
    FieldDescriptor.TYPE_FIXED64,
    FieldDescriptor.TYPE_FIXED32,
    FieldDescriptor.TYPE_SFIXED64,
    FieldDescriptor.TYPE_SFIXED32,
}


def of_clients(sender: str = "") -> Iterator[MethodDescriptor]:
    return (method for method in methods() if sender_of(method) == sender)


def test_every_field_that_may_be_long_has_a_bound() -> None:
    found = [(method, one) for method in methods() for one in fields(method)]
    assert len(found) > 400, "they are where this test looks for them"
    unbounded = {f"{path_of(method)}: {one.name} ({one.field.full_name})" for method, one in found if one.bound is None}
    assert unbounded == set(), "say in regnum_testing.request_bounds what bounds them"
    named = {one.field.full_name.removeprefix(PREFIX) for _, one in found}
    assert BOUNDS.keys() - named == set(), "there are no such fields"
    for name, bound in BOUNDS.items():
        assert bound in (RECORDS, CLUSTER) or (isinstance(bound, Refused) and bound.most > 0), name


def test_requests_have_no_maps_and_requests_within_requests_are_known() -> None:
    found = [one for method in methods() for one in fields(method)]
    assert not [one.name for one in found if one.field.message_type and one.field.message_type.GetOptions().map_entry]
    nested = {one.field.full_name for one in found if one.field.message_type is one.field.containing_type}
    # What is in ``more`` has none of its own: ``produce_stream`` refuses it.
    assert nested == {"regnum.broker.v1.ProduceStreamRequest.more"}


def tagged(field: FieldDescriptor, content: bytes) -> bytes:
    """A field of bytes, as on the wire."""

    def varint(value: int) -> bytes:
        return bytes((value & 0x7F | 0x80,)) + varint(value >> 7) if value > 0x7F else bytes((value,))

    return varint(field.number << 3 | 2) + varint(len(content)) + content


def request_with(one: LongField, content: bytes, count: int) -> bytes:
    """A request that says nothing but this field, so often."""
    *above, field = one.path
    data = tagged(field, content) * count
    for outer in reversed(above):
        data = tagged(outer, data)
    return data


async def refused(method: MethodDescriptor, data: bytes) -> str:
    """Why a listener of clients does not even parse it."""
    parsing = Parsing(path_of(method), GetMessageClass(method.input_type).FromString)
    with pytest.raises(RegnumError) as caught:
        await parsing.message(data)
    assert caught.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    return caught.value.message


async def test_long_texts_and_lists_are_refused_wherever_they_stand() -> None:
    """What a listener without records refuses before it is an object."""
    seen: set[str] = set()
    for method in of_clients():
        for one in fields(method):
            if one.field.full_name in seen:
                # In one of the requests in which it stands: all of them go through the same count.
                continue
            many = request_with(one, b"", LIST_MAX + 1)
            if one.field.type == FieldDescriptor.TYPE_STRING:
                why = await refused(method, request_with(one, b"\1" * (TEXT_BYTES_MAX + 1), 1))
                assert str(TEXT_BYTES_MAX) in why, one.name
                seen.add(one.field.full_name)
            if one.field.is_packed:
                # (Numbers of a fixed width would be counted wrongly.)
                assert one.field.type not in FIXED_WIDTHS, one.name
                why = await refused(method, request_with(one, b"\1" * (LIST_MAX + 1), 1))
                assert str(LIST_MAX) in why, one.name
                seen.add(one.field.full_name)
            if one.field.is_repeated and not one.field.is_packed:
                assert str(LIST_MAX) in await refused(method, many), one.name
                seen.add(one.field.full_name)
        whole = bytes(CONTROL_BYTES_MAX + 1)
        assert str(CONTROL_BYTES_MAX) in await refused(method, whole)
    assert len(seen) > 100


async def test_lists_of_records_are_counted_wherever_they_stand() -> None:
    most = COUNTED_BYTES_MIN // 2
    for method in of_clients(RECORDS):
        parsing = Parsing(path_of(method), GetMessageClass(method.input_type).FromString, objects_max=most)
        for one in fields(method):
            if one.field.is_repeated and one.field.message_type is not None:
                with pytest.raises(RegnumError, match=str(most)):
                    await parsing.message(request_with(one, b"", most + 1))


def test_no_list_of_a_method_is_longer_than_any_may_be() -> None:
    for name, bound in BOUNDS.items():
        if isinstance(bound, Refused) and not bound.in_bytes and name.partition(".")[0] not in ("quota", "replication"):
            assert bound.most <= LIST.most, name


def beyond(call: Call, field: FieldDescriptor, count: int) -> Message:
    request = call.empty()
    items = getattr(request, field.name)
    if field.message_type is not None:
        for _ in range(count):
            items.add()
    elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        items.extend(f"n{number}" for number in range(count))
    else:
        items.extend(range(count))
    return request


async def heard(channel: grpc.aio.Channel, call: Call, request: Message) -> tuple[grpc.StatusCode, str]:
    """What the first answer to it says."""
    stream = channel.stream_stream(call.path)(timeout=DEADLINE_S)
    try:
        await stream.write(request.SerializeToString())
        await stream.done_writing()
        await stream.read()
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    stream.cancel()
    return grpc.StatusCode.OK, ""


def test_a_call_with_one_more_than_the_bound_is_refused(tmp_path: Path) -> None:
    async def ask(kinds: EveryKind) -> set[str]:
        asked: set[str] = set()
        for kind, process in kinds.processes.items():
            for listener_name, listener in process.listeners.items():
                async with opened(listener) as channel:
                    for call in await calls_of(channel):
                        service = call.method.containing_service.full_name
                        if service.startswith(PREFIX):
                            at_clients = listener_name == "client_listen"
                            assert (service.removeprefix(PREFIX) in OF_CLIENTS) == at_clients, service
                        if kind == "broker" and service == "regnum.admin.v1.AdminService":
                            # It passes them on, or says who answers.
                            continue
                        for field in call.method.input_type.fields:
                            name = field.full_name.removeprefix(PREFIX)
                            bound = BOUNDS.get(name)
                            if not isinstance(bound, Refused) or name in NEEDS_MORE or name in asked or bound is LIST:
                                continue
                            asked.add(name)
                            code, text = await heard(channel, call, beyond(call, field, bound.most + 1))
                            assert code is grpc.StatusCode.INVALID_ARGUMENT, f"{name}: {code} {text}"
                            assert str(bound.most) in text, f"{name}: {text}"
        return asked

    async def scenario() -> set[str]:
        kinds = EveryKind(tmp_path)
        await kinds.start()
        try:
            return await ask(kinds)
        finally:
            await kinds.close()

    asked = asyncio.run(scenario())
    inside = {name for name, bound in BOUNDS.items() if isinstance(bound, Refused) and bound is not LIST} - NEEDS_MORE
    top = {method.input_type.full_name.removeprefix(PREFIX) for method in methods()}
    assert asked == {name for name in inside if name.rpartition(".")[0] in top}
