"""Every rule of access, quota and limit, and the tests that show it at gRPC's door and at Kafka's.

A rule that is new has to be named here: the lists of quotas and of limits of a listener are compared with this one.
"""

import dataclasses
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from regnum_model.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, RATE_KEY, REQUEST_PERCENTAGE
from regnum_service.access.listener import ListenerLimits
from regnum_testing.batches import batch_of
from regnum_testing.kafka_world import KafkaConnection, connected, made
from regnum_testing.kafka_world import KafkaWorld as World
from regnum_testing.waiting import eventually

TESTS = Path(__file__).parents[2]
HERE, CONNECTION, DOOR = (f"unit/broker_kafka/test_{name}.py" for name in ("rules_at_both_doors", "connection", "door"))
LIMITS, TLS = "unit/service/test_connection_limit.py", "unit/broker_kafka/test_listener_tls.py"
OF_BOTH = "integration/test_callers_without_rights.py"

RULES: dict[str, tuple[str, str]] = {
    "every call has a right": (
        "unit/access/test_rules.py: test_every_method_of_the_protos_has_a_rule_and_every_rule_a_method",
        f"{OF_BOTH}: test_every_call_of_kafka_is_refused_as_at_the_other_door",
    ),
    "a certificate is one caller": (f"{TLS}: test_one_certificate_is_the_same_caller_at_both_doors",) * 2,
    "no certificate, no caller": (
        "unit/tls/test_who_is_let_in.py: test_a_client_with_a_wrong_certificate_is_refused_and_the_",
        f"{TLS}: test_without_a_certificate_of_the_authority_nobody_is_let_in",
    ),
    PRODUCER_BYTE_RATE: (
        "unit/broker_limits/test_quotas_across_connections.py: test_a_request_that_crossed_the_line_is_appended_and_",
        f"{HERE}: test_a_producer_over_its_rate_is_answered_told_and_then_not_read",
    ),
    CONSUMER_BYTE_RATE: (
        "unit/broker_limits/test_quotas_across_connections.py: test_an_answer_under_a_debt_has_no_records_and_says_how",
        f"{HERE}: test_a_consumer_over_its_rate_is_answered_told_and_then_not_read",
    ),
    REQUEST_PERCENTAGE: (
        "unit/broker_limits/test_thread_time.py: test_what_a_reader_does_is_told_with_the_answer_and_holds_the_",
        f"{DOOR}: test_time_that_a_call_takes_is_measured_and_told",
    ),
    RATE_KEY: (
        "integration/test_mutation_quota.py: test_who_knows_the_refusal_is_refused_and_who_does_not_is_told_to_wait",
        f"{HERE}: test_who_knows_the_refusal_of_mutations_is_refused_and_who_does_not_is_held",
    ),
    "connections_max": (
        f"{LIMITS}: test_silent_connections_beyond_the_limit_are_closed_and_a_stream_goes_on",
        f"{CONNECTION}: test_idle_connections_and_those_that_are_too_many_are_closed",
    ),
    "connections_per_address_max": (
        f"{LIMITS}: test_of_one_address_those_go_that_do_nothing_and_others_stay",
        f"{CONNECTION}: test_of_one_address_too_many_the_one_is_closed_that_has_asked_for_nothing_for_the_longest_time",
    ),
    "handshake_timeout_s": (
        "unit/tls/test_who_is_let_in.py: test_who_connects_and_says_nothing_is_hung_up_on",
        f"{CONNECTION}: test_who_connects_and_says_nothing_is_hung_up_on_and_who_has_spoken_may_be_silent",
    ),
    "idle_s": (
        f"{HERE}: test_grpc_is_told_when_connections_are_idle",
        f"{CONNECTION}: test_idle_connections_and_those_that_are_too_many_are_closed",
    ),
    "age_s": (
        "integration/test_connections_that_age.py: test_a_connection_that_is_too_old_is_replaced_and_its_clients_go_on",
        f"{CONNECTION}: test_idle_connections_and_those_that_are_too_many_are_closed",
    ),
    "memory for requests": (
        "unit/broker_limits/test_intake.py: test_what_is_over_its_share_is_thrown_away_and_nothing_of_it_is_held",
        f"{CONNECTION}: test_a_large_request_waits_for_memory_and_is_held_until_it_is_answered",
    ),
    "memory for answers": (
        "unit/service/test_answers.py: test_an_answer_that_grows_is_refused_where_there_is_no_memory_for_it",
        f"{DOOR}: test_what_there_is_no_memory_for_waits_until_there_is",
    ),
    "the largest request": (
        "unit/service/test_request_sizes.py: test_a_method_without_records_takes_less_than_its_listener",
        f"{CONNECTION}: test_a_size_that_no_request_has_ends_the_connection_before_anything_is_kept",
    ),
    "the longest list": (
        "unit/service/test_request_sizes.py: test_a_list_that_comes_in_parts_is_one_list",
        f"{DOOR}: test_a_list_as_long_as_one_may_be_is_answered_and_a_longer_one_refused",
    ),
}
OF_HTTP2 = {"streams_max", "metadata_bytes_max", "age_grace_s"}
"""Limits of gRPC's door alone: a connection of Kafka's protocol has one call at a time, and nothing beside it."""


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_shown_at_both_doors(rule: str) -> None:
    for place in RULES[rule]:
        file, _, name = place.partition(": ")
        assert re.search(rf"^(async )?def {name}", (TESTS / file).read_text(), re.MULTILINE), place


