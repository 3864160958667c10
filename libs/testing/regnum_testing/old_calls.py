"""A call of every mutation that brokers pass on, each about something of its own, and whether it did what it says."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf import json_format, message_factory
from google.protobuf.message import Message
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.api_versions import ADMIN_SERVICE, FORWARDED

METHODS: Final = {method.name: method for method in admin_pb2.DESCRIPTOR.services_by_name["AdminService"].methods}
"""Every call of AdminService, by name."""

MUTATIONS: Final = sorted(name for name in FORWARDED.keys() & METHODS.keys() if FORWARDED[name].changes)
"""Those that change something and that brokers pass on; of the seeds' list, the ones that there are."""

SETTING: Final = "retention.ms"


def _topic(name: str) -> admin_pb2.ConfigResource:
    return admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, name=name)


def _create(tag: str) -> Message:
    return admin_pb2.CreateTopicsRequest(
        topics=[admin_pb2.NewTopic(name=f"made-{tag}", partitions=1, replication_factor=1)]
    )


def _delete(tag: str) -> Message:
    return admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.DeletableTopic(name=f"doomed-{tag}")])


def _grow(tag: str) -> Message:
    return admin_pb2.CreatePartitionsRequest(topics=[admin_pb2.NewPartitions(name=f"grown-{tag}", count=3)])


def _replace(tag: str) -> Message:
    return admin_pb2.AlterConfigsRequest(
        replacements=[
            admin_pb2.ConfigReplacement(
                resource=_topic(f"replaced-{tag}"), configs=[admin_pb2.ConfigValue(name=SETTING, value="60001")]
            )
        ]
    )


def set_to(topic: str, value: str) -> admin_pb2.IncrementalAlterConfigsRequest:
    """Give a topic's setting a value."""
    return admin_pb2.IncrementalAlterConfigsRequest(
        alterations=[
            admin_pb2.ConfigAlteration(
                resource=_topic(topic),
                configs=[admin_pb2.AlterableConfig(name=SETTING, op=admin_pb2.ALTER_CONFIG_OP_SET, value=value)],
            )
        ]
    )


def _alter(tag: str) -> Message:
    return set_to(f"altered-{tag}", "60001")


def _quota(tag: str) -> Message:
    return admin_pb2.AlterClientQuotasRequest(
        alterations=[
            admin_pb2.QuotaAlteration(
                entity=admin_pb2.QuotaEntity(user=admin_pb2.QuotaSubject(name=f"user-{tag}")),
                operations=[admin_pb2.QuotaOperation(key="producer_byte_rate", value=1e6)],
            )
        ]
    )


SAMPLES: Final[Mapping[str, Callable[[str], Message]]] = {
    "CreateTopics": _create,
    "DeleteTopics": _delete,
    "CreatePartitions": _grow,
    "AlterConfigs": _replace,
    "IncrementalAlterConfigs": _alter,
    "AlterClientQuotas": _quota,
}
"""A request of each, about things that have the tag in their names; one process of each kind carries it out."""

SECURED: Final[Mapping[str, Mapping[str, Any]]] = {
    "CreateAcls": {
        "creations": [
            {
                "resource_type": "ACL_RESOURCE_TYPE_TOPIC",
                "resource_name": "orders",
                "pattern_type": "ACL_PATTERN_TYPE_LITERAL",
                "principal": "User:alice",
                "operation": "ACL_OPERATION_READ",
                "permission": "ACL_PERMISSION_ALLOW",
            }
        ]
    },
    "DeleteAcls": {"filters": [{"resource_name": "orders", "pattern_type": "ACL_PATTERN_TYPE_LITERAL"}]},
    "CreateDelegationToken": {"owner": "User:alice"},
    "RenewDelegationToken": {"token_id": "none"},
    "ExpireDelegationToken": {"token_id": "none"},
}
"""The same of rights and tokens, in proto's JSON: a cluster without access control and TLS refuses some of them."""


def secured(name: str) -> Message:
    """A request of one of these."""
    return json_format.ParseDict(dict(SECURED[name]), message_factory.GetMessageClass(METHODS[name].input_type)())


def prepared(tag: str) -> admin_pb2.CreateTopicsRequest:
    """The topics that the samples of a tag are about, but the one that they make."""
    return admin_pb2.CreateTopicsRequest(
        topics=[
            admin_pb2.NewTopic(name=f"{what}-{tag}", partitions=1, replication_factor=1)
            for what in ("doomed", "grown", "replaced", "altered")
        ]
    )


def of_version(name: str, request: Message, version: int | None) -> Message:
    """The request with that version; None: unset."""
    said: Any = message_factory.GetMessageClass(METHODS[name].input_type)()
    said.CopyFrom(request)
    if version is not None:
        said.header.api_version = version
        said.header.version_zero = version == 0
    return said  # type: ignore[no-any-return]


def newest_old(name: str) -> int:
    """The last version that brokers pass on."""
    return FORWARDED[name].direct_since - 1


def outcomes(name: str, answer: bytes) -> list[int]:
    """Error codes of the items of an answer."""
    read: Any = message_factory.GetMessageClass(METHODS[name].output_type).FromString(answer)
    return [result.error_code for result in read.results]


def path_of(name: str) -> str:
    """The call on the wire."""
    return f"{ADMIN_SERVICE}{name}"


DONE: Final = [errors_pb2.ERROR_CODE_NONE]
"""Outcomes of a sample that did what it says."""
