"""Validation of CreateTopics and DeleteTopics: bad input is answered and changes nothing."""

import random
import re
from dataclasses import replace

import pytest
from regnum.types.v1 import errors_pb2
from regnum_coordination.requests import NODE_BYTES_MAX
from regnum_election.decisions.configs import Settings
from regnum_election.decisions.rejection import Rejection
from regnum_election.topics.requests import (
    DeletionRequest,
    Plan,
    Repeated,
    TopicRequest,
    find_topic,
    plan_topic,
    repeated_names,
    weigh_topic,
)
from regnum_model.configs import DEFAULT_REPLICATION_FACTOR, DEFAULTS
from regnum_model.ids import BrokerId, TopicId
from regnum_model.nodes import TopicNode
from regnum_testing.election_values import broker, cluster, topic

THREE = cluster(1, 2, 3, topics=[topic("taken", (1, 2))])


NEXT = re.compile(r"[;,:] (or )?(give|choose|start|try|leave|list)|^give")
"""A refusal says what to do next."""


def request(
    name: str = "t",
    partitions: int = 1,
    factor: int | None = None,
    assignment: tuple[tuple[int, tuple[int, ...]], ...] = (),
    mutation: str | None = None,
) -> TopicRequest:
    return TopicRequest(
        name=name,
        partitions=partitions,
        replication_factor=factor,
        assignment=tuple((number, tuple(BrokerId(id) for id in ids)) for number, ids in assignment),
        mutation=mutation,
    )


