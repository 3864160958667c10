"""Settings of the cluster and of topics: changed and described."""

from collections.abc import Sequence

from regnum.admin.v1 import admin_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_service.errors import RegnumError

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


class ConfigAdmin(AdminSession):
    """Settings."""

    async def alter_configs(
        self, alterations: Sequence[ConfigAlteration], *, validate_only: bool = False
    ) -> dict[ConfigResource, RegnumError | None]:
        """Change settings, each resource on its own; None says that it was done and that live leaders were told.

        It has no mutation id: a call whose outcome is unknown is not sent again (safety rule S20) and raises.
        """
        search = self._search()
        while True:
            address = await search.address()
            left_s = call_s(search)
            request = admin_pb2.IncrementalAlterConfigsRequest(
                header=RequestHeader(client_id=self._client_id),
                alterations=[config_alteration_to_wire(alteration) for alteration in alterations],
                validate_only=validate_only,
                timeout_ms=max(1, int(left_s * 1000)),
            )
            try:
                answer = await call(
                    self._connections.admin(address).IncrementalAlterConfigs, request, timeout_s=left_s + 1
                )
                break
            except RegnumError as error:
                if not error.traits.outcome_known:
                    raise RegnumError(
                        error.code,
                        f"{error.message}. Settings may have been changed all the same: see `regnum configs describe`",
                        metadata=error.metadata,
                    ) from error
                await search.failed(address, error)
        return {
            alteration.resource: altered_from_wire(result, alteration.resource)
            for alteration, result in zip(alterations, answer.results, strict=True)
        }

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
