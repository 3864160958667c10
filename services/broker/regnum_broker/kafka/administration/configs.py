"""Settings shown and changed: between Kafka's messages and the controller's."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum_kafka_wire.gen import alter_configs_response, incremental_alter_configs_response
from regnum_kafka_wire.gen.alter_configs_request import AlterConfigsRequest
from regnum_kafka_wire.gen.alter_configs_response import AlterConfigsResponse
from regnum_kafka_wire.gen.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from regnum_kafka_wire.gen.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from regnum_kafka_wire.gen.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from regnum_kafka_wire.gen.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from regnum_kafka_wire.gen.list_config_resources_request import ListConfigResourcesRequest
from regnum_kafka_wire.gen.list_config_resources_response import ConfigResource, ListConfigResourcesResponse
from regnum_model.access import Operation, ResourceType
from regnum_model.config_definition import ConfigType
from regnum_model.configs import DEFINITIONS
from regnum_service.access.authorization import Authorizer, Right
from regnum_service.errors import Code
from regnum_service.limits.answers import making
from regnum_service.slices import Turns, slices

from regnum_broker.kafka.addresses import Addresses
from regnum_broker.kafka.administration.passing_on import PassingOn, header
from regnum_broker.kafka.administration.rooms import Room
from regnum_broker.kafka.context import Context
from regnum_broker.serving.metadata_cache import MetadataCache

TOPIC: Final = 2
BROKER: Final = 4
"""Kafka's numbers of what settings belong to; they are those of the other door, too."""
OPERATIONS: Final = MappingProxyType(
    {
        0: admin_pb2.ALTER_CONFIG_OP_SET,
        1: admin_pb2.ALTER_CONFIG_OP_DELETE,
        2: admin_pb2.ALTER_CONFIG_OP_APPEND,
        3: admin_pb2.ALTER_CONFIG_OP_SUBTRACT,
    }
)
"""By Kafka's number."""
STRING: Final = 2
TYPES: Final = MappingProxyType(
    {
        ConfigType.BOOLEAN: 1,
        ConfigType.TIMESTAMPS: STRING,
        ConfigType.INT: 5,
        ConfigType.RATIO: 6,
        ConfigType.LIST: 7,
    }
)
"""Kafka's numbers of what values look like; whole numbers are LONG, all else that is shown is STRING."""
RESOURCES: Final = 1_000
"""Resources that the controller takes in one call; Kafka's clients name all that they mean in one."""
SETTING_BYTES: Final = 400
"""About what a setting takes of an answer, before it is encoded."""
RESOURCE_BYTES: Final = 64
"""About what one takes of a list of them, before it is encoded; the cluster has its name."""
SLICE: Final = 1_000
"""Settings put into an answer before the event loop gets a turn (safety rule S22)."""
LISTS_TOPICS: Final = 1
"""First version of ListConfigResources that lists more than settings of clients' metrics, of which there are none."""

DESCRIBE_CONFIGS: Final = Right(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)


