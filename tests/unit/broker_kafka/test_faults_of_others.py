"""What other brokers that speak Kafka's protocol got wrong, each shown to be right here.

| fault | shown by |
|---|---|
| an ApiVersions newer than known | test_door: ..._in_the_oldest_form; franz-go's recorded session has one |
| gzip that arrives as something else | test_a_batch_arrives_as_it_was_compressed |
| an empty incremental fetch answered at once; min_bytes and max_wait ignored | test_a_fetch_without_news_waits... |
| preferred replica missing in an incremental answer | test_data: ..._says_where_to_read_instead |
| a throttled fetch that loses its session | test_data: ..._a_throttled_fetch_keeps_its_session |
| the first batch above max_bytes withheld, or more than that one sent | test_the_first_batch_is_sent_however_large... |
| offsets by time | test_with_a_client: test_offsets_are_told_by_place_and_by_time |
| a new topic unknown for moments | test_a_topic_is_known_when_its_creation_is_answered |
| auto-creation | test_auto_creation; test_with_a_client: test_a_topic_is_made_where_... |
| missing Describe calls | test_administration |
| settings refused | test_topics_that_kafka_streams_and_connect_make... |
| more than five in flight | test_ten_batches_may_be_under_way... |
| a sequence that wraps at 2^31-1; an idle idempotent producer forgotten | test_a_producer_goes_on_behind_... |
| static members that hang | test_a_static_member_that_comes_back_is_answered_at_once |
| a group stuck after disconnects | test_members_that_hang_up_while_they_join_hold_nobody_up |
| zero topic ids and recreated topics | test_an_id_of_no_topic_is_told_at_once... |
| addresses of the listener the client came through | test_addresses_are_those_of_the_listener... |
| MESSAGE_TOO_LARGE | test_a_batch_that_is_too_large_is_refused_alone |
"""

import time
import uuid
from typing import Any

import pytest
from regnum_records.build import CodecName
from regnum_testing.batches import batch_of, values_of
from regnum_testing.kafka_world import KafkaConnection, connected, made
from regnum_testing.kafka_world import KafkaWorld as World
from regnum_testing.waiting import eventually

NONE, TOO_LARGE, INVALID_REQUEST, UNKNOWN_TOPIC_ID = 0, 10, 42, 100
WAIT_MS = 300
CODECS: dict[int, CodecName] = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


def produced(topic: str, *batches: bytes) -> dict[str, Any]:
    """Of a request, a batch for each partition from 0 on."""
    partitions = [{"index": number, "records": batch} for number, batch in enumerate(batches)]
    topics = [{"name": topic, "partition_data": partitions}]
    return {"transactional_id": None, "acks": -1, "timeout": 5_000, "topic_data": topics}


async def produce(connection: KafkaConnection, topic: str, *batches: bytes) -> list[tuple[int, int]]:
    """Error and offset of each."""
    answer = await connection.ask("produce", 9, **produced(topic, *batches))
    return [(int(one.error_code), one.base_offset) for one in answer.responses[0].partition_responses]


def fetched(topics: list[dict[str, Any]], **changed: Any) -> dict[str, Any]:
    """Of a request."""
    how = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0}
    session = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
    return {**how, **session, "topics": topics, **changed}