def plan(wanted: TopicRequest, picture: object = THREE, **changes: object) -> Plan | Repeated | Rejection:
    arguments: dict[str, object] = {"repeated": frozenset(), "clearing": {}, "chance": random.Random(1), **changes}
    planned = plan_topic(wanted, picture, **arguments)  # type: ignore[arg-type]
    # Whatever is planned, or refused, costs what it will be, or is refused before it is charged.
    del arguments["chance"]
    weighed = weigh_topic(wanted, picture, **arguments)  # type: ignore[arg-type]
    assert weighed == (len(planned.assignment) if isinstance(planned, Plan) else planned)
    return planned


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (request(""), errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION),
        (request("a b"), errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION),
        (request(".."), errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION),
        (request("x" * 250), errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION),
        (request("taken"), errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS),
        (request(partitions=0), errors_pb2.ERROR_CODE_INVALID_PARTITIONS),
        (request(partitions=-1), errors_pb2.ERROR_CODE_INVALID_PARTITIONS),
        (request(partitions=10_001), errors_pb2.ERROR_CODE_INVALID_PARTITIONS),
        (request(factor=4), errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR),
        (request(factor=0), errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR),
        (request(factor=-2), errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR),
        (request(mutation="m" * 65), errors_pb2.ERROR_CODE_INVALID_REQUEST),
        (request(partitions=1, assignment=((0, (1,)),)), errors_pb2.ERROR_CODE_INVALID_REQUEST),
        (request(partitions=0, factor=1, assignment=((0, (1,)),)), errors_pb2.ERROR_CODE_INVALID_REQUEST),
        (request(partitions=0, assignment=((1, (1,)),)), errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT),
        (request(partitions=0, assignment=((0, (1,)), (0, (2,)))), errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT),
        (request(partitions=0, assignment=((0, ()),)), errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT),
        (request(partitions=0, assignment=((0, (1, 1)),)), errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT),
        (request(partitions=0, assignment=((0, (9,)),)), errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT),
        (request(partitions=0, assignment=((0, (1,)), (1, (1, 2)))), errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_refused(wanted: TopicRequest, code: int) -> None:
    outcome = plan(wanted)
    assert isinstance(outcome, Rejection), outcome
    assert outcome.code == code
    assert NEXT.search(outcome.message), outcome.message


def test_no_broker_is_live() -> None:
    outcome = plan(request(), cluster())
    assert isinstance(outcome, Rejection)
    assert outcome.code == errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR
    assert outcome.message.startswith("no broker is live")


@pytest.mark.parametrize("unset", [None, -1])
def test_what_is_left_out_is_the_clusters_default_factor(unset: int | None) -> None:
    for factor in (1, 2, 3):
        picture = replace(THREE, settings=Settings(cluster={**DEFAULTS, DEFAULT_REPLICATION_FACTOR: factor}))
        outcome = plan(request(factor=unset), picture)
        assert isinstance(outcome, Plan)
        assert {len(ids) for ids in outcome.assignment.values()} == {factor}


def test_a_default_that_does_not_fit_is_refused_with_advice_and_not_made_smaller() -> None:
    outcome = plan(request(), THREE.without_broker(BrokerId(1)))
    assert isinstance(outcome, Rejection)
    assert outcome.code == errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR
    assert "default replication factor 3 does not fit 2 live brokers" in outcome.message
    assert NEXT.search(outcome.message)


def test_brokers_that_are_shutting_down_are_not_placed_on() -> None:
    outcome = plan(request(partitions=6, factor=2), THREE.with_leaving(BrokerId(2)))
    assert isinstance(outcome, Plan)
    assert {id for ids in outcome.assignment.values() for id in ids} == {1, 3}


def test_racks_are_used() -> None:
    picture = cluster(broker(1, rack="a"), broker(2, rack="a"), broker(3, rack="b"))
    outcome = plan(request(partitions=3, factor=2), picture)
    assert isinstance(outcome, Plan)
    assert all(3 in ids for ids in outcome.assignment.values())


def test_manual_assignment_is_taken_as_it_is() -> None:
    outcome = plan(request(partitions=0, assignment=((1, (3, 1)), (0, (2, 3)))))
    assert isinstance(outcome, Plan)
    assert outcome.assignment == {0: (2, 3), 1: (3, 1)}


def test_a_name_given_twice_is_refused_both_times() -> None:
    repeated = repeated_names(["a", "b", "a"])
    assert repeated == {"a"}
    outcome = plan(request("a"), repeated=repeated)
    assert isinstance(outcome, Rejection)
    assert outcome.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert NEXT.search(outcome.message), outcome.message


def test_a_name_whose_nodes_are_being_deleted_is_not_free() -> None:
    outcome = plan(request("t"), clearing={"t": TopicId("x" * 22)})
    assert isinstance(outcome, Rejection)
    assert outcome.code == errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS


def test_deletion_finds_by_name_by_id_and_by_both() -> None:
    id = THREE.names["taken"]
    for name, given_id in (("taken", ""), ("", id), ("taken", id)):
        assert find_topic(DeletionRequest(name=name, topic_id=given_id, mutation=None), THREE) == id


@pytest.mark.parametrize(
    ("name", "id", "code"),
    [
        ("", "", errors_pb2.ERROR_CODE_INVALID_REQUEST),
        ("none", "", errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION),
        ("", "n" * 22, errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID),
        ("taken", "n" * 22, errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID),
        ("other", "taken".ljust(22, "_"), errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID),
    ],
)
def test_deletion_refused(name: str, id: str, code: int) -> None:
    outcome = find_topic(DeletionRequest(name=name, topic_id=id, mutation=None), THREE)
    assert isinstance(outcome, Rejection)
    assert outcome.code == code
    assert NEXT.search(outcome.message), outcome.message


# What one node of the store cannot hold

WIDE = cluster(*(2_000_000_000 + number for number in range(18)))
WIDE_IDS = tuple(sorted(WIDE.brokers))


@pytest.mark.parametrize(
    "wanted",
    [
        request(partitions=10_000, factor=18),
        request(partitions=0, assignment=tuple((number, WIDE_IDS) for number in range(10_000))),
    ],
    ids=["placed", "by hand"],
)
def test_a_topic_that_no_node_of_the_store_can_hold_is_refused(wanted: TopicRequest) -> None:
    refused = plan(wanted, WIDE)
    assert isinstance(refused, Rejection)
    assert refused.code == errors_pb2.ERROR_CODE_INVALID_PARTITIONS
    assert "choose fewer partitions or fewer replicas" in refused.message


@pytest.mark.parametrize("mutation", [None, "\U0001f600" * 64])
@pytest.mark.parametrize(("partitions", "factor"), [(1, 18), (4_000, 18), (9_000, 6), (10_000, 3)])
def test_what_is_planned_fits_into_a_node(partitions: int, factor: int, mutation: str | None) -> None:
    planned = plan(request(partitions=partitions, factor=factor, mutation=mutation), WIDE)
    assert isinstance(planned, Plan)
    node = TopicNode(
        topic_id=TopicId("t" * 22),
        partitions=planned.assignment,
        creating=frozenset(planned.assignment),
        mutation=planned.mutation,
    )
    assert len(node.encode()) <= NODE_BYTES_MAX


def test_a_deletion_with_an_endless_mutation_id_is_refused() -> None:
    refused = find_topic(DeletionRequest(name="taken", topic_id="", mutation="m" * 65), THREE)
    assert isinstance(refused, Rejection)
    assert refused.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
