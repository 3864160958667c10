"""What each administrative call names, and what became of it, in the words of the audit log. Pure.

One table of all calls that change something. What is in neither ``CHANGES`` nor ``SHOWS`` is audited by its name and
its whole outcome, so that a call that somebody forgot here is in the log all the same.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.message import Message
from regnum.admin.v1 import acls_pb2, admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_service.access.audit import DONE, Mutated
from regnum_service.access.auditing.lines import joined, kept
from regnum_service.errors import reason_of

Request = Any
"""A request of AdminService."""
Response = Any
"""And its answer."""

NAME_SHOWN: Final = 60
"""Characters of a setting's name or value that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedCall:
    """How one call is read."""

    named: Callable[[Request], Iterable[Mutated]]
    """What it is to change, each as if it were done."""
    answered: Callable[[Request, Response], Iterable[Mutated]] | None = None
    """What became of it; None: all that it names is done when it is answered."""
    changes: Callable[[Request], bool] = lambda request: not getattr(request, "validate_only", False)
    """Whether it is to change anything."""


def outcomes(name: str, request: Request, response: Message | None) -> Iterator[Mutated]:
    """What became of everything that a call named. ``response`` None: as if all of it were done."""
    call = CHANGES.get(name)
    if call is None:
        yield Mutated(resource="cluster")
    elif response is None or call.answered is None:
        yield from call.named(request)
    else:
        yield from call.answered(request, response)


def is_change(name: str, request: Request) -> bool:
    """Whether a call is to change anything."""
    call = CHANGES.get(name)
    return call.changes(request) if call is not None else name not in SHOWS


def _topic(name: str, id: str = "", detail: str = "") -> Mutated:
    return Mutated(resource=f"topic:{name or id}", detail=detail)


def _result(code: int) -> str:
    # The type of the field is an integer to those who read any message.
    return DONE if code == errors_pb2.ERROR_CODE_NONE else reason_of(errors_pb2.ErrorCode.ValueType(code))


def _in_order(named: Callable[[Request], Iterable[Mutated]]) -> Callable[[Request, Response], Iterable[Mutated]]:
    """Answers whose results stand in the order of the request."""

    def answered(request: Request, response: Response) -> Iterator[Mutated]:
        for item, result in zip(named(request), response.results, strict=False):
            yield replace(item, result=_result(result.error_code)) if result.error_code else item

    return answered


def _new_topics(request: Request) -> Iterator[Mutated]:
    for topic in request.topics:
        partitions = topic.partitions or len(topic.assignment)
        settings = "".join(f",{_setting(config.name, config.value)}" for config in topic.configs[:20])
        yield _topic(topic.name, detail=f"partitions={partitions}{settings}")


def _deleted_topics(request: Request) -> Iterator[Mutated]:
    for topic in request.topics:
        yield _topic(topic.name, topic.topic_id)


def _more_partitions(request: Request) -> Iterator[Mutated]:
    for topic in request.topics:
        yield _topic(topic.name, detail=f"partitions={topic.count}")


def _fewer_partitions(request: Request) -> Iterator[Mutated]:
    for topic in request.topics:
        yield _topic(topic.name, topic.topic_id, detail=f"partitions {joined(topic.partitions)}")


def _subject(kind: str, subject: Any) -> str:
    return f"{kind}:{'<default>' if subject.default_for_all else subject.name}"


def _entity(entity: Any) -> str:
    parts = [_subject("user", entity.user)] if entity.HasField("user") else []
    parts += [_subject("client-id", entity.client_id)] if entity.HasField("client_id") else []
    return ",".join(parts) or "cluster"


def _quotas(request: Request) -> Iterator[Mutated]:
    for alteration in request.alterations:
        wanted = [
            f"{one.key[:NAME_SHOWN]} removed" if one.remove else _setting(one.key, f"{one.value:g}")
            for one in alteration.operations[:20]
        ]
        yield Mutated(resource=_entity(alteration.entity), detail=joined(wanted))