def place(offset: int = 0, **changed: Any) -> dict[str, Any]:
    """Partition 0, from there on."""
    epochs = {"current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1}
    return {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **epochs, **changed}


def named(topic: str, offset: int = 0, **changed: Any) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": [place(offset, **changed)]}]


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_arrives_as_it_was_compressed(world: World, codec: int) -> None:
    topic, values = f"compressed-{codec}", [b"same" * 50, b"same" * 50]
    # Once: gzip writes the time into what it makes.
    sent = batch_of(*values, codec=CODECS[codec])

    async def work() -> bytes:
        await made(world, topic)
        async with connected(world.cluster.kafka) as connection:
            assert await produce(connection, topic, sent) == [(NONE, 0)]
            answer = await connection.ask("fetch", 11, **fetched(named(topic)))
            return bytes(answer.responses[0].partitions[0].records)

    batch = world.run(work())
    assert batch[22] & 7 == codec, "attributes: the codec"
    assert batch[23:] == sent[23:]
    assert values_of(batch) == values


def test_a_fetch_without_news_waits_and_one_with_too_little_too(world: World) -> None:
    async def work() -> list[tuple[bool, int]]:
        found: list[tuple[bool, int]] = []

        async def fetch(**changed: Any) -> Any:
            began_s = time.monotonic()
            answer = await connection.ask("fetch", 11, **fetched(**changed))
            found.append((time.monotonic() - began_s >= WAIT_MS / 1000, len(answer.responses)))
            assert int(answer.error_code) == NONE
            return answer

        await made(world, "waited-for")
        async with connected(world.cluster.kafka) as connection:
            begun = await fetch(topics=named("waited-for"), session_epoch=0)
            await fetch(topics=[], session_id=begun.session_id, session_epoch=1, max_wait=WAIT_MS)
            await produce(connection, "waited-for", batch_of(b"v"))
            await fetch(topics=[], session_id=begun.session_id, session_epoch=2, max_wait=60_000)
            await fetch(topics=named("waited-for"), min_bytes=1_000_000, max_wait=WAIT_MS)
            await fetch(topics=named("waited-for"), min_bytes=1, max_wait=60_000)
        return found

    nothing, waited, at_once = (False, 1), (True, 0), (False, 1)
    assert world.run(work()) == [nothing, waited, at_once, (True, 1), at_once]


def test_the_first_batch_is_sent_however_large_it_is_and_no_other(world: World) -> None:
    batches = [batch_of(bytes([number]) * 2_000) for number in range(3)]

    async def work() -> list[int]:
        await made(world, "large-batches")
        async with connected(world.cluster.kafka) as connection:
            for batch in batches:
                await produce(connection, "large-batches", batch)
            sizes = []
            for whole, part in ((1, 1), (1 << 20, 1), (1, 1 << 20), (len(batches[0]) + 1, 1 << 20), (1 << 20, 1 << 20)):
                topics = named("large-batches", partition_max_bytes=part)
                answer = await connection.ask("fetch", 11, **fetched(topics, max_bytes=whole))
                sizes.append(len(answer.responses[0].partitions[0].records or b""))
            return sizes

    one = len(batches[0])
    assert world.run(work()) == [one, one, one, one, 3 * one]


def test_a_topic_is_known_when_its_creation_is_answered(world: World) -> None:
    async def work() -> list[int]:
        codes = []
        async with connected(world.cluster.kafka) as connection:
            for number in range(5):
                topic = {"name": f"at-once-{number}", "num_partitions": 1, "replication_factor": 1}
                empty = {"assignments": [], "configs": []}
                await connection.ask(
                    "create_topics", 5, topics=[{**topic, **empty}], timeout=10_000, validate_only=False
                )
                how = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}
                wanted = [{"name": topic["name"]}]
                answer = await connection.ask("metadata", 9, topics=wanted, allow_auto_topic_creation=False, **how)
                codes.append(int(answer.topics[0].error_code))
        return codes

    assert world.run(work()) == [NONE] * 5