class ConfigAdministration:
    """Of one broker. Belongs to its event loop."""

    def __init__(
        self, *, controller: PassingOn, cache: MetadataCache, addresses: Addresses, authorizer: Authorizer
    ) -> None:
        """Only assigns.

        Args:
            controller: has the settings.
            cache: the cluster, as far as this broker has heard.
            addresses: of brokers.
            authorizer: whether a caller may be told what has settings.
        """
        self._controller: Final = controller
        self._cache: Final = cache
        self._addresses: Final = addresses
        self._authorizer: Final = authorizer

    @property
    def rooms(self) -> Mapping[int, Room]:
        """By API key."""
        return {
            32: (self.describe, self.no_describe),
            33: (self.replace, self.no_replace),
            44: (self.alter, self.no_alter),
            74: (self.list_resources, self.no_list_resources),
        }

    async def describe(self, request: DescribeConfigsRequest, context: Context) -> DescribeConfigsResponse:
        """Settings as they are in force."""
        results: list[DescribeConfigsResult] = []
        turns = Turns(SLICE)
        # (As in Kafka each once.)
        named = {(one.resource_type, one.resource_name): one for one in request.resources}
        async for resources in slices(named.values(), RESOURCES):
            asked = admin_pb2.DescribeConfigsRequest(
                header=header(context), include_documentation=request.include_documentation
            )
            for resource in resources:
                asked.resources.append(_resource(resource.resource_type, resource.resource_name))
            answer = await self._controller.pass_on(
                "DescribeConfigs", asked, admin_pb2.DescribeConfigsResponse, context
            )
            for resource, found in zip(resources, answer.results, strict=True):
                await turns.took(1 + len(found.configs))
                making(SETTING_BYTES * len(found.configs) + sum(len(one.documentation) for one in found.configs))
                keys = frozenset(resource.configuration_keys or ())
                results.append(_described(resource, found, keys, synonyms=request.include_synonyms))
        return DescribeConfigsResponse(results=results)

    def no_describe(self, request: DescribeConfigsRequest, context: Context, code: Code) -> DescribeConfigsResponse:
        """That none are told."""
        del context
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(code, None, resource.resource_type, resource.resource_name)
                for resource in request.resources
            ]
        )

    async def replace(self, request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
        """Replace all settings of resources: what is not named goes back to its default."""
        asked = admin_pb2.AlterConfigsRequest(header=header(context), validate_only=request.validate_only)
        for resource in request.resources:
            asked.replacements.add(
                resource=_resource(resource.resource_type, resource.resource_name),
                configs=[admin_pb2.ConfigValue(name=one.name, value=one.value or "") for one in resource.configs],
            )
        answer = await self._controller.pass_on("AlterConfigs", asked, admin_pb2.AlterConfigsResponse, context)
        return AlterConfigsResponse(
            responses=[
                alter_configs_response.AlterConfigsResourceResponse(
                    one.error_code, one.error_message or None, resource.resource_type, resource.resource_name
                )
                for resource, one in zip(request.resources, answer.results, strict=True)
            ]
        )

    def no_replace(self, request: AlterConfigsRequest, context: Context, code: Code) -> AlterConfigsResponse:
        """That nothing was changed."""
        del context
        return AlterConfigsResponse(
            responses=[
                alter_configs_response.AlterConfigsResourceResponse(
                    code, None, resource.resource_type, resource.resource_name
                )
                for resource in request.resources
            ]
        )

    async def alter(self, request: IncrementalAlterConfigsRequest, context: Context) -> IncrementalAlterConfigsResponse:
        """Change settings: what is not named stays."""
        asked = admin_pb2.IncrementalAlterConfigsRequest(header=header(context), validate_only=request.validate_only)
        for resource in request.resources:
            alteration = asked.alterations.add(resource=_resource(resource.resource_type, resource.resource_name))
            for one in resource.configs:
                op = OPERATIONS.get(one.config_operation, admin_pb2.ALTER_CONFIG_OP_UNSPECIFIED)
                taken_back = op == admin_pb2.ALTER_CONFIG_OP_DELETE
                value = "" if taken_back else one.value or ""
                alteration.configs.add(name=one.name, op=op, value=value, if_known=taken_back)
        answer = await self._controller.pass_on(
            "IncrementalAlterConfigs", asked, admin_pb2.IncrementalAlterConfigsResponse, context
        )
        return IncrementalAlterConfigsResponse(
            responses=[
                incremental_alter_configs_response.AlterConfigsResourceResponse(
                    one.error_code, one.error_message or None, resource.resource_type, resource.resource_name
                )
                for resource, one in zip(request.resources, answer.results, strict=True)
            ]
        )

    def no_alter(
        self, request: IncrementalAlterConfigsRequest, context: Context, code: Code
    ) -> IncrementalAlterConfigsResponse:
        """That nothing was changed."""
        del context
        return IncrementalAlterConfigsResponse(
            responses=[
                incremental_alter_configs_response.AlterConfigsResourceResponse(
                    code, None, resource.resource_type, resource.resource_name
                )
                for resource in request.resources
            ]
        )

    async def list_resources(
        self, request: ListConfigResourcesRequest, context: Context
    ) -> ListConfigResourcesResponse:
        """What has settings: topics and brokers."""
        DESCRIBE_CONFIGS.require(self._authorizer)
        if context.version < LISTS_TOPICS:
            return ListConfigResourcesResponse()
        types = frozenset(request.resource_types) or {TOPIC, BROKER}
        found: list[ConfigResource] = []
        if BROKER in types:
            found += [ConfigResource(str(id), BROKER) for id in sorted(self._addresses.brokers)]
        if TOPIC in types:
            async for names in slices(self._cache.topics, SLICE):
                making(RESOURCE_BYTES * len(names))
                found += [ConfigResource(name, TOPIC) for name in names]
        return ListConfigResourcesResponse(config_resources=found)

    def no_list_resources(
        self, request: ListConfigResourcesRequest, context: Context, code: Code
    ) -> ListConfigResourcesResponse:
        """That it is not told."""
        del request, context
        return ListConfigResourcesResponse(error_code=code)


def _resource(type: int, name: str) -> admin_pb2.ConfigResource:
    """As the controller takes it, which refuses types that there are not (client metrics, groups, loggers)."""
    known = {TOPIC: admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, BROKER: admin_pb2.CONFIG_RESOURCE_TYPE_BROKER}
    return admin_pb2.ConfigResource(type=known.get(type, admin_pb2.CONFIG_RESOURCE_TYPE_UNSPECIFIED), name=name)


def _described(
    resource: DescribeConfigsResource,
    found: admin_pb2.DescribeConfigsResult,
    keys: Collection[str],
    *,
    synonyms: bool,
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        found.error_code,
        found.error_message or None,
        resource.resource_type,
        resource.resource_name,
        [_setting(one, synonyms=synonyms) for one in found.configs if not keys or one.name in keys],
    )


def _setting(found: admin_pb2.DescribedConfig, *, synonyms: bool) -> DescribeConfigsResourceResult:
    definition = DEFINITIONS.get(found.name)
    value = None if found.sensitive else found.value
    return DescribeConfigsResourceResult(
        name=found.name,
        value=value,
        read_only=found.read_only,
        config_source=found.source,
        is_sensitive=found.sensitive,
        synonyms=[DescribeConfigsSynonym(found.name, value, found.source)] if synonyms else (),
        config_type=STRING if definition is None else TYPES[definition.type],
        documentation=found.documentation or None,
    )