def _config_resource(resource: Any) -> str:
    known = resource.type in admin_pb2.ConfigResourceType.values()
    kind = admin_pb2.ConfigResourceType.Name(resource.type) if known else str(resource.type)
    kind = kind.removeprefix("CONFIG_RESOURCE_TYPE_").lower()
    return f"{kind}:{resource.name}" if resource.name else kind


def _setting(name: str, value: str) -> str:
    return f"{name[:NAME_SHOWN]}={value[:NAME_SHOWN]}"


def _configs(request: Request) -> Iterator[Mutated]:
    for alteration in request.alterations:
        wanted = [
            _setting(one.name, one.value)
            if one.op == admin_pb2.ALTER_CONFIG_OP_SET
            else f"{one.name[:NAME_SHOWN]} removed"
            for one in alteration.configs[:20]
        ]
        yield Mutated(resource=_config_resource(alteration.resource), detail=joined(wanted))


def _replaced_configs(request: Request) -> Iterator[Mutated]:
    for replacement in request.replacements:
        wanted = [_setting(one.name, one.value) for one in replacement.configs[:20]]
        resource = _config_resource(replacement.resource)
        yield Mutated(resource=resource, detail=f"replaced by {joined(wanted) or 'nothing'}")


def _of_partitions(topic: str, partitions: Iterable[int], code: int) -> Mutated:
    numbers = list(partitions)
    return Mutated(resource=f"topic:{topic}", result=_result(code), detail=f"partitions {joined(numbers)}")


def _moved(request: Request) -> Iterator[Mutated]:
    for topic, some in groupby(request.partitions, key=lambda one: one.topic):
        yield _of_partitions(topic, (one.partition for one in some), 0)


def _by_topic(_request: Request, response: Response) -> Iterator[Mutated]:
    for (topic, code), some in groupby(response.results, key=lambda one: (one.topic, one.error_code)):
        yield _of_partitions(topic, (one.partition for one in some), code)


def _elected(request: Request) -> Iterator[Mutated]:
    if not request.topics:
        yield Mutated(resource="cluster", detail="all partitions")
    for one in request.topics:
        yield _of_partitions(one.topic, one.partitions, 0)


def _of_one_topic(request: Request) -> Iterator[Mutated]:
    yield _of_partitions(request.topic, request.partitions, 0)


def _answered_of_one_topic(request: Request, response: Response) -> Iterator[Mutated]:
    for code, some in groupby(response.results, key=lambda one: one.error_code):
        yield _of_partitions(request.topic, (one.partition for one in some), code)


def _broker(detail: Callable[[Request], str]) -> Callable[[Request], Iterator[Mutated]]:
    def named(request: Request) -> Iterator[Mutated]:
        yield Mutated(resource=f"broker:{request.broker_id}", detail=detail(request))

    return named


def _reign(request: Request) -> Iterator[Mutated]:
    yield Mutated(resource="cluster", detail=f"controller epoch {request.controller_epoch}")


def _new_token(request: Request) -> Iterator[Mutated]:
    owner = kept(request.owner) or "the caller"
    yield Mutated(resource="delegation_token:", detail=f"owner {owner}, renewers {joined(request.renewers)}")


def _made_token(request: Request, response: Response) -> Iterator[Mutated]:
    token = response.token
    detail = f"owner {token.owner}, renewers {joined(request.renewers)}, until {token.max_time.ToJsonString()}"
    yield Mutated(resource=f"delegation_token:{token.token_id}", detail=detail)


def _token(what: str) -> Callable[[Request], Iterator[Mutated]]:
    def named(request: Request) -> Iterator[Mutated]:
        yield Mutated(resource=f"delegation_token:{request.token_id}", detail=what)

    return named


