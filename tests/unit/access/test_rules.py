"""Every method of every service has a rule, and nothing internal is open to clients."""

import importlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import regnum
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import MethodDescriptor
from regnum.types.v1 import errors_pb2
from regnum_model.access import Operation, ResourceType
from regnum_model.principals import Principal
from regnum_service.access.authorization import EverybodyMay
from regnum_service.access.guards.guard import Guard, MissingRuleError
from regnum_service.access.guards.rule import InHandler, OnCluster, Open
from regnum_service.access.guards.rules import CLUSTER_ACTION, RULES
from regnum_service.access.identity import CLIENT, Caller, calling
from regnum_service.errors import RegnumError
from regnum_testing.recorded_rights import RecordedRights, only

INTERNAL_PACKAGES = ("regnum.election.", "regnum.propagation.", "regnum.quota.", "regnum.replication.")
PLAIN = Caller(principal=Principal("CN=app"), host="10.0.0.9", listener=CLIENT)


def methods() -> Iterator[MethodDescriptor]:
    """All that the protos declare: the files themselves are gone through, not a list of them."""
    for root in map(Path, regnum.__path__):
        for file in sorted(root.rglob("*_pb2.py")):
            module = ".".join(("regnum", *file.relative_to(root).with_suffix("").parts))
            for service in importlib.import_module(module).DESCRIPTOR.services_by_name.values():
                yield from service.methods


METHODS = {f"{one.containing_service.full_name}/{one.name}": one for one in methods()}
INTERNAL = sorted(name for name in METHODS if name.startswith(INTERNAL_PACKAGES))


def test_every_method_of_the_protos_has_a_rule_and_every_rule_a_method() -> None:
    assert len(METHODS) > 50
    assert METHODS.keys() - RULES.keys() == set(), "say in access/guards/rules which right these need"
    assert RULES.keys() - METHODS.keys() == set()


def test_a_service_with_a_method_that_has_no_rule_is_not_served_even_without_access_control() -> None:
    rules = {name: rule for name, rule in RULES.items() if not name.endswith("/Admit")}
    for authorizer in (EverybodyMay(), RecordedRights()):
        with pytest.raises(MissingRuleError, match=r"QuotaService/Admit has no rule"):
            Guard(authorizer, rules=rules).before("regnum.quota.v1.QuotaService", object())


def test_nothing_internal_is_open_and_no_rule_but_the_cluster_action_is_enough() -> None:
    assert len(INTERNAL) >= 18
    for name in INTERNAL:
        rule = RULES[name]
        assert isinstance(rule, OnCluster), name
        assert rule.right == CLUSTER_ACTION, name


def test_what_anybody_may_call_is_written_out() -> None:
    assert [name for name, rule in RULES.items() if isinstance(rule, Open)] == []
    assert sorted(name.rpartition(".")[2] for name, rule in RULES.items() if isinstance(rule, InHandler)) == [
        "AdminService/CreateDelegationToken",
        "AdminService/DeleteTopics",
        "AdminService/DescribeDelegationToken",
        "AdminService/ExpireDelegationToken",
        "AdminService/RenewDelegationToken",
        "LogService/Produce",
        "LogService/ProduceStream",
        "MetadataService/DescribeTopics",
        "MetadataService/GetMetadata",
    ]


class Untouchable:
    """A servicer of which nothing may be reached."""

    def __getattr__(self, name: str) -> Any:
        async def reached(*_: Any) -> Any:
            raise AssertionError(f"{name} was reached")

        async def reached_stream(requests: Any, context: Any) -> AsyncIterator[Any]:
            async for _ in requests if hasattr(requests, "__aiter__") else ():
                pass
            raise AssertionError(f"{name} was reached")
            yield

        return reached_stream if self.streaming else reached

    streaming = False


async def call(authorizer: Any, name: str, servicer: Any, request: Any | None = None) -> list[Any]:
    """What the guarded method answers to one empty request, as that caller."""
    method = METHODS[name]
    guarded: Any = Guard(authorizer).before(method.containing_service.full_name, servicer)
    message = message_factory.GetMessageClass(method.input_type)() if request is None else request

    async def requests() -> AsyncIterator[Any]:
        yield message

    behaviour = getattr(guarded, method.name)
    with calling(PLAIN):
        begun = behaviour(requests() if method.client_streaming else message, None)
        if not method.server_streaming:
            return [await begun]
        return [answer async for answer in begun]


