"""Administrative calls at the Kafka listener in their oldest and newest versions, as kio writes and reads them."""

import asyncio
from collections.abc import Iterator
from typing import Any

import aiokafka
import pytest
from regnum_testing.kafka_world import KafkaWorld, asked, kafka_world, made
from regnum_testing.waiting import eventually


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaWorld]:
    with kafka_world(tmp_path_factory.mktemp("kafka-admin")) as world:
        yield world


def versions(oldest: int, newest: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", sorted({oldest, newest}))


def codes(items: Any) -> list[int]:
    return [int(one.error_code) for one in items]


# Partitions.


@versions(0, 3)
def test_partitions_are_added_where_the_client_says_or_the_controller_chooses(world: KafkaWorld, version: int) -> None:
    name = f"grown-{version}"
    world.run(made(world, name))

    def grow(count: int, assignments: Any, *, validate_only: bool = False) -> list[int]:
        topic = {"name": name, "count": count, "assignments": assignments}
        answer = world.ask("create_partitions", version, topics=[topic], timeout=10_000, validate_only=validate_only)
        return codes(answer.results)

    assert grow(5, None, validate_only=True) == [0]
    assert grow(2, None) == [0]
    assert grow(4, [{"broker_ids": [1]}, {"broker_ids": [1]}]) == [0]
    assert partitions_of(world, name) == 4, "this broker knows them when the answer comes"
    assert grow(4, None) == [37], "INVALID_PARTITIONS"
    assert grow(5, [{"broker_ids": [9]}]) == [39], "INVALID_REPLICA_ASSIGNMENT"


def partitions_of(world: KafkaWorld, name: str) -> int:
    answer = world.ask(
        "metadata",
        8,
        topics=[{"name": name}],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return len(answer.topics[0].partitions)


@versions(0, 2)
def test_leaders_are_elected(world: KafkaWorld, version: int) -> None:
    name = f"elected-{version}"
    world.run(made(world, name, 2))

    def elect(kind: int, topics: Any) -> Any:
        return world.ask("elect_leaders", version, election_type=kind, topic_partitions=topics, timeout=10_000)

    wanted = [{"topic": name, "partitions": [0, 1]}, {"topic": "no-such", "partitions": [0]}]
    found = {one.topic: codes(one.partition_result) for one in elect(0, wanted).replica_election_results}
    assert found == {name: [84, 84], "no-such": [3]}, "ELECTION_NOT_NEEDED, UNKNOWN_TOPIC_OR_PARTITION"
    assert elect(0, None).replica_election_results == (), "of all partitions those are told that need it"
    assert elect(0, [{"topic": name, "partitions": []}]).replica_election_results == ()
    if version:
        assert int(elect(7, wanted).error_code) == 42, "INVALID_REQUEST: no such election"


@versions(0, 1)
def test_partitions_are_moved_and_moves_shown(world: KafkaWorld, version: int) -> None:
    name = f"moved-{version}"
    world.run(made(world, name, 2))

    def move(replicas: Any, *others: Any, may_grow: bool = True) -> Any:
        return world.ask(
            "alter_partition_reassignments",
            version,
            timeout=10_000,
            allow_replication_factor_change=may_grow,
            topics=[{"name": name, "partitions": [{"partition_index": 1, "replicas": replicas}, *others]}],
        )

    def outcome(answer: Any) -> list[int]:
        (topic,) = answer.responses
        return codes(topic.partitions)

    assert outcome(move([1])) == [0], "it is there already"
    assert outcome(move(None)) == [85], "NO_REASSIGNMENT_IN_PROGRESS"
    assert outcome(move([])) == [39]
    assert outcome(move([9])) == [39], "INVALID_REPLICA_ASSIGNMENT: no such broker"
    if version:
        other = {"partition_index": 0, "replicas": [1]}
        assert outcome(move([1, 9], other, may_grow=False)) == [38, 0], "INVALID_REPLICATION_FACTOR of that alone"
        assert outcome(move([1, 9], may_grow=False)) == [38]
    for topics in (None, [{"name": name, "partition_indexes": [1]}], []):
        shown = world.ask("list_partition_reassignments", 0, timeout=10_000, topics=topics)
        assert (int(shown.error_code), shown.topics) == (0, ())


def test_topics_are_described_in_pages_of_partitions(world: KafkaWorld) -> None:
    for name, count in (("paged-a", 2), ("paged-b", 3)):
        world.run(made(world, name, count))

    def page(limit: int, cursor: Any, *names: str) -> Any:
        return world.ask(
            "describe_topic_partitions",
            0,
            topics=[{"name": name} for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )

    first = page(3, None, "paged-b", "paged-a", "missing")
    assert [(one.name, int(one.error_code), len(one.partitions)) for one in first.topics] == [
        ("missing", 3, 0),
        ("paged-a", 0, 2),
        ("paged-b", 0, 1),
    ]
    assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("paged-b", 1)
    rest = page(3, {"topic_name": "paged-b", "partition_index": 1}, "paged-b", "paged-a", "missing")
    (topic,) = rest.topics
    assert [one.partition_index for one in topic.partitions] == [1, 2]
    assert (topic.partitions[0].leader_id, topic.partitions[0].isr_nodes) == (1, (1,))
    assert rest.next_cursor is None
    assert {"paged-a", "paged-b"} <= {one.name for one in page(2_000, None).topics}, "none named: all"


# Settings.


def resource(name: str, **more: Any) -> dict[str, Any]:
    return {"resource_type": 2, "resource_name": name, **more}


def described(world: KafkaWorld, version: int, *resources: Any, **how: Any) -> Any:
    asked = [{"configuration_keys": None, **one} for one in resources]
    given = {"include_synonyms": False, "include_documentation": False, **how}
    return world.ask("describe_configs", version, resources=asked, **given).results


def value_of(world: KafkaWorld, name: str, key: str) -> str:
    ((found,),) = (one.configs for one in described(world, 4, resource(name, configuration_keys=[key])))
    return str(found.value)


@versions(1, 4)
def test_settings_are_shown_with_where_they_come_from(world: KafkaWorld, version: int) -> None:
    name = f"shown-{version}"
    world.run(made(world, name))
    world.ask(
        "incremental_alter_configs",
        0,
        resources=[resource(name, configs=[{"name": "retention.ms", "config_operation": 0, "value": "60001"}])],
        validate_only=False,
    )
    topic, broker, cluster, missing, loggers = described(
        world,
        version,
        resource(name, configuration_keys=["retention.ms", "cleanup.policy"]),
        {"resource_type": 4, "resource_name": "1"},
        {"resource_type": 4, "resource_name": ""},
        resource("no-such-topic"),
        {"resource_type": 8, "resource_name": "1"},
        include_synonyms=True,
        include_documentation=True,
    )
    shown = {one.name: one for one in topic.configs}
    assert {key: (one.value, one.config_source) for key, one in shown.items()} == {
        "retention.ms": ("60001", 1),
        "cleanup.policy": ("delete", 5),
    }
    (synonym,) = shown["retention.ms"].synonyms
    assert (synonym.name, synonym.value, synonym.source) == ("retention.ms", "60001", 1)
    if version >= 3:
        assert (shown["retention.ms"].config_type, shown["cleanup.policy"].config_type) == (5, 7), "LONG, LIST"
        assert shown["retention.ms"].documentation
    assert len(broker.configs) > 10
    assert "default.replication.factor" in {one.name for one in cluster.configs}
    assert codes((topic, broker, cluster)) == [0, 0, 0]
    assert codes((missing, loggers)) == [3, 42], "UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST"


@versions(0, 1)
def test_settings_are_changed_one_by_one(world: KafkaWorld, version: int) -> None:
    name = f"altered-{version}"
    world.run(made(world, name))

    def alter(key: str, op: int, value: str | None, **how: bool) -> list[int]:
        change = resource(name, configs=[{"name": key, "config_operation": op, "value": value}])
        given = {"validate_only": False, **how}
        return codes(world.ask("incremental_alter_configs", version, resources=[change], **given).responses)

    SET, DELETE, APPEND, SUBTRACT = range(4)  # noqa: N806
    assert alter("segment.bytes", SET, "2097152", validate_only=True) == [0]
    assert alter("retention.ms", SET, "60001") == [0]
    assert alter("retention.ms", APPEND, "1") == [40], "INVALID_CONFIG: no list"
    assert alter("cleanup.policy", APPEND, "compact") == [0]
    assert value_of(world, name, "cleanup.policy") == "compact,delete", "to what was in force before"
    assert alter("cleanup.policy", APPEND, "compact") == [0]
    assert alter("cleanup.policy", SUBTRACT, "delete") == [0]
    assert value_of(world, name, "cleanup.policy") == "compact"
    assert alter("cleanup.policy", SUBTRACT, "compact") == [40], "nothing would be left"
    assert alter("retention.ms", DELETE, None) == [0]
    assert alter("retention.ms", 9, "1") == [42], "INVALID_REQUEST"
    assert alter("no.such.setting", SET, "1") == [40]
    assert alter("no.such.setting", DELETE, None) == [0], "kafka-reassign-partitions takes back what it did not set"
    assert value_of(world, name, "retention.ms") != "60001"
    assert value_of(world, name, "segment.bytes") != "2097152", "it was only checked"


@versions(0, 2)
def test_settings_are_replaced_as_a_whole(world: KafkaWorld, version: int) -> None:
    name = f"replaced-{version}"
    world.run(made(world, name))

    def replace(*configs: tuple[str, str], **how: bool) -> list[int]:
        change = resource(name, configs=[{"name": key, "value": value} for key, value in configs])
        return codes(
            world.ask("alter_configs", version, resources=[change], **{"validate_only": False, **how}).responses
        )

    assert replace(("retention.ms", "60001"), ("segment.bytes", "2097152")) == [0]
    assert replace(("retention.ms", "60002")) == [0]
    assert replace(validate_only=True) == [0]
    assert value_of(world, name, "retention.ms") == "60002"
    assert value_of(world, name, "segment.bytes") != "2097152", "what is not named goes back"
    assert replace(("retention.ms", "soon")) == [40]


def test_what_has_settings_is_listed(world: KafkaWorld) -> None:
    world.run(made(world, "listed"))
    assert world.ask("list_config_resources", 0).config_resources == (), "of clients' metrics there are none"
    found = world.ask("list_config_resources", 1, resource_types=[]).config_resources
    assert {("1", 4), ("listed", 2)} <= {(one.resource_name, one.resource_type) for one in found}
    (broker,) = world.ask("list_config_resources", 1, resource_types=[4]).config_resources
    assert (broker.resource_name, broker.resource_type) == ("1", 4)


# Logs.


def written(world: KafkaWorld, topic: str, count: int = 5, **settings: Any) -> None:
    async def work() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=world.servers, **settings) as producer:
            for _ in range(count):
                await producer.send_and_wait(topic, b"v", partition=0)

    world.run(work())


@versions(0, 2)
def test_records_are_deleted_up_to_an_offset_or_all(world: KafkaWorld, version: int) -> None:
    name = f"cut-{version}"
    world.run(made(world, name))
    written(world, name)

    def delete(offset: int, topic: str = name) -> tuple[int, int]:
        partition = {"partition_index": 0, "offset": offset}
        answer = world.ask(
            "delete_records", version, topics=[{"name": topic, "partitions": [partition]}], timeout=10_000
        )
        ((found,),) = (one.partitions for one in answer.topics)
        return int(found.error_code), found.low_watermark

    assert delete(2) == (0, 2)
    assert delete(9) == (1, -1), "OFFSET_OUT_OF_RANGE"
    assert delete(-1) == (0, 5), "all"
    assert delete(1, "no-such-topic") == (3, -1)


@versions(1, 4)
def test_sizes_of_replicas_are_told(world: KafkaWorld, version: int) -> None:
    name = f"sized-{version}"
    world.run(made(world, name, 2))
    written(world, name)
    one = world.ask("describe_log_dirs", version, topics=[{"topic": name, "partitions": [0, 7]}])
    ((found,),) = ([(topic.name, topic.partitions) for topic in directory.topics] for directory in one.results)
    assert found[0] == name
    ((number, size, lag),) = [(row.partition_index, row.partition_size, row.offset_lag) for row in found[1]]
    assert (number, lag) == (0, 0)
    assert size > 5 * 60
    (directory,) = world.ask("describe_log_dirs", version, topics=None).results
    assert (int(directory.error_code), directory.log_dir) == (0, str(world.cluster.root / "broker"))
    assert {name: 2}.items() <= {topic.name: len(topic.partitions) for topic in directory.topics}.items()


def test_idempotent_producers_are_told(world: KafkaWorld) -> None:
    world.run(made(world, "idempotent"))
    written(world, "idempotent", 3, enable_idempotence=True)
    answer = world.ask(
        "describe_producers",
        0,
        topics=[{"name": "idempotent", "partition_indexes": [0, 1]}, {"name": "missing", "partition_indexes": [0]}],
    )
    first, second = answer.topics
    assert (codes(first.partitions), codes(second.partitions)) == ([0, 3], [3])
    (producer,) = first.partitions[0].active_producers
    assert (producer.producer_epoch, producer.last_sequence, producer.current_txn_start_offset) == (0, 2, -1)
    assert producer.producer_id >= 0


# Groups.


async def find(world: KafkaWorld, group: str) -> None:
    async def found() -> bool:
        answer = await asked(world.cluster.kafka, "find_coordinator", 4, {"key_type": 0, "coordinator_keys": [group]})
        fields = {"groups": [group, "missing"], "include_authorized_operations": False}
        described = await asked(world.cluster.kafka, "describe_groups", 5, fields)
        return codes((*answer.coordinators, *described.groups)) == [0, 0, 0]

    await eventually(found, what="groups have a coordinator that has read them")


async def commit(world: KafkaWorld, group: str, topic: str, *partitions: int) -> None:
    """Without a membership."""
    await find(world, group)
    places = [
        {"partition_index": number, "committed_offset": 3, "committed_metadata": "", "committed_leader_epoch": -1}
        for number in partitions
    ]

    async def committed() -> bool:
        fields = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": topic, "partitions": places}],
        }
        answer = await asked(world.cluster.kafka, "offset_commit", 7, fields)
        listed = await asked(world.cluster.kafka, "list_groups", 5, {"states_filter": [], "types_filter": []})
        return {code for one in answer.topics for code in codes(one.partitions)} | {int(listed.error_code)} == {0}

    await eventually(committed, what="the broker has read the groups of all its partitions")


async def list_groups(world: KafkaWorld, version: int, *, states: list[str], types: list[str]) -> Any:
    """The answer, once the broker has read all groups: it may lead some partitions of theirs a moment before others."""
    answers: list[Any] = []

    async def read() -> bool:
        fields = {"states_filter": states, "types_filter": types}
        answers.append(await asked(world.cluster.kafka, "list_groups", version, fields))
        return int(answers[-1].error_code) == 0

    await eventually(read, what="groups are listed")
    return answers[-1]


@versions(0, 5)
def test_groups_are_listed_described_and_deleted(world: KafkaWorld, version: int) -> None:
    group, newest = f"kept-{version}", version > 0
    world.run(made(world, f"read-{version}"))
    world.run(commit(world, group, f"read-{version}", 0))
    listed = world.run(list_groups(world, version, states=[], types=[]))
    (found,) = [one for one in listed.groups if one.group_id == group]
    if newest:
        assert (found.group_state, found.group_type) == ("Empty", "classic")
        for states, types, there in ((["empty"], [], True), (["Stable"], [], False), ([], ["consumer"], False)):
            some = world.run(list_groups(world, version, states=states, types=types))
            assert (group in {one.group_id for one in some.groups}) is there
    both = world.ask(
        "describe_groups", 6 if newest else 0, groups=[group, "missing"], include_authorized_operations=True
    )
    assert codes(both.groups) == ([0, 69] if newest else [0, 0])
    assert [one.group_state for one in both.groups] == ["Empty", "Dead"]
    if newest:
        assert both.groups[0].authorized_operations == 1 << 3 | 1 << 6 | 1 << 8, "READ, DELETE, DESCRIBE"
    gone = world.ask("delete_groups", 2 if newest else 0, groups_names=[group, "missing"])
    assert codes(gone.results) == [0, 69], "GROUP_ID_NOT_FOUND"


def test_offsets_that_no_member_reads_are_deleted(world: KafkaWorld) -> None:
    for name in ("subscribed", "left"):
        world.run(made(world, name, 2))
    world.run(commit(world, "members", "left", 0, 1))

    async def delete(group: str = "members") -> Any:
        topics = [
            {"name": name, "partitions": [{"partition_index": number} for number in numbers]}
            for name, numbers in (("subscribed", [0]), ("left", [0, 7]))
        ]
        return await asked(world.cluster.kafka, "offset_delete", 0, {"group_id": group, "topics": topics})

    async def with_a_member() -> tuple[Any, Any]:
        consumer = aiokafka.AIOKafkaConsumer("subscribed", bootstrap_servers=world.servers, group_id="members")
        await consumer.start()
        try:
            await consumer.getmany(timeout_ms=10)
            refused = await asked(world.cluster.kafka, "delete_groups", 2, {"groups_names": ["members"]})
            described = await asked(
                world.cluster.kafka,
                "describe_groups",
                5,
                {"groups": ["members"], "include_authorized_operations": False},
            )
            assert codes(refused.results) == [68], "NON_EMPTY_GROUP"
            return described.groups[0], await delete()
        finally:
            await consumer.stop()

    described, answer = world.run(with_a_member())
    (member,) = described.members
    assert (described.group_state, described.protocol_type, member.client_host) == ("Stable", "consumer", "/127.0.0.1")
    assert member.member_assignment
    assert [codes(one.partitions) for one in answer.topics] == [[86], [0, 0]], "GROUP_SUBSCRIBED_TO_TOPIC"

    fetched = world.ask(
        "offset_fetch",
        5,
        group_id="members",
        topics=[{"name": "left", "partition_indexes": [0, 1]}],
    )
    assert [one.committed_offset for one in fetched.topics[0].partitions] == [-1, 3]
    assert int(world.run(delete("missing")).error_code) == 69
    after = world.run(asyncio.wait_for(delete(), 10))
    assert [codes(one.partitions) for one in after.topics] == [[0], [0, 0]], "nobody reads it any more"


# Rights, quotas, credentials.


@versions(0, 1)
def test_quotas_are_set_shown_and_removed(world: KafkaWorld, version: int) -> None:
    user = [{"entity_type": "user", "entity_name": f"u{version}"}]
    default = [*user, {"entity_type": "client-id", "entity_name": None}]

    def alter(*entries: tuple[Any, Any]) -> list[int]:
        wanted = [
            {"entity": entity, "ops": [{"key": "producer_byte_rate", "value": rate or 0.0, "remove": rate is None}]}
            for entity, rate in entries
        ]
        return codes(world.ask("alter_client_quotas", version, entries=wanted, validate_only=False).entries)

    def shown(*components: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
        asked = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
        answer = world.ask("describe_client_quotas", version, components=asked, strict=strict)
        assert int(answer.error_code) == 0
        return [
            (
                {one.entity_type: one.entity_name for one in entry.entity},
                {one.key: one.value for one in entry.values},
            )
            for entry in answer.entries
        ]

    ip = [{"entity_type": "ip", "entity_name": "10.0.0.1"}]
    assert alter((user, 1e6), (ip, 1.0), ([], 1.0), (default, 5e5)) == [0, 42, 42, 0]
    own = ({"user": f"u{version}"}, {"producer_byte_rate": 1e6})
    both = ({"user": f"u{version}", "client-id": None}, {"producer_byte_rate": 5e5})
    EXACT, DEFAULT, ANY = range(3)  # noqa: N806
    of_user = ("user", EXACT, f"u{version}")
    assert sorted(map(repr, shown(of_user))) == sorted(map(repr, (own, both)))
    assert shown(of_user, strict=True) == [own]
    assert shown(of_user, ("client-id", DEFAULT, None), strict=True) == [both]
    assert shown(of_user, ("client-id", EXACT, "x")) == []
    assert both in shown(("client-id", ANY, None))
    assert shown(("ip", ANY, None)) == []
    assert alter((user, None), (default, None)) == [0, 0]
    assert shown(of_user) == []


def test_a_kind_of_quota_that_nobody_knows_is_refused(world: KafkaWorld) -> None:
    odd = {"entity_type": "rack", "match_type": 0, "match": "r"}
    assert int(world.ask("describe_client_quotas", 1, components=[odd], strict=False).error_code) == 35


def test_nobody_has_credentials_for_scram(world: KafkaWorld) -> None:
    assert world.ask("describe_user_scram_credentials", 0, users=None).results == ()
    asked = world.ask("describe_user_scram_credentials", 0, users=[{"name": "alice"}])
    assert (int(asked.error_code), codes(asked.results)) == (0, [91]), "RESOURCE_NOT_FOUND"


ANYTHING = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


@versions(1, 3)
def test_rules_are_added_shown_and_removed(world: KafkaWorld, version: int) -> None:
    name = f"ruled-{version}"
    rule = {
        "resource_type": 2,
        "resource_name": name,
        "resource_pattern_type": 4,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    created = world.ask("create_acls", version, creations=[rule, {**rule, "operation": 1}, {**rule, "operation": 99}])
    assert codes(created.results) == [0, 42, 42], "INVALID_REQUEST"

    def shown(**chosen: Any) -> list[Any]:
        answer = world.ask("describe_acls", version, **{**ANYTHING, **chosen})
        assert int(answer.error_code) == 0
        return [
            (one.resource_name, one.pattern_type, [(acl.principal, acl.host, acl.operation) for acl in one.acls])
            for one in answer.resources
        ]

    expected = [(name, 4, [("User:alice", "*", 3)])]
    assert shown(resource_name_filter=name) == expected
    assert shown(resource_name_filter=f"{name}-and-more", pattern_type_filter=2) == expected, "MATCH"
    assert shown(resource_name_filter=name, operation=4) == []
    assert int(world.ask("describe_acls", version, **{**ANYTHING, "operation": 0}).error_code) == 42
    (gone,) = world.ask("delete_acls", version, filters=[{**ANYTHING, "resource_name_filter": name}]).filter_results
    assert [(one.resource_name, one.pattern_type, one.operation) for one in gone.matching_acls] == [(name, 4, 3)]
    assert shown(resource_name_filter=name) == []
