"""Another implementation judges ours: kio writes requests that we read, and reads responses that we write."""

import dataclasses
import datetime as dt
import importlib
import io
import random
import typing
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from regnum_kafka_wire.apis import APIS
from regnum_kafka_wire.frames import Head, read_request
from regnum_kafka_wire.primitives import Room
from regnum_testing.kafka_fuzz.sessions import recorded_sessions
from regnum_testing.kafka_wire.schema import MESSAGES, Field, Struct, struct_of, versions_of

SESSIONS = recorded_sessions()
CALLS_OF_ALL = {"Metadata", "Produce", "Fetch", "FindCoordinator", "JoinGroup", "SyncGroup", "OffsetCommit"}
NAMES = {api.name: api for api in APIS.values()}
LIMITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "timedelta_i32": 31, "timedelta_i64": 40}


def api_of(message: str) -> Any:
    return NAMES["".join(part.capitalize() for part in message.split("_"))]


MESSAGE_OF = {api_of(message).key: message for message in MESSAGES}


def kio_class(message: str, version: int, side: str) -> Any:
    module = importlib.import_module(f"kio.schema.{message}.v{version}.{side}")
    wanted = f"{''.join(part.capitalize() for part in message.split('_'))}{side.capitalize()}"
    return getattr(module, wanted)


def value_of(field: Field, chance: random.Random) -> Any:
    """A value in plain form: integers of milliseconds, bytes of ids, dictionaries of structs."""
    if field.null and chance.random() < 0.3:
        return None
    if field.many:
        one = dataclasses.replace(field, many=False, null=False)
        return [value_of(one, chance) for _ in range(chance.choice((0, 1, 2, 3, 130)) if field.type != "struct" else 2)]
    if field.struct is not None:
        return tree_of(field.struct, chance)
    match field.type:
        case "string":
            return chance.choice(("", "a", "ä€😀" * 3, "x" * 200))
        case "bytes" | "records":
            return chance.randbytes(chance.choice((0, 1, 127, 20_000)))
        case "uuid":
            return chance.choice((bytes(16), chance.randbytes(16)))
        case "bool":
            return chance.random() < 0.5
        case "float64":
            return chance.choice((0.0, -1.25, 1e300))
        case "error_code":
            return int(chance.choice(list(ErrorCode)))
        case "datetime_i64":
            return chance.choice((-1, 1_700_000_000_123))
    most = 2 ** LIMITS[field.type] - 1
    return chance.choice((0, 1, most)) if field.type.startswith("timedelta") else chance.randint(-most - 1, most)


def tree_of(struct: Struct, chance: random.Random) -> dict[str, Any]:
    return {field.name: value_of(field, chance) for field in struct.fields}


def as_kio(struct: Struct, kind: Any, tree: dict[str, Any]) -> Any:
    hints = typing.get_type_hints(kind)
    given = {}
    for ours, theirs in zip(struct.fields, dataclasses.fields(kind), strict=True):
        value, hint = tree[ours.name], hints[theirs.name]
        inner = [one for one in typing.get_args(hint) if isinstance(one, type) or typing.get_origin(one)]
        while inner and not dataclasses.is_dataclass(hint):
            hint = inner[0]
            inner = [one for one in typing.get_args(hint) if isinstance(one, type) or typing.get_origin(one)]
        one = dataclasses.replace(ours, many=False)
        if value is not None and ours.many:
            given[theirs.name] = tuple(converted(one, hint, item) for item in value)
        else:
            given[theirs.name] = converted(one, hint, value)
    return kind(**given)