@pytest.mark.parametrize(
    "settings",
    [
        {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"},
        {"cleanup.policy": "compact,delete", "retention.ms": "86400000", "message.timestamp.type": "CreateTime"},
        {"cleanup.policy": "delete", "segment.bytes": "52428800", "retention.ms": "-1"},
        {"cleanup.policy": "compact", "min.insync.replicas": "1"},
    ],
)
def test_topics_that_kafka_streams_and_connect_make_for_themselves_are_made(
    world: World, settings: dict[str, str]
) -> None:
    configs = [{"name": name, "value": value} for name, value in settings.items()]
    topic = {"name": f"own-{uuid.uuid4()}", "num_partitions": 1, "replication_factor": -1}
    topics = [{**topic, "assignments": [], "configs": configs}]
    answer = world.ask("create_topics", 5, topics=topics, timeout=10_000, validate_only=False)
    assert [int(one.error_code) for one in answer.topics] == [NONE], answer


async def producer_id(connection: KafkaConnection) -> int:
    answer = await connection.ask(
        "init_producer_id", 3, transactional_id=None, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
    )
    return int(answer.producer_id)


def test_ten_batches_may_be_under_way_and_stay_in_order(world: World) -> None:
    async def work() -> tuple[list[tuple[int, int]], list[bytes | None]]:
        await made(world, "ten")
        async with connected(world.cluster.kafka) as connection:
            id = await producer_id(connection)
            batches = [batch_of(b"%d" % n, producer_id=id, producer_epoch=0, base_sequence=n) for n in range(10)]
            numbers = [connection.send("produce", 9, **produced("ten", batch)) for batch in batches]
            answers = [await connection.receive("produce", 9, number) for number in numbers]
            told = [one.responses[0].partition_responses[0] for one in answers]
            read = await connection.ask("fetch", 11, **fetched(named("ten")))
            records = bytes(read.responses[0].partitions[0].records)
            return [(int(one.error_code), one.base_offset) for one in told], list(values_of(records))

    told, values = world.run(work())
    assert told == [(NONE, number) for number in range(10)]
    assert values == [b"%d" % number for number in range(10)]


def test_a_producer_goes_on_behind_the_largest_sequence_and_where_it_is_not_known(world: World) -> None:
    async def work() -> list[tuple[int, int]]:
        await made(world, "sequences")
        async with connected(world.cluster.kafka) as connection:
            id = await producer_id(connection)

            async def append(first: int, *values: bytes) -> tuple[int, int]:
                batch = batch_of(*values, producer_id=id, producer_epoch=0, base_sequence=first)
                return (await produce(connection, "sequences", batch))[0]

            # (Nothing is remembered of the producer: it may have been idle for longer than it is kept.)
            return [await append(2**31 - 2, b"a", b"b", b"c"), await append(1, b"d"), await append(1, b"d")]

    assert world.run(work()) == [(NONE, 0), (NONE, 3), (NONE, 3)]


def joining(group: str, **changed: Any) -> dict[str, Any]:
    """Of a request to join."""
    protocols = [{"name": "range", "metadata": b"m"}]
    how = {"session_timeout": 30_000, "rebalance_timeout": 30_000, "member_id": "", "group_instance_id": None}
    return {"group_id": group, **how, "protocol_type": "consumer", "protocols": protocols, **changed}


async def joined(connection: KafkaConnection, group: str, **changed: Any) -> Any:
    """The answer, once the group has a coordinator that has read it."""
    found: list[Any] = []

    async def answered() -> bool:
        await connection.ask("find_coordinator", 3, key=group, key_type=0)
        found.append(await connection.ask("join_group", 5, **joining(group, **changed)))
        return int(found[-1].error_code) not in (14, 15, 16)

    await eventually(answered, what="the coordinator of the group")
    return found[-1]


def test_a_static_member_that_comes_back_is_answered_at_once(world: World) -> None:
    async def work() -> tuple[Any, Any, int]:
        async with connected(world.cluster.kafka) as connection:
            first = await joined(connection, "static", group_instance_id="one")
            identity = {"group_id": "static", "generation_id": first.generation_id, "member_id": first.member_id}
            given = [{"member_id": first.member_id, "assignment": b"all"}]
            await connection.ask("sync_group", 3, **identity, group_instance_id="one", assignments=given)
        async with connected(world.cluster.kafka) as connection:
            again = await joined(connection, "static", group_instance_id="one")
            old = await connection.ask("heartbeat", 3, **identity, group_instance_id="one")
            return first, again, int(old.error_code)

    first, again, old = world.run(work())
    assert (int(first.error_code), int(again.error_code)) == (NONE, NONE)
    assert again.member_id != first.member_id
    assert again.generation_id == first.generation_id, "the others do not notice"
    assert old == 82, "FENCED_INSTANCE_ID"


def test_members_that_hang_up_while_they_join_hold_nobody_up(world: World) -> None:
    async def work() -> Any:
        async with connected(world.cluster.kafka) as leader:
            named = await joined(leader, "left")
            await joined(leader, "left", member_id=named.member_id)
            for _ in range(3):
                # They are told who they are, begin to join the group, which waits for its leader, and are gone.
                async with connected(world.cluster.kafka) as member:
                    told = await member.ask("join_group", 5, **joining("left"))
                    member.send("join_group", 5, **joining("left", member_id=told.member_id, session_timeout=6_000))
                    await member.writer.drain()
            return await joined(leader, "left", member_id=named.member_id, rebalance_timeout=6_000)

    answer = world.run(work())
    assert int(answer.error_code) == NONE


def test_an_id_of_no_topic_is_told_at_once_and_a_topic_that_was_made_anew_has_another(world: World) -> None:
    async def work() -> list[list[int]]:
        codes = []
        async with connected(world.cluster.kafka) as connection:

            async def fetch(id: uuid.UUID | None) -> None:
                topics = [{"topic_id": id, "partitions": [place()]}]
                answer = await connection.ask("fetch", 13, **fetched(topics, max_wait=60_000))
                codes.append([int(one.error_code) for one in answer.responses[0].partitions])

            async def id_of(name: str) -> uuid.UUID:
                how = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
                answer = await connection.ask("metadata", 12, topics=[{"name": name, "topic_id": None}], **how)
                return answer.topics[0].topic_id

            await made(world, "recreated")
            before = await id_of("recreated")
            await connection.ask("delete_topics", 5, topic_names=["recreated"], timeout=10_000)
            await made(world, "recreated")
            assert await produce(connection, "recreated", batch_of(b"v")) == [(NONE, 0)]
            for id in (None, uuid.UUID(int=5), before, await id_of("recreated")):
                await fetch(id)
        return codes

    assert world.run(work()) == [[UNKNOWN_TOPIC_ID]] * 3 + [[NONE]]


def test_addresses_are_those_of_the_listener_that_the_client_came_through(world: World) -> None:
    how = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}
    metadata = world.ask("metadata", 9, topics=[], allow_auto_topic_creation=False, **how)
    cluster = world.ask("describe_cluster", 1, include_cluster_authorized_operations=False, endpoint_type=1)
    where = world.cluster.kafka
    assert [(one.host, one.port) for one in metadata.brokers] == [(where.host, where.port)]
    assert [(one.host, one.port) for one in cluster.brokers] == [(where.host, where.port)]
    found: list[Any] = []

    async def coordinated() -> bool:
        async with connected(where) as connection:
            found[:] = [await connection.ask("find_coordinator", 3, key="g", key_type=0)]
        return int(found[0].error_code) == NONE

    world.run(eventually(coordinated, what="the group has a coordinator"))
    assert (found[0].host, found[0].port) == (where.host, where.port)


