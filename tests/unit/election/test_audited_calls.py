"""Every change of AdminService is written down once, under the name of whoever asked, with what became of it."""

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any

import pytest
from google.protobuf import message_factory
from google.protobuf.message import Message
from regnum.admin.v1 import admin_pb2, admin_pb2_grpc
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_election.auditing.changes import CHANGES, SHOWS, outcomes
from regnum_election.auditing.servicer import AuditedServicer
from regnum_model.principals import Principal
from regnum_service.access.audit import Mutated
from regnum_service.access.identity import Caller, calling
from regnum_service.errors import RegnumError

METHODS = {method.name: method for method in admin_pb2.DESCRIPTOR.services_by_name["AdminService"].methods}
ALICE = Caller(principal=Principal("alice", token_authenticated=True), host="10.0.0.7", forwarded=True)
HEADER = types_pb2.RequestHeader(client_id="cli")
Line = tuple[str, str, str, str, str]
"""Principal, client id, call, resource, result."""


class Lines:
    """An audit log that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.details: list[str] = []

    def denied(self, *what: object, **how: object) -> None:
        raise AssertionError("who denies is the authorizer")

    def mutated(self, who: Caller, call: str, items: Any, *, client_id: str = "") -> None:
        self.lines += [(str(who.principal), client_id, call, item.resource, item.result) for item in items]
        self.details += [item.detail for item in items]


class Answers:
    """A servicer that answers everything with one answer, or raises."""

    def __init__(self, answer: Message | BaseException) -> None:
        self.answer = answer

    def __getattr__(self, name: str) -> Callable[[Any, Any], Any]:
        async def call(request: Any, context: Any) -> Any:
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer

        return call


async def audited(name: str, request: Message, answer: Message | BaseException) -> Lines:
    lines = Lines()
    with calling(ALICE):
        await getattr(AuditedServicer(Answers(answer), lines), name)(request, None)
    return lines


def test_every_call_of_the_service_either_changes_something_or_only_shows_it() -> None:
    assert set(METHODS) == CHANGES.keys() | SHOWS, "a new call needs a row in auditing/changes.py"
    assert not CHANGES.keys() & SHOWS


def test_the_generated_registration_finds_every_call() -> None:
    registry = Registry()
    admin_pb2_grpc.add_AdminServiceServicer_to_server(AuditedServicer(Answers(ValueError()), Lines()), registry)
    assert registry.methods == set(METHODS)


class Registry:
    """What the generated code registers with."""

    methods: AbstractSet[str] = frozenset()

    def add_generic_rpc_handlers(self, handlers: object) -> None: ...

    def add_registered_method_handlers(self, name: str, handlers: dict[str, object]) -> None:
        self.methods = set(handlers)


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_each_change_names_what_it_changes_also_when_it_failed_as_a_whole(name: str) -> None:
    request = message_factory.GetMessageClass(METHODS[name].input_type)()
    fill(request)
    found = list(outcomes(name, request, None))
    assert found
    assert all(":" in item.resource or item.resource == "cluster" for item in found)


def fill(message: Any) -> None:
    """One of everything, with numbers that no enum has."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None:
            fill(getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name))
        elif not field.is_repeated:
            kinds = {field.CPPTYPE_STRING: "x", field.CPPTYPE_BOOL: True, field.CPPTYPE_DOUBLE: 1.5}
            setattr(message, field.name, kinds.get(field.cpp_type, 77))


async def test_each_item_has_its_own_line_with_the_caller_of_the_call_and_its_outcome() -> None:
    request = admin_pb2.CreateTopicsRequest(
        header=HEADER,
        topics=[admin_pb2.NewTopic(name="a", partitions=3), admin_pb2.NewTopic(name="b\n", partitions=1)],
    )
    answer = admin_pb2.CreateTopicsResponse(
        results=[
            admin_pb2.CreateTopicResult(name="a"),
            admin_pb2.CreateTopicResult(name="b\n", error_code=errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION),
        ]
    )
    written = await audited("CreateTopics", request, answer)
    call = "AdminService/CreateTopics"
    assert written.lines == [
        ("User:alice", "cli", call, "topic:a", "NONE"),
        ("User:alice", "cli", call, "topic:b\n", "INVALID_TOPIC_EXCEPTION"),
    ]
    assert written.details == ["partitions=3", "partitions=1"]


