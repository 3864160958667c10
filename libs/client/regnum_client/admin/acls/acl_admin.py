"""Access rules: added, removed, listed, asked."""

from collections.abc import Iterator, Sequence
from typing import Final

from regnum.admin.v1 import acls_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.access import CLUSTER_NAME, Operation, ResourceType
from regnum_model.acls.bindings import AclBinding
from regnum_model.acls.filters import AclFilter
from regnum_model.nodes import Address
from regnum_service.errors import RegnumError

from regnum_client.admin.acls.values import (
    AclCheck,
    Acls,
    binding_from_wire,
    binding_to_wire,
    exactly,
    filter_to_wire,
)
from regnum_client.admin.carrying.repeating import matched, until_answered
from regnum_client.admin.session import AdminSession
from regnum_client.cluster.connections import call

CREATED_AT_ONCE: Final = 1_000
"""Rules of one call that adds."""
DELETED_AT_ONCE: Final = 100
"""Rules of one call that removes."""


class AclAdmin(AdminSession):
    """Who may do what."""

    async def create_acls(
        self, bindings: Sequence[AclBinding], *, validate_only: bool = False
    ) -> dict[AclBinding, RegnumError | None]:
        """Add rules, each on its own; None says that it is there.

        Sent again until its outcome is known: each pattern keeps the mutation id (rule S20).
        """
        outcomes: dict[AclBinding, RegnumError | None] = {}
        for some in _parts(bindings, CREATED_AT_ONCE):
            request = acls_pb2.CreateAclsRequest(
                header=RequestHeader(client_id=self._client_id),
                creations=map(binding_to_wire, some),
                validate_only=validate_only,
                mutation_id=self._mutation_id(),
            )

            async def ask(
                address: Address, left_s: float, request: acls_pb2.CreateAclsRequest = request
            ) -> acls_pb2.CreateAclsResponse:
                return await call(self._connections.admin(address).CreateAcls, request, timeout_s=left_s)

            answer = await until_answered(self._search(), ask, look="regnum acls list")
            for binding, result in matched(some, answer.results, lambda *_: True):
                outcomes[binding] = _error(result.error_code, result.error_message)
        return outcomes

    async def create_acl(self, binding: AclBinding) -> None:
        """Add one rule. Raises INVALID_REQUEST for one that could never count."""
        for error in (await self.create_acls([binding])).values():
            if error is not None:
                raise error

    async def delete_acls(
        self, wanted: AclFilter, *, validate_only: bool = False
    ) -> dict[AclBinding, RegnumError | None]:
        """Remove the rules that a filter chooses, each on its own; None says that it is gone.

        They are listed first, and then removed one by one by their names: so a repeat never takes away what was added
        meanwhile (rule S20).
        """
        found = (await self.describe_acls(wanted)).bindings
        if validate_only:
            return dict.fromkeys(found)
        outcomes: dict[AclBinding, RegnumError | None] = {}
        for some in _parts(found, DELETED_AT_ONCE):
            request = acls_pb2.DeleteAclsRequest(
                header=RequestHeader(client_id=self._client_id),
                filters=[filter_to_wire(exactly(binding)) for binding in some],
                mutation_id=self._mutation_id(),
            )

            async def ask(
                address: Address, left_s: float, request: acls_pb2.DeleteAclsRequest = request
            ) -> acls_pb2.DeleteAclsResponse:
                return await call(self._connections.admin(address).DeleteAcls, request, timeout_s=left_s)

            answer = await until_answered(self._search(), ask, look="regnum acls list")
            for binding, result in matched(some, answer.results, lambda *_: True):
                outcomes[binding] = _error(result.error_code, result.error_message)
        return outcomes

    async def describe_acls(self, wanted: AclFilter | None = None) -> Acls:
        """The rules that a filter chooses, or all."""
        request = acls_pb2.DescribeAclsRequest(
            header=RequestHeader(client_id=self._client_id), filter=None if wanted is None else filter_to_wire(wanted)
        )
        bindings: list[AclBinding] = []
        unreadable: dict[str, str] = {}

        async def ask(address: Address, left_s: float) -> acls_pb2.DescribeAclsResponse:
            return await call(self._connections.admin(address).DescribeAcls, request, timeout_s=left_s)

        while True:
            answer = await until_answered(self._search(), ask)
            bindings += [one for one in map(binding_from_wire, answer.acls) if one is not None]
            unreadable.update((one.path, one.reason) for one in answer.unreadable)
            request.page_token = answer.next_page_token
            if not request.page_token:
                return Acls(bindings=tuple(bindings), unreadable=unreadable)

    async def check_acl(
        self,
        principal: str,
        operation: Operation,
        type: ResourceType,
        name: str = CLUSTER_NAME,
        *,
        host: str = "",
    ) -> AclCheck:
        """Whether a principal may do something, and what decides. ``host``: address of the caller."""
        request = acls_pb2.CheckAclsRequest(
            header=RequestHeader(client_id=self._client_id),
            principal=principal,
            host=host,
            operation=acls_pb2.AclOperation.ValueType(operation),
            resource_type=acls_pb2.AclResourceType.ValueType(type),
            resource_name=name,
        )

        async def ask(address: Address, left_s: float) -> acls_pb2.CheckAclsResponse:
            return await call(self._connections.admin(address).CheckAcls, request, timeout_s=left_s)

        answer = await until_answered(self._search(), ask)
        return AclCheck(
            allowed=answer.allowed,
            reason=answer.reason,
            rule=binding_from_wire(answer.rule) if answer.HasField("rule") else None,
            enforced=answer.enforced,
        )


def _parts(items: Sequence[AclBinding], size: int) -> Iterator[Sequence[AclBinding]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _error(code: errors_pb2.ErrorCode.ValueType, message: str) -> RegnumError | None:
    return None if code == errors_pb2.ERROR_CODE_NONE else RegnumError(code, message)