@pytest.mark.parametrize("name", INTERNAL)
async def test_an_internal_call_is_refused_for_a_plain_client(name: str) -> None:
    servicer = Untouchable()
    servicer.streaming = METHODS[name].server_streaming
    # It may do everything that clients can be allowed, and has all rights to every topic and group.
    rights = RecordedRights(lambda asked: asked.operation is not Operation.CLUSTER_ACTION)
    with pytest.raises(RegnumError) as refused:
        await call(rights, name, servicer)
    assert refused.value.code == errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED
    assert "User:CN=app may not CLUSTER_ACTION the cluster" in refused.value.message
    assert rights.denied_loudly == ["CLUSTER_ACTION CLUSTER kafka-cluster"]
    assert {one.principal for one in rights.callers} == {PLAIN.principal}


CLUSTER_RULES = sorted(
    name for name, rule in RULES.items() if isinstance(rule, OnCluster) and rule.right != CLUSTER_ACTION
)
EXPECTED = {
    "AlterClientQuotas": "ALTER_CONFIGS",
    "DescribeClientQuotas": "DESCRIBE_CONFIGS",
    "DescribeQuotaUsage": "DESCRIBE_CONFIGS",
    "RecoverPartitions": "ALTER",
    "ForgetBroker": "ALTER",
    "AlterPartitionReassignments": "ALTER",
    "ElectLeaders": "ALTER",
    "GiveUpPartitions": "ALTER",
    "DrainBroker": "ALTER",
    "ResignController": "ALTER",
    "CreateAcls": "ALTER",
    "DeleteAcls": "ALTER",
    "DescribeAcls": "DESCRIBE",
    "CheckAcls": "DESCRIBE",
    "ListPartitionReassignments": "DESCRIBE",
    "DescribeHealth": "DESCRIBE",
    "DescribePropagation": "DESCRIBE",
    "ListOfflinePartitions": "DESCRIBE",
    "DescribeBrokers": "DESCRIBE",
    "DescribeEvents": "DESCRIBE",
    "DescribeFigures": "DESCRIBE",
    "DescribeStrays": "DESCRIBE",
    "DescribeClientUsage": "DESCRIBE",
    "DescribeImage": "DESCRIBE",
}


@pytest.mark.parametrize("name", CLUSTER_RULES)
async def test_a_call_about_the_cluster_needs_exactly_its_right(name: str) -> None:
    method = METHODS[name]
    operation = EXPECTED[method.name]
    answer = message_factory.GetMessageClass(method.output_type)()

    async def answered(_request: Any, _context: Any) -> Any:
        return answer

    servicer = SimpleNamespace(
        **{one.name: answered if one is method else None for one in method.containing_service.methods}
    )
    with pytest.raises(RegnumError) as refused:
        await call(RecordedRights(lambda asked: asked.operation.name != operation), name, Untouchable())
    assert refused.value.code == errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED
    rights = RecordedRights(only(f"{operation} CLUSTER kafka-cluster"))
    assert await call(rights, name, servicer) == [answer]
    assert {(one.operation.name, one.type) for one in rights.asked} == {(operation, ResourceType.CLUSTER)}


async def test_a_stream_between_processes_ends_when_its_right_is_gone() -> None:
    rights = RecordedRights(only("CLUSTER_ACTION CLUSTER kafka-cluster"))

    async def follow(_request: Any, _context: Any) -> AsyncIterator[str]:
        yield "first"
        rights.held = lambda _: False
        yield "second"

    methods_there = METHODS["regnum.election.v1.ControllerService/FollowState"].containing_service.methods
    servicer = SimpleNamespace(**{one.name: follow for one in methods_there})
    answers: list[str] = []
    guarded: Any = Guard(rights).before("regnum.election.v1.ControllerService", servicer)

    async def read() -> None:
        async for answer in guarded.FollowState(None, None):
            answers.append(answer)  # noqa: PERF401 - what came before the end counts

    with calling(PLAIN), pytest.raises(RegnumError, match="CLUSTER_ACTION"):
        await read()
    assert answers == ["first"]


def test_the_pool_knows_the_services_by_their_registered_names() -> None:
    for name in {one.rpartition("/")[0] for one in METHODS}:
        assert descriptor_pool.Default().FindServiceByName(name).full_name == name
