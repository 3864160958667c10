"""Frames of requests: what is wrong with bytes is one error, whatever the bytes are, and costs what its size allows."""

import random
import struct

import pytest
from regnum_kafka_wire.apis import APIS
from regnum_kafka_wire.frames import Head, read_request, size_of, write_response
from regnum_kafka_wire.gen.api_versions_response import ApiVersionsResponse
from regnum_kafka_wire.gen.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from regnum_kafka_wire.gen.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from regnum_kafka_wire.primitives import (
    ITEMS_MAX,
    TEXT_BYTES_MAX,
    MalformedError,
    Room,
    TooManyItemsError,
    put_unsigned,
)

PRODUCE, FETCH, METADATA, API_VERSIONS, CREATE_TOPICS = (APIS[key] for key in (0, 1, 3, 18, 19))


def head(key: int, version: int, *, flexible: bool) -> bytes:
    return struct.pack(">hhih", key, version, 7, 3) + b"abc" + (b"\0" if flexible else b"")


def produce_v9(records: bytes) -> bytes:
    body = bytearray(b"\0" + struct.pack(">hi", -1, 1500) + b"\2\7orders\2" + struct.pack(">i", 4))
    put_unsigned(body, len(records) + 1)
    return head(0, 9, flexible=True) + bytes(body) + records + b"\0\0\0"


def read(api, frame: bytes):
    view = memoryview(frame)
    return read_request(api, Head.read(view), view)


def test_a_header_says_who_asks_for_what() -> None:
    found = Head.read(memoryview(head(3, 12, flexible=False)))
    assert (found.key, found.version, found.correlation_id, found.client_id) == (3, 12, 7, "abc")
    assert Head.read(memoryview(struct.pack(">hhih", 3, 0, 1, -1))).client_id == ""


def test_records_of_a_request_are_a_view_of_its_frame() -> None:
    frame = produce_v9(b"r" * 1000)
    (topic,) = read(PRODUCE, frame).topic_data
    (partition,) = topic.partition_data
    assert (topic.name, partition.index) == ("orders", 4)
    assert isinstance(partition.records, memoryview)
    assert partition.records.obj is frame
    assert partition.records == b"r" * 1000


def test_records_of_a_response_are_not_copied() -> None:
    records = b"r" * 1000
    answer = FetchResponse(
        responses=[FetchableTopicResponse(topic="orders", partitions=[PartitionData(records=records)])]
    )
    buffers = write_response(FETCH, 11, 7, answer)
    assert any(buffer is records for buffer in buffers)
    whole = b"".join(buffers)
    assert struct.unpack_from(">ii", whole) == (len(whole) - 4, 7)


def test_the_answer_to_api_versions_has_the_oldest_header() -> None:
    whole = b"".join(write_response(API_VERSIONS, 3, 7, ApiVersionsResponse(error_code=35)))
    assert struct.unpack_from(">iih", whole) == (len(whole) - 4, 7, 35)


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_frame_that_is_cut_off_anywhere_is_malformed(cut: int) -> None:
    frame = produce_v9(b"r" * 20)
    with pytest.raises(MalformedError):
        read(PRODUCE, frame[:-cut])


def test_what_follows_the_message_is_passed_over() -> None:
    assert read(PRODUCE, produce_v9(b"r") + b"\0\1\2").acks == -1


@pytest.mark.parametrize("version", [4, 5])
def test_a_text_is_never_longer_than_kafkas_classes_read(version: int) -> None:
    """Errors repeat what they are about, and the other listener takes longer names."""
    result = CreatableTopicResult(name="a", error_message="x" + "é" * 20_000)
    whole = b"".join(write_response(CREATE_TOPICS, version, 7, CreateTopicsResponse(topics=[result])))
    assert struct.unpack_from(">ii", whole) == (len(whole) - 4, 7)
    assert whole.count("é".encode()) == (TEXT_BYTES_MAX - 1) // 2


@pytest.mark.parametrize("size", [TEXT_BYTES_MAX, TEXT_BYTES_MAX + 1])
def test_a_longer_text_is_malformed(size: int) -> None:
    body = bytearray(bytes(1) + b"\2" + bytes(16))
    put_unsigned(body, size + 1)
    frame = head(3, 12, flexible=False) + bytes(body) + b"x" * size + b"\0\0\0\0"
    if size > TEXT_BYTES_MAX:
        with pytest.raises(MalformedError):
            read(METADATA, frame)
    else:
        assert read(METADATA, frame).topics[0].name == "x" * size


@pytest.mark.parametrize("size", [-1, 0, 9])
def test_no_frame_is_smaller_than_its_header(size: int) -> None:
    with pytest.raises(MalformedError):
        size_of(struct.pack(">i", size))


def test_a_length_beyond_the_end_makes_nothing() -> None:
    frame = head(3, 1, flexible=False) + struct.pack(">i", 2**31 - 1) + b"\0\1a"
    with pytest.raises(MalformedError, match="length"):
        read(METADATA, frame)


def test_more_items_than_a_request_may_have_are_not_read() -> None:
    names = b"\0\0" * (ITEMS_MAX + 1)
    frame = head(3, 1, flexible=False) + struct.pack(">i", ITEMS_MAX + 1) + names
    with pytest.raises(TooManyItemsError):
        read(METADATA, frame)


def test_tagged_fields_that_nobody_knows_are_passed_and_counted() -> None:
    tags = b"\2\5\3xyz\7\0"
    frame = struct.pack(">hhih", 12, 4, 7, 0) + tags + b"\2g" + struct.pack(">i", 3) + b"\2m\0" + tags
    assert read(APIS[12], frame).group_id == "g"
    many = bytearray()
    put_unsigned(many, ITEMS_MAX + 1)
    with pytest.raises(TooManyItemsError):
        read(APIS[12], struct.pack(">hhih", 12, 4, 7, 0) + bytes(many) + b"\0\0" * (ITEMS_MAX + 1))


def test_a_varint_ends() -> None:
    with pytest.raises(MalformedError, match="five"):
        read(APIS[12], struct.pack(">hhih", 12, 4, 7, 0) + b"\xff" * 12)


def test_bytes_of_any_kind_are_a_request_or_malformed() -> None:
    chance = random.Random(35)
    frames = [produce_v9(b"r" * 60), head(3, 12, flexible=True) + b"\2" + bytes(16) + b"\2t\0\0\1\0"]
    malformed = 0
    for number in range(4_000):
        api = APIS[(0, 3)[number % 2]]
        frame = bytearray(frames[number % 2])
        for _ in range(chance.randint(1, 4)):
            frame[chance.randrange(8, len(frame))] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        try:
            read(api, bytes(frame))
        except (MalformedError, TooManyItemsError):
            malformed += 1
    assert 400 < malformed < 3_600, "bent at places that matter and at others"


def test_room_is_counted_over_all_arrays_of_a_request() -> None:
    room = Room(3)
    room.take(2)
    with pytest.raises(TooManyItemsError):
        room.take(2)