async def test_partitions_of_one_topic_with_one_outcome_are_one_line() -> None:
    request = admin_pb2.AlterPartitionReassignmentsRequest(header=HEADER)
    answer = admin_pb2.AlterPartitionReassignmentsResponse(
        results=[
            admin_pb2.ReassignedPartition(topic="a", partition=0),
            admin_pb2.ReassignedPartition(topic="a", partition=1),
            admin_pb2.ReassignedPartition(topic="a", partition=9, error_code=errors_pb2.ERROR_CODE_INVALID_REQUEST),
        ]
    )
    written = await audited("AlterPartitionReassignments", request, answer)
    assert [(line[3], line[4]) for line in written.lines] == [("topic:a", "NONE"), ("topic:a", "INVALID_REQUEST")]
    assert written.details == ["partitions 0,1", "partitions 9"]


async def test_what_only_looks_or_checks_is_not_written_down() -> None:
    check = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="a")], validate_only=True)
    assert (await audited("CreateTopics", check, admin_pb2.CreateTopicsResponse())).lines == []
    look = admin_pb2.RecoverPartitionsRequest(topic="a", partitions=[1])
    assert (await audited("RecoverPartitions", look, admin_pb2.RecoverPartitionsResponse())).lines == []
    assert (
        await audited("DescribeHealth", admin_pb2.DescribeHealthRequest(), admin_pb2.DescribeHealthResponse())
    ).lines == []


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "x"), "INVALID_REQUEST"),
        (TimeoutError(), "REQUEST_TIMED_OUT"),
        (asyncio.CancelledError(), "CANCELLED"),
    ],
)
async def test_a_call_that_fails_as_a_whole_names_all_that_it_was_to_change(error: BaseException, result: str) -> None:
    lines = Lines()
    request = admin_pb2.DeleteTopicsRequest(
        header=HEADER, topics=[admin_pb2.DeletableTopic(name="a"), admin_pb2.DeletableTopic(topic_id="id")]
    )
    with calling(ALICE), pytest.raises(type(error)):
        await AuditedServicer(Answers(error), lines).DeleteTopics(request, None)
    assert [(line[3], line[4]) for line in lines.lines] == [("topic:a", result), ("topic:id", result)]


@pytest.mark.parametrize(
    "code", [errors_pb2.ERROR_CODE_NOT_CONTROLLER, errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED]
)
async def test_what_another_one_answers_and_what_the_authorizer_writes_down_is_not_written_twice(code: Any) -> None:
    lines = Lines()
    with pytest.raises(RegnumError):
        await AuditedServicer(Answers(RegnumError(code, "x")), lines).ResignController(
            admin_pb2.ResignControllerRequest(), None
        )
    assert lines.lines == []


async def test_a_topic_that_was_denied_leaves_its_line_to_the_authorizer_and_its_neighbours_have_theirs() -> None:
    request = admin_pb2.DeleteTopicsRequest(
        topics=[admin_pb2.DeletableTopic(name="mine"), admin_pb2.DeletableTopic(name="theirs")]
    )
    answer = admin_pb2.DeleteTopicsResponse(
        results=[
            admin_pb2.DeleteTopicResult(),
            admin_pb2.DeleteTopicResult(error_code=errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED),
        ]
    )
    assert [line[3] for line in (await audited("DeleteTopics", request, answer)).lines] == ["topic:mine"]


async def test_a_call_that_the_table_forgot_is_written_down_by_its_name() -> None:
    lines = Lines()
    request = admin_pb2.ResignControllerRequest(header=HEADER)
    await AuditedServicer(Answers(request), lines).SomethingNew(request, None)
    assert lines.lines == [("User:ANONYMOUS", "cli", "AdminService/SomethingNew", "cluster", "NONE")]


async def test_ten_thousand_items_are_put_into_words_in_turns() -> None:
    request = admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.DeletableTopic(name=str(n)) for n in range(10_000)])
    answer = admin_pb2.DeleteTopicsResponse(results=[admin_pb2.DeleteTopicResult() for _ in range(10_000)])
    parts: list[int] = []

    class Sizes(Lines):
        def mutated(self, who: Caller, call: str, items: list[Mutated], *, client_id: str = "") -> None:
            parts.append(len(items))

    await AuditedServicer(Answers(answer), Sizes()).DeleteTopics(request, None)
    assert parts == [2_000] * 5
