"""Which process a certificate stands for, and what each may call where processes are told apart."""

from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import descriptor_pool
from regnum.election.v1 import controller_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.servicers.callers import client_of
from regnum_local.plan import ROLE_RULES
from regnum_model.principals import Principal
from regnum_service.access.authentication import Authentication
from regnum_service.access.authorization import Denials, EverybodyMay
from regnum_service.access.guards.guard import Guard
from regnum_service.access.guards.rule import OnCluster
from regnum_service.access.guards.rules import RULES
from regnum_service.access.identity import CLIENT, INTERNAL, Caller, ProcessRole, calling
from regnum_service.access.principal_mapping import MappingRules
from regnum_service.access.process_roles import RoleRules
from regnum_service.errors import RegnumError
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.recorded_rights import RecordedRights

REFUSED = errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED
MANIFESTS = "RULE:^CN=regnum-(broker|election|metadata|quota)$/$1/"
BY_BROKERS = ("Envelope", "CreateOffsetsTopic", "ControlledShutdown", "AllocateProducerIds", "BrokerLifeline")
FETCHES = ("FetchReplica", "ReplicationService/OffsetForLeaderEpoch")
ORDERS = ("LeaderAndIsr", "StopReplica", "GetReplicaLogInfo", "DescribeBrokerSettings")
BY_ELECTION = ("FollowState", "FollowEvents", "ProbeBrokers", "PublishChanges", "DescribeLag", "Admit", *ORDERS)


def internal(role: ProcessRole, name: str = "CN=some-1") -> Caller:
    return Caller(principal=Principal("regnum"), host="10.0.0.3", listener=INTERNAL, role=role, subject=name)


@pytest.mark.parametrize(
    ("rules", "subject", "role"),
    [
        (MANIFESTS, "CN=regnum-broker", ProcessRole.BROKER),
        (MANIFESTS, "CN=regnum-quota", ProcessRole.QUOTA),
        (MANIFESTS, "CN=regnum-brokers", ProcessRole.NONE),
        (MANIFESTS, "CN=regnum-broker,O=Elsewhere", ProcessRole.NONE),
        (ROLE_RULES, "CN=broker-12,OU=Processes,O=Regnum", ProcessRole.BROKER),
        (ROLE_RULES, "CN=election-1,OU=Processes,O=Regnum", ProcessRole.ELECTION),
        (ROLE_RULES, "CN=metadata-1,OU=Processes,O=Regnum", ProcessRole.METADATA),
        (ROLE_RULES, "CN=broker-1,OU=Clients,O=Regnum", ProcessRole.NONE),
        ("DEFAULT", "broker", ProcessRole.BROKER),
        ("DEFAULT", "unmapped", ProcessRole.NONE),
        ("DEFAULT", "no process", ProcessRole.NONE),
        ("RULE:^CN=(.*)$/$1/L", "CN=BROKER", ProcessRole.BROKER),
        ("RULE:^CN=x$//", "CN=x", ProcessRole.NONE),
    ],
)
def test_a_rule_makes_a_role_of_a_name_and_whatever_else_it_makes_is_none(
    rules: str, subject: str, role: ProcessRole
) -> None:
    assert RoleRules(MappingRules.parse(rules))(subject) is role


def rule_of(name: str) -> OnCluster:
    (found,) = (rule for method, rule in RULES.items() if method.endswith(name) and method.startswith(INTERNALS))
    assert isinstance(found, OnCluster)
    return found


INTERNALS = ("regnum.election.", "regnum.propagation.", "regnum.quota.", "regnum.replication.")


def test_each_call_between_processes_is_made_by_processes_of_one_role() -> None:
    for role, names in (
        (ProcessRole.BROKER, (*BY_BROKERS, *FETCHES)),
        (ProcessRole.ELECTION, (*BY_ELECTION, "DescribeBuckets")),
        (ProcessRole.METADATA, ("UpdateMetadata",)),
    ):
        for name in names:
            assert rule_of(f"/{name}" if "/" not in name else name).roles == {role}, name
    for method, rule in RULES.items():
        asked = rule.roles if isinstance(rule, OnCluster) else None
        assert (asked is not None) == method.startswith(INTERNALS), method