def test_no_quota_and_no_limit_of_a_listener_is_left_out() -> None:
    quotas = {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, RATE_KEY}
    limits = {field.name for field in dataclasses.fields(ListenerLimits)}
    assert quotas | limits <= RULES.keys() | OF_HTTP2


def test_grpc_is_told_when_connections_are_idle() -> None:
    assert ("grpc.max_connection_idle_ms", 1_500) in ListenerLimits(idle_s=1.5).options


@contextmanager
def quota(world: World, client_id: str, key: str, value: float) -> Iterator[None]:
    """While it is in force for that client id."""
    entity = [{"entity_type": "client-id", "entity_name": client_id}]

    def alter(*, remove: bool) -> None:
        entry = {"entity": entity, "ops": [{"key": key, "value": value, "remove": remove}]}
        answer = world.ask("alter_client_quotas", 1, entries=[entry], validate_only=False)
        assert [int(one.error_code) for one in answer.entries] == [0], answer

    alter(remove=False)
    yield
    alter(remove=True)


def produced(topic: str, batch: bytes) -> dict[str, Any]:
    partitions = [{"index": 0, "records": batch}]
    topics = [{"name": topic, "partition_data": partitions}]
    return {"transactional_id": None, "acks": -1, "timeout": 5_000, "topic_data": topics}


def fetched(topic: str) -> dict[str, Any]:
    place = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "log_start_offset": -1}
    partitions = [{**place, "current_leader_epoch": -1, "last_fetched_epoch": -1}]
    how = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0}
    session = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
    return {**how, **session, "topics": [{"topic": topic, "partitions": partitions}]}


def ms(value: Any) -> int:
    return round(value.total_seconds() * 1000)


async def throttled(connection: KafkaConnection, message: str, version: int, **fields: Any) -> tuple[Any, bool]:
    """Ask until the quota is known and used up: that answer, and whether the next one came no earlier than it says."""
    told: list[Any] = []

    async def is_throttled() -> bool:
        told.append(await connection.ask(message, version, **fields))
        return ms(told[-1].throttle_time) > 0

    await eventually(is_throttled, what=f"{message} is over its quota")
    began_s = time.monotonic()
    await connection.ask(message, version, **fields)
    return told[-1], time.monotonic() - began_s >= ms(told[-1].throttle_time) / 1000 - 0.05


def test_a_producer_over_its_rate_is_answered_told_and_then_not_read(world: World) -> None:
    async def work() -> tuple[Any, bool]:
        await made(world, "slowly-written")
        async with connected(world.cluster.kafka, "slow-producer") as connection:
            return await throttled(connection, "produce", 9, **produced("slowly-written", batch_of(b"v" * 120_000)))

    with quota(world, "slow-producer", PRODUCER_BYTE_RATE, 1e6):
        answer, held = world.run(work())
    assert int(answer.responses[0].partition_responses[0].error_code) == 0, "it is appended"
    assert held


def test_a_consumer_over_its_rate_is_answered_told_and_then_not_read(world: World) -> None:
    async def work() -> tuple[Any, bool]:
        await made(world, "slowly-read")
        async with connected(world.cluster.kafka, "slow-consumer") as connection:
            await connection.ask("produce", 9, **produced("slowly-read", batch_of(b"v" * 500_000)))
            return await throttled(connection, "fetch", 11, **fetched("slowly-read"))

    with quota(world, "slow-consumer", CONSUMER_BYTE_RATE, 1e6):
        answer, held = world.run(work())
    assert int(answer.error_code) == 0
    assert held


def test_who_knows_the_refusal_of_mutations_is_refused_and_who_does_not_is_held(world: World) -> None:
    async def create(version: int, name: str) -> tuple[int, int]:
        topics = [{"name": name, "num_partitions": 3, "replication_factor": 1, "assignments": [], "configs": []}]
        async with connected(world.cluster.kafka, "maker") as connection:
            how = {"timeout": 10_000, "validate_only": False}
            answer = await connection.ask("create_topics", version, topics=topics, **how)
            return int(answer.topics[0].error_code), ms(answer.throttle_time)

    async def work() -> list[tuple[int, bool]]:
        names, told = iter(range(1_000)), list[tuple[int, int]]()

        async def refused() -> bool:
            told.append(await create(6, f"mutated-{next(names)}"))
            return told[-1][0] != 0

        await eventually(refused, what="the quota of mutations is used up")
        older = await create(5, f"mutated-{next(names)}")
        return [(code, wait_ms > 0) for code, wait_ms in (told[-1], older)]

    with quota(world, "maker", RATE_KEY, 0.1):
        assert world.run(work()) == [(89, True), (0, True)], "THROTTLING_QUOTA_EXCEEDED; accepted, and told to wait"
