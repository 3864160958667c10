"""Settings in the words of the wire."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum_model.config_changes import Resource, ResourceType
from regnum_service.encoding import Encoding
from regnum_service.item_errors import item_status

from regnum_election.configs.calls import Described
from regnum_election.configs.entries import Source
from regnum_election.decisions.rejection import Rejection

RESOURCES_PER_TURN: Final = 100
"""Resources put into an answer between two turns of the event loop (safety rule S22)."""

SOURCES: Final = MappingProxyType(
    {
        Source.TOPIC: admin_pb2.CONFIG_SOURCE_TOPIC,
        Source.BROKER: admin_pb2.CONFIG_SOURCE_DYNAMIC_BROKER,
        Source.FLAG: admin_pb2.CONFIG_SOURCE_STATIC_BROKER,
        Source.CLUSTER: admin_pb2.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER,
        Source.DEFAULT: admin_pb2.CONFIG_SOURCE_DEFAULT,
    }
)
"""Where values come from."""


async def describe_response(
    asked: Sequence[admin_pb2.ConfigResource],
    found: Described,
    *,
    documented: bool,
) -> bytes:
    """What was found, a DescribeConfigsResponse; ``asked`` is empty when nothing was named.

    Args:
        asked: whose settings were asked for.
        found: what there is.
        documented: whether each setting comes with its meaning and its range.
    """
    answer = Encoding(admin_pb2.DescribeConfigsResponse(next_page_token=found.next_page_token), size=RESOURCES_PER_TURN)
    for index, one in enumerate(found.resources):
        await answer.took()
        if isinstance(one, Rejection):
            answer.piece.results.add(
                resource=asked[index],
                error_code=one.code,
                error_message=one.message,
                status=item_status(one.code, one.message),
            )
            continue
        resource, entries = one
        answer.piece.results.add(
            resource=_resource_message(resource),
            configs=[
                admin_pb2.DescribedConfig(
                    name=entry.name,
                    value=entry.value,
                    source=SOURCES[entry.source],
                    documentation=entry.documentation if documented else "",
                    valid_values=entry.valid_values if documented else "",
                    read_only=entry.read_only,
                    sensitive=entry.sensitive,
                )
                for entry in entries
            ],
        )
    return answer.whole()


def _resource_message(resource: Resource) -> admin_pb2.ConfigResource:
    if resource.type is ResourceType.TOPIC:
        return admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, name=resource.name)
    return admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_BROKER, name=resource.name)