def converted(field: Field, hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if field.struct is not None:
        return as_kio(field.struct, hint, value)
    match field.type:
        case "uuid":
            return uuid.UUID(bytes=value) if any(value) else None
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return dt.timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value < 0 else dt.datetime.fromtimestamp(value / 1000, dt.UTC)
    return value


def plain(field: Field, value: Any) -> Any:
    """Of what a reader made, in plain form."""
    if isinstance(value, list | tuple):
        return [plain(dataclasses.replace(field, many=False), item) for item in value]
    if field.struct is not None and value is not None:
        return seen(field.struct, value)
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, dt.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, dt.datetime):
        return round(value.timestamp() * 1000)
    if value is None and field.type in ("uuid", "datetime_i64"):
        return bytes(16) if field.type == "uuid" else -1
    return int(value) if isinstance(value, ErrorCode) else value


def seen(struct: Struct, message: Any) -> dict[str, Any]:
    names = {field.name: field.name for field in struct.fields}
    if dataclasses.is_dataclass(message):
        names = dict(zip(names, (field.name for field in dataclasses.fields(message)), strict=True))
    return {field.name: plain(field, getattr(message, names[field.name])) for field in struct.fields}


def as_ours(struct: Struct, module: Any, tree: dict[str, Any]) -> Any:
    def one(field: Field, value: Any) -> Any:
        return value if field.struct is None or value is None else as_ours(field.struct, module, value)

    return getattr(module, struct.name)(
        **{
            field.name: [one(field, item) for item in tree[field.name]]
            if field.many and tree[field.name] is not None
            else one(field, tree[field.name])
            for field in struct.fields
        }
    )


@pytest.mark.parametrize("message", MESSAGES)
def test_what_kio_writes_as_a_request_is_read_field_by_field(message: str) -> None:
    chance = random.Random(message)
    for version, struct in versions_of(message, "request").items():
        kind = kio_class(message, version, "request")
        assert struct == struct_of(kind)
        for _ in range(2):
            tree = tree_of(struct, chance)
            buffer = io.BytesIO()
            entity_writer(kind)(buffer, as_kio(struct, kind, tree))
            written = buffer.getvalue()
            read, end = api_of(message).readers[version](memoryview(written), 0, Room())
            assert seen(struct, read) == tree
            assert end == len(written)


@pytest.mark.parametrize("message", MESSAGES)
def test_what_is_written_as_a_response_is_read_by_kio_field_by_field(message: str) -> None:
    chance = random.Random(message)
    module = importlib.import_module(f"regnum_kafka_wire.gen.{message}_response")
    for version, struct in versions_of(message, "response").items():
        kind = kio_class(message, version, "response")
        for _ in range(2):
            tree = tree_of(struct, chance)
            buffers: list[Any] = []
            api_of(message).writers[version](as_ours(struct, module, tree), buffers, bytearray())
            written = b"".join(buffers)
            read, size = entity_reader(kind)(written, 0)
            assert seen(struct, read) == tree
            assert size == len(written)


@pytest.mark.parametrize("client", SESSIONS)
def test_what_a_client_sent_is_read_and_means_the_same_to_another_implementation(client: str) -> None:
    seen_calls = set()
    for frame in SESSIONS[client]:
        view = memoryview(frame)
        head = Head.read(view)
        api = APIS[head.key]
        if head.version not in api.readers:
            assert api.name == "ApiVersions", "franz-go asks in a version that is newer than any here"
            continue
        message = MESSAGE_OF[api.key]
        layout = versions_of(message, "request")[head.version]
        values = seen(layout, read_request(api, head, view))
        body = frame[head.end + (head.version >= api.flexible_from) :]
        kind = kio_class(message, head.version, "request")
        read, size = entity_reader(kind)(body, 0)
        theirs = seen(layout, read)
        if theirs.get("replica_state") == {"replica_id": -1, "replica_epoch": -1}:
            # (Not there: kio has its default, and we have nothing.)
            theirs["replica_state"] = None
        assert theirs == values, (api.name, head.version)
        assert size == len(body) or (client.startswith("librdkafka") and api.name == "Metadata"), "and nothing is left"
        seen_calls.add(api.name)
    assert seen_calls >= CALLS_OF_ALL