def _token_until(what: str) -> Callable[[Request, Response], Iterator[Mutated]]:
    def answered(request: Request, response: Response) -> Iterator[Mutated]:
        until = response.expiry_time.ToJsonString()
        yield Mutated(resource=f"delegation_token:{request.token_id}", detail=f"{what}: {until}")

    return answered


def _rule(rule: Any) -> Mutated:
    type = _word(acls_pb2.AclResourceType, "ACL_RESOURCE_TYPE_", rule.resource_type).lower()
    pattern = _word(acls_pb2.AclPatternType, "ACL_PATTERN_TYPE_", rule.pattern_type)
    operation = _word(acls_pb2.AclOperation, "ACL_OPERATION_", rule.operation)
    permission = _word(acls_pb2.AclPermission, "ACL_PERMISSION_", rule.permission)
    said = f"{permission} {operation} to {rule.principal} from {rule.host or '*'}, {pattern}"
    return Mutated(resource=f"acl:{type}:{rule.resource_name}", detail=said)


def _word(kind: Any, prefix: str, number: int) -> str:
    return str(kind.Name(number)).removeprefix(prefix) if number in kind.values() else str(number)


def _new_rules(request: Request) -> Iterator[Mutated]:
    yield from map(_rule, request.creations)


def _old_rules(request: Request) -> Iterator[Mutated]:
    yield from map(_rule, request.filters)


def _removed_rules(request: Request, response: Response) -> Iterator[Mutated]:
    for wanted, result in zip(request.filters, response.results, strict=False):
        yield from map(_rule, result.deleted)
        if result.error_code or not result.deleted:
            yield replace(_rule(wanted), result=_result(result.error_code))


def _each(named: Callable[[Request], Iterable[Mutated]]) -> AuditedCall:
    return AuditedCall(named=named, answered=_in_order(named))


CHANGES: Final[Mapping[str, AuditedCall]] = MappingProxyType(
    {
        "CreateTopics": _each(_new_topics),
        "DeleteTopics": _each(_deleted_topics),
        "CreatePartitions": _each(_more_partitions),
        "DeletePartitions": _each(_fewer_partitions),
        "AlterClientQuotas": _each(_quotas),
        "AlterConfigs": _each(_replaced_configs),
        "IncrementalAlterConfigs": _each(_configs),
        "CreateAcls": _each(_new_rules),
        "DeleteAcls": AuditedCall(named=_old_rules, answered=_removed_rules),
        "AlterPartitionReassignments": AuditedCall(named=_moved, answered=_by_topic),
        "ElectLeaders": AuditedCall(named=_elected, answered=_by_topic),
        "RecoverPartitions": AuditedCall(
            named=_of_one_topic, answered=_answered_of_one_topic, changes=lambda request: bool(request.accept_loss)
        ),
        "GiveUpPartitions": AuditedCall(
            named=_of_one_topic, answered=_answered_of_one_topic, changes=lambda request: bool(request.accept_loss)
        ),
        "ForgetBroker": AuditedCall(named=_broker(lambda _: "forgotten")),
        "DrainBroker": AuditedCall(named=_broker(lambda request: "no longer drained" if request.undo else "drained")),
        "ResignController": AuditedCall(named=_reign),
        "CreateDelegationToken": AuditedCall(named=_new_token, answered=_made_token),
        "RenewDelegationToken": AuditedCall(named=_token("renewed"), answered=_token_until("renewed")),
        "ExpireDelegationToken": AuditedCall(named=_token("expires"), answered=_token_until("expires")),
    }
)
"""Calls that change something."""

SHOWS: Final = frozenset(
    {
        "DescribeClientQuotas",
        "DescribeQuotaUsage",
        "DescribeConfigs",
        "DescribeAcls",
        "CheckAcls",
        "DescribeHealth",
        "DescribePropagation",
        "DescribeBrokers",
        "DescribeDelegationToken",
        "ListPartitionReassignments",
        "ListOfflinePartitions",
    }
)
"""Calls that change nothing."""
