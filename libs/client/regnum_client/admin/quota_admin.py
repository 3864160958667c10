"""Client quotas: set, removed, described."""

from collections.abc import Collection, Mapping, Sequence

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_model.quotas import QuotaEntity
from regnum_service.errors import RegnumError

from regnum_client.admin.carrying.repeating import matched, until_answered
from regnum_client.admin.describing.quota_usage import QuotaUsages, usages_from_wire
from regnum_client.admin.quotas import (
    ClientQuota,
    QuotaAlteration,
    alteration_to_wire,
    entity_to_wire,
    quota_from_wire,
)
from regnum_client.admin.session import AdminSession, call_s
from regnum_client.cluster.connections import call


class QuotaAdmin(AdminSession):
    """Quotas of users and client ids."""

    async def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> dict[QuotaEntity, RegnumError | None]:
        """Set and remove quotas, each entity on its own; None says that it was done.

        It carries a mutation id that each entity keeps, so it is sent again until its outcome is known (rule S20).
        """
        request = admin_pb2.AlterClientQuotasRequest(
            header=RequestHeader(client_id=self._client_id),
            alterations=[alteration_to_wire(alteration) for alteration in alterations],
            validate_only=validate_only,
            mutation_id=self._mutation_id(),
        )

        async def ask(address: Address, left_s: float) -> admin_pb2.AlterClientQuotasResponse:
            return await call(self._connections.admin(address).AlterClientQuotas, request, timeout_s=left_s)

        answer = await until_answered(self._search(), ask, look="regnum quotas describe")
        sent = list(zip(alterations, request.alterations, strict=True))
        return {
            alteration.entity: None
            if result.error_code == errors_pb2.ERROR_CODE_NONE
            else RegnumError(result.error_code, result.error_message, metadata={"entity": str(alteration.entity)})
            for (alteration, _), result in matched(sent, answer.results, lambda one, got: one[1].entity == got.entity)
        }

    async def alter_client_quota(
        self, entity: QuotaEntity, *, set: Mapping[str, float] | None = None, remove: Collection[str] = ()
    ) -> None:
        """Set and remove quotas of one entity. Raises INVALID_REQUEST for a key or a limit that is none."""
        answers = await self.alter_client_quotas([QuotaAlteration(entity=entity, set=set or {}, remove=remove)])
        for error in answers.values():
            if error is not None:
                raise error

    async def describe_client_quotas(self, entity: QuotaEntity | None = None) -> tuple[ClientQuota, ...]:
        """The quotas that are set: of exactly this entity, or all."""
        request = admin_pb2.DescribeClientQuotasRequest(
            header=RequestHeader(client_id=self._client_id), entity=None if entity is None else entity_to_wire(entity)
        )
        search = self._search()
        found: list[ClientQuota] = []
        while True:
            address = await search.address()
            try:
                answer = await call(
                    self._connections.admin(address).DescribeClientQuotas, request, timeout_s=call_s(search)
                )
            except RegnumError as error:
                await search.failed(address, error)
                continue
            found.extend(map(quota_from_wire, answer.quotas))
            request.page_token = answer.next_page_token
            if not request.page_token:
                return tuple(sorted(found, key=lambda one: str(one.entity)))

    async def describe_quota_usage(self, limit: int = 100) -> QuotaUsages:
        """Use of quotas of mutations, and throttled clients: of the buckets used last, so many at most (5,000)."""
        request = admin_pb2.DescribeQuotaUsageRequest(header=RequestHeader(client_id=self._client_id), limit=limit)
        search = self._search()
        while True:
            address = await search.address()
            try:
                answer = await call(
                    self._connections.admin(address).DescribeQuotaUsage, request, timeout_s=call_s(search)
                )
            except RegnumError as error:
                await search.failed(address, error)
                continue
            return usages_from_wire(answer)
