"""Changes of settings in the words of the wire."""

from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Final, Protocol

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.config_changes import Alteration, ListChange, Operation, Resource, ResourceType, invalid
from regnum_model.nodes import MAX_BROKER_ID
from regnum_model.rejection import Rejection

from regnum_service.item_errors import item_status

LIST_CHANGES: Final = MappingProxyType(
    {
        admin_pb2.ALTER_CONFIG_OP_APPEND: ListChange.APPEND,
        admin_pb2.ALTER_CONFIG_OP_SUBTRACT: ListChange.SUBTRACT,
    }
)
"""What is done to lists."""


def resource_of(message: admin_pb2.ConfigResource) -> Resource | Rejection:
    """Whose settings are meant."""
    match message.type:
        case admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC:
            if not message.name:
                return invalid("which topic? Give its name")
            return Resource(type=ResourceType.TOPIC, name=message.name)
        case admin_pb2.CONFIG_RESOURCE_TYPE_BROKER:
            if message.name:
                return _broker(message.name)
            return Resource(type=ResourceType.CLUSTER)
        case _:
            return invalid(
                "whose settings? Give the type TOPIC with a name, BROKER with an id, or BROKER without a name for the"
                " cluster"
            )


def _broker(name: str) -> Resource | Rejection:
    if not (name.isascii() and name.isdigit() and len(name) <= 10 and int(name) <= MAX_BROKER_ID):
        return invalid(f"{name[:40]!r} is no id of a broker; give a number, or no name for the cluster")
    return Resource(type=ResourceType.BROKER, name=str(int(name)))


def alteration_of(message: admin_pb2.ConfigAlteration) -> Alteration | Rejection:
    """What is to be changed."""
    resource = resource_of(message.resource)
    if isinstance(resource, Rejection):
        return resource
    operations: list[Operation] = []
    for config in message.configs:
        match config.op:
            case admin_pb2.ALTER_CONFIG_OP_SET:
                operations.append(Operation(key=config.name, value=config.value))
            case admin_pb2.ALTER_CONFIG_OP_DELETE if not config.value:
                operations.append(Operation(key=config.name, value=None, if_known=config.if_known))
            case op if op in LIST_CHANGES:
                operations.append(Operation(key=config.name, value=config.value, change=LIST_CHANGES[op]))
            case _:
                return invalid(f"what is to be done to {config.name[:80]!r}? Give SET with a value, or DELETE without")
    return Alteration(resource=resource, operations=tuple(operations))


def replacement_of(message: admin_pb2.ConfigReplacement) -> Alteration | Rejection:
    """What a resource is to have."""
    resource = resource_of(message.resource)
    if isinstance(resource, Rejection):
        return resource
    operations = tuple(Operation(key=config.name, value=config.value) for config in message.configs)
    return Alteration(resource=resource, operations=operations, replace=True)


class _Named(Protocol):
    @property
    def resource(self) -> admin_pb2.ConfigResource: ...


def alter_results(
    named: Iterable[_Named], outcomes: Iterable[Rejection | None]
) -> Iterator[admin_pb2.AlterConfigsResult]:
    """Outcomes, in the order of the request."""
    for one, refused in zip(named, outcomes, strict=True):
        yield admin_pb2.AlterConfigsResult(
            resource=one.resource,
            error_code=errors_pb2.ERROR_CODE_NONE if refused is None else refused.code,
            error_message="" if refused is None else refused.message,
            status=None if refused is None else item_status(refused.code, refused.message),
        )