def test_a_batch_that_is_too_large_is_refused_alone(world: World) -> None:
    async def work() -> list[list[tuple[int, int]]]:
        await made(world, "too-large", 3)
        small, large = batch_of(b"v"), batch_of(b"v" * 1_100_000)
        async with connected(world.cluster.kafka) as connection:
            return [await produce(connection, "too-large", small, large, small) for _ in range(2)]

    assert world.run(work()) == [[(NONE, n), (TOO_LARGE, -1), (NONE, n)] for n in range(2)]


def test_what_is_named_again_and_again_is_told_once_or_refused(world: World) -> None:
    """A few bytes for each, and thousands of partitions, settings, offsets, or producers in the answer."""
    world.run(made(world, "named-often", 2))
    how = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}
    topics = [{"name": "named-often"}] * 50
    metadata = world.ask("metadata", 9, topics=topics, allow_auto_topic_creation=False, **how)
    assert [len(topic.partitions) for topic in metadata.topics] == [2]
    resources = [{"resource_type": 2, "resource_name": "named-often", "configuration_keys": None}] * 50
    told = {"include_synonyms": False, "include_documentation": False}
    assert len(world.ask("describe_configs", 4, resources=resources, **told).results) == 1
    groups = [{"group_id": "g", "topics": None}] * 2
    offsets = world.ask("offset_fetch", 8, groups=groups, require_stable=False)
    assert {int(group.error_code) for group in offsets.groups} == {INVALID_REQUEST}
    producers = world.ask("describe_producers", 0, topics=[{"name": "named-often", "partition_indexes": [0, 1, 0]}])
    assert {int(one.error_code) for one in producers.topics[0].partitions} == {INVALID_REQUEST}