async def answered(guard: Guard, method: str, who: Caller) -> str:
    async def handler(_request: Any, _context: Any) -> str:
        return "done"

    service = "regnum.election.v1.ControllerService"
    names = [one.name for one in descriptor_pool.Default().FindServiceByName(service).methods]
    guarded: Any = guard.before(service, SimpleNamespace(**dict.fromkeys(names, handler)))
    with calling(who):
        try:
            answer: str = await getattr(guarded, method)(controller_pb2.EnvelopeRequest(), None)
        except RegnumError as error:
            return f"{error.message} ({error.code})"
    return answer


@pytest.mark.parametrize("role", [ProcessRole.METADATA, ProcessRole.ELECTION, ProcessRole.QUOTA, ProcessRole.NONE])
@pytest.mark.parametrize("ruled", [True, False], ids=["with rules", "without access control"])
async def test_only_a_broker_speaks_for_others_and_a_refusal_is_said_counted_and_written_down(
    role: ProcessRole, *, ruled: bool
) -> None:
    metrics, lines = Metrics(), []

    class Audit:
        def denied(self, who: Caller, operation: Any, type: Any, name: str, *, rule: str, call: str) -> None:
            lines.append(f"{who.subject} {call} {operation.name} {type.name} {name}: {rule}")

    authorizer = (
        RecordedRights(lambda _: True) if ruled else EverybodyMay(Denials(Audit(), metrics))  # type: ignore[arg-type]
    )
    guard = Guard(authorizer, tells_processes_apart=True)
    said = await answered(guard, "Envelope", internal(role))
    stands = f"the certificate of 'CN=some-1' stands for {role.value} by process-role-mapping-rules"
    assert said == f"only broker processes may call ControllerService/Envelope, and {stands} ({REFUSED})"
    if isinstance(authorizer, RecordedRights):
        assert authorizer.denied == [f"CN=some-1 {_ACTION}: denied: only broker processes may; {stands}"]
    else:
        refused = f"denied: only broker processes may; {stands}"
        assert lines == [f"CN=some-1 ControllerService/Envelope CLUSTER_ACTION CLUSTER kafka-cluster: {refused}"]
        assert [reading.numbers for reading in metrics.read() if reading.instrument is instruments.ACL_DENIALS] == [
            (((), 1),)
        ]
    assert await answered(guard, "Envelope", internal(ProcessRole.BROKER)) == "done"


_ACTION = "CLUSTER_ACTION on CLUSTER kafka-cluster"


async def test_a_role_is_no_right_and_without_rules_of_roles_a_right_is_enough() -> None:
    nothing = Guard(RecordedRights(), tells_processes_apart=True)
    assert "CLUSTER_ACTION" in await answered(nothing, "Envelope", internal(ProcessRole.BROKER))
    everything = Guard(RecordedRights(lambda _: True))
    assert await answered(everything, "Envelope", internal(ProcessRole.UNMAPPED)) == "done"


class Call:
    def peer(self) -> str:
        return "ipv4:10.0.0.3:5"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_pem_cert": [b"c"], "x509_subject": [b"CN=broker-1,OU=Processes,O=Regnum"]}


def test_a_caller_has_the_role_and_the_name_of_its_certificate_and_its_client_names_who_passed_it_on() -> None:
    rules = RoleRules(MappingRules.parse(ROLE_RULES))
    broker = Authentication(INTERNAL, encrypted=True, role_of=rules).caller_of(Call())
    assert (broker.role, broker.subject) == (ProcessRole.BROKER, "CN=broker-1,OU=Processes,O=Regnum")
    assert Authentication(CLIENT, encrypted=True).caller_of(Call()).role is ProcessRole.UNMAPPED
    with calling(broker):
        client = client_of(controller_pb2.OriginalCaller(principal_type="User", principal_name="ann"))
    assert client.via == "CN=broker-1,OU=Processes,O=Regnum at 10.0.0.3"
    assert client.role is ProcessRole.UNMAPPED
    assert client.subject == ""
