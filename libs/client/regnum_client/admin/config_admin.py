"""Settings of the cluster and of topics: changed and described."""

from collections.abc import Mapping, Sequence
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_service.errors import RegnumError

from regnum_client.admin.carrying.repeating import matched, until_answered
from regnum_client.admin.configs import (
    ConfigAlteration,
    ConfigEntry,
    ConfigResource,
    altered_from_wire,
    config_alteration_to_wire,
    described_from_wire,
    resource_to_wire,
)
from regnum_client.admin.session import AdminSession, call_s
from regnum_client.cluster.connections import call

LOOK: Final = "regnum configs describe"
"""Shows whether a change was made."""


class ConfigAdmin(AdminSession):
    """Settings."""

    async def alter_configs(
        self, alterations: Sequence[ConfigAlteration], *, validate_only: bool = False
    ) -> dict[ConfigResource, RegnumError | None]:
        """Change settings, each resource on its own; None says that it was done and that live brokers were told.

        It carries a mutation id that each resource keeps, so it is sent again until its outcome is known (rule S20).
        """
        request = admin_pb2.IncrementalAlterConfigsRequest(
            header=RequestHeader(client_id=self._client_id),
            alterations=[config_alteration_to_wire(alteration) for alteration in alterations],
            validate_only=validate_only,
            mutation_id=self._mutation_id(),
        )

        async def ask(address: Address, left_s: float) -> admin_pb2.IncrementalAlterConfigsResponse:
            request.timeout_ms = max(1, int(left_s * 1000))
            method = self._connections.admin(address).IncrementalAlterConfigs
            return await call(method, request, timeout_s=left_s + 1)

        answer = await until_answered(self._search(), ask, look=LOOK)
        wire = zip(alterations, request.alterations, strict=True)
        return _outcomes([(one.resource, sent.resource) for one, sent in wire], answer.results)

    async def replace_configs(
        self, replacements: Mapping[ConfigResource, Mapping[str, str]], *, validate_only: bool = False
    ) -> dict[ConfigResource, RegnumError | None]:
        """Give resources these settings and no others of their own (Kafka's alterConfigs), each resource on its own.

        Two callers who do so overwrite one another: ``alter_configs`` changes what it names and nothing else.
        """
        request = admin_pb2.AlterConfigsRequest(
            header=RequestHeader(client_id=self._client_id),
            replacements=[
                admin_pb2.ConfigReplacement(
                    resource=resource_to_wire(resource),
                    configs=[admin_pb2.ConfigValue(name=name, value=value) for name, value in sorted(values.items())],
                )
                for resource, values in replacements.items()
            ],
            validate_only=validate_only,
            mutation_id=self._mutation_id(),
        )

        async def ask(address: Address, left_s: float) -> admin_pb2.AlterConfigsResponse:
            request.timeout_ms = max(1, int(left_s * 1000))
            return await call(self._connections.admin(address).AlterConfigs, request, timeout_s=left_s + 1)

        answer = await until_answered(self._search(), ask, look=LOOK)
        wire = zip(replacements, request.replacements, strict=True)
        return _outcomes([(resource, sent.resource) for resource, sent in wire], answer.results)

    async def alter_config(self, alteration: ConfigAlteration, *, validate_only: bool = False) -> None:
        """Change settings of one resource. Raises INVALID_CONFIG, UNKNOWN_TOPIC_OR_PARTITION, ..."""
        for error in (await self.alter_configs([alteration], validate_only=validate_only)).values():
            if error is not None:
                raise error

    async def describe_configs(
        self, resources: Sequence[ConfigResource] = ()
    ) -> dict[ConfigResource, tuple[ConfigEntry, ...] | RegnumError]:
        """Settings in force: of these, or of the cluster and every topic with settings of its own."""
        request = admin_pb2.DescribeConfigsRequest(
            header=RequestHeader(client_id=self._client_id),
            resources=[resource_to_wire(resource) for resource in resources],
            include_documentation=bool(resources),
        )
        search = self._search()
        found: dict[ConfigResource, tuple[ConfigEntry, ...] | RegnumError] = {}
        while True:
            address = await search.address()
            try:
                answer = await call(self._connections.admin(address).DescribeConfigs, request, timeout_s=call_s(search))
            except RegnumError as error:
                await search.failed(address, error)
                continue
            found.update(described_from_wire(result) for result in answer.results)
            request.page_token = answer.next_page_token
            if not request.page_token:
                return found

    async def describe_config(self, resource: ConfigResource) -> tuple[ConfigEntry, ...]:
        """Settings of one resource. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        answer = (await self.describe_configs([resource]))[resource]
        if isinstance(answer, RegnumError):
            raise answer
        return answer


def _outcomes(
    sent: Sequence[tuple[ConfigResource, admin_pb2.ConfigResource]], results: Sequence[admin_pb2.AlterConfigsResult]
) -> dict[ConfigResource, RegnumError | None]:
    pairs = matched(sent, results, lambda asked, result: asked[1] == result.resource)
    return {resource: altered_from_wire(result, resource) for (resource, _), result in pairs}
