"""Every field of a request that may be repeated has a bound, and a call that goes beyond it is refused."""

import asyncio
import importlib
from collections.abc import Iterator
from pathlib import Path

import grpc
import regnum
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from regnum_testing.every_call import Call, calls_of, opened
from regnum_testing.every_kind import EveryKind
from regnum_testing.request_bounds import BOUNDS, BYTES, CLUSTER, Refused
from regnum_testing.waiting import DEADLINE_S

PREFIX = "regnum."
NEEDS_MORE = {
    # Topics are looked for first, and a broker is told its epochs.
    "admin.v1.ElectLeadersRequest.topics",
    "admin.v1.GiveUpPartitionsRequest.partitions",
    "admin.v1.RecoverPartitionsRequest.partitions",
}
"""Refused for more than their bound by other tests (``docs/largest_inputs.md``): an empty request is refused before."""


def methods() -> Iterator[MethodDescriptor]:
    for root in map(Path, regnum.__path__):
        for file in root.rglob("*_pb2.py"):
            module = importlib.import_module(".".join(("regnum", *file.relative_to(root).with_suffix("").parts)))
            for service in module.DESCRIPTOR.services_by_name.values():
                yield from service.methods


def requests() -> dict[str, Descriptor]:
    """Every message that a request is or has inside."""
    found: dict[str, Descriptor] = {}
    left = [method.input_type for method in methods()]
    while left:
        message = left.pop()
        if message.full_name not in found:
            found[message.full_name] = message
            left += [field.message_type for field in message.fields if field.message_type is not None]
    return found


def within_itself(message: Descriptor) -> bool:
    """Whether one of its fields leads to such a message again."""
    seen: set[str] = set()
    left = [field.message_type for field in message.fields if field.message_type is not None]
    while left:
        one = left.pop()
        if one.full_name == message.full_name:
            return True
        if one.full_name not in seen:
            seen.add(one.full_name)
            left += [field.message_type for field in one.fields if field.message_type is not None]
    return False


def test_every_repeated_field_of_a_request_has_a_bound() -> None:
    fields = {
        field.full_name.removeprefix(PREFIX)
        for message in requests().values()
        for field in message.fields
        if field.is_repeated
    }
    assert fields - BOUNDS.keys() == set(), "say in regnum_testing.request_bounds what bounds them"
    assert BOUNDS.keys() - fields == set(), "there are no such fields"
    for name, bound in BOUNDS.items():
        assert bound in (BYTES, CLUSTER) or (isinstance(bound, Refused) and bound.most > 0), name


def test_requests_within_requests_are_known() -> None:
    nested = {name.removeprefix(PREFIX) for name, message in requests().items() if within_itself(message)}
    # What is in ``more`` has none of its own: ``produce_stream`` refuses it.
    assert nested == {"broker.v1.ProduceStreamRequest"}


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
            for listener in process.listeners.values():
                async with opened(listener) as channel:
                    for call in await calls_of(channel):
                        service = call.method.containing_service.full_name
                        if kind == "broker" and service == "regnum.admin.v1.AdminService":
                            # It passes them on, or says who answers.
                            continue
                        for field in call.method.input_type.fields:
                            name = field.full_name.removeprefix(PREFIX)
                            bound = BOUNDS.get(name)
                            if not isinstance(bound, Refused) or name in NEEDS_MORE or name in asked:
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
    inside = {name for name, bound in BOUNDS.items() if isinstance(bound, Refused)} - NEEDS_MORE
    top = {method.input_type.full_name.removeprefix(PREFIX) for method in methods()}
    assert asked == {name for name in inside if name.rpartition(".")[0] in top}
