"""AdminService, the part about access rules."""

from typing import Final

from regnum.admin.v1 import acls_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.access import Operation, ResourceType
from regnum_model.acls.bindings import InvalidAclError, canonical_host, check_principal
from regnum_model.acls.filters import AclFilter
from regnum_model.acls.index import AclIndex
from regnum_service.access.acls.authorizer import AclAuthorizer
from regnum_service.access.authorization import EVERYBODY, Authorizer
from regnum_service.errors import RegnumError
from regnum_service.item_errors import item_status
from regnum_service.page_tokens import page_size, page_token, place_of

from regnum_election.acls.messages import binding_message, binding_of, filter_of
from regnum_election.candidacy.role import ControllerRole
from regnum_election.decisions.rejection import Rejection
from regnum_election.servicers.callers import check_count, wait_s
from regnum_election.servicers.leaders import Context
from regnum_election.servicers.mending import MendingServicer
from regnum_election.tokens.calls import TokenCalls

BINDINGS_MAX: Final = 1_000
"""Rules of one CreateAcls."""
FILTERS_MAX: Final = 100
"""Filters of one DeleteAcls."""
PAGE_MAX: Final = 10_000
"""Rules of a page."""


class AclServicer(MendingServicer):
    """Access rules."""

    def __init__(
        self, role: ControllerRole, *, authorizer: Authorizer = EVERYBODY, tokens: TokenCalls | None = None
    ) -> None:
        """Only assigns. ``authorizer``: what this process enforces."""
        super().__init__(role, tokens=tokens)
        self._authorizer: Final = authorizer

    async def CreateAcls(  # noqa: N802 - the name in the proto
        self, request: acls_pb2.CreateAclsRequest, context: Context
    ) -> acls_pb2.CreateAclsResponse:
        """Add rules."""
        controller = await self._role.controller()
        check_count(len(request.creations), BINDINGS_MAX, "rules")
        outcomes = await controller.acls.create(
            [binding_of(one) for one in request.creations],
            validate_only=request.validate_only,
            wait_s=wait_s(0, context),
            mutation=request.mutation_id or None,
        )
        return acls_pb2.CreateAclsResponse(
            results=[
                acls_pb2.CreateAclResult()
                if refused is None
                else acls_pb2.CreateAclResult(
                    error_code=refused.code,
                    error_message=refused.message,
                    status=item_status(refused.code, refused.message),
                )
                for refused in outcomes
            ]
        )

    async def DeleteAcls(  # noqa: N802 - the name in the proto
        self, request: acls_pb2.DeleteAclsRequest, context: Context
    ) -> acls_pb2.DeleteAclsResponse:
        """Remove rules."""
        controller = await self._role.controller()
        check_count(len(request.filters), FILTERS_MAX, "filters")
        outcomes = await controller.acls.delete(
            [filter_of(one) for one in request.filters],
            validate_only=request.validate_only,
            wait_s=wait_s(0, context),
            mutation=request.mutation_id or None,
        )
        response = acls_pb2.DeleteAclsResponse()
        for removed in outcomes:
            result = response.results.add(deleted=map(binding_message, removed.bindings), deleted_before=removed.before)
            if (refused := removed.refused) is not None:
                result.error_code, result.error_message = refused.code, refused.message
                status = item_status(refused.code, refused.message)
                if status is not None:
                    result.status.CopyFrom(status)
        return response

    async def DescribeAcls(  # noqa: N802 - the name in the proto
        self, request: acls_pb2.DescribeAclsRequest, context: Context
    ) -> acls_pb2.DescribeAclsResponse:
        """Rules, page by page."""
        wanted = filter_of(request.filter) if request.HasField("filter") else AclFilter()
        if isinstance(wanted, Rejection):
            raise RegnumError(wanted.code, wanted.message)
        size, place = (
            page_size(request.page_size, default=PAGE_MAX, maximum=PAGE_MAX),
            place_of(request.page_token, str),
        )
        controller = await self._role.controller()
        found = await controller.acls.describe(
            wanted, after=str(place[0]) if place else "", most=size, wait_s=wait_s(0, context)
        )
        return acls_pb2.DescribeAclsResponse(
            acls=map(binding_message, found.bindings),
            unreadable=[acls_pb2.UnreadableAcls(path=path, reason=reason) for path, reason in found.unreadable.items()],
            next_page_token=page_token((found.place,)) if found.place else "",
        )

    async def CheckAcls(  # noqa: N802 - the name in the proto
        self, request: acls_pb2.CheckAclsRequest, context: Context
    ) -> acls_pb2.CheckAclsResponse:
        """What decides."""
        try:
            check_principal(request.principal)
            operation, type = Operation(request.operation), ResourceType(request.resource_type)
        except (InvalidAclError, ValueError) as error:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST, f"{error}; name a principal, an operation and a resource"
            ) from None
        controller = await self._role.controller()
        enforced = isinstance(self._authorizer, AclAuthorizer)
        index = self._authorizer.empty_index() if isinstance(self._authorizer, AclAuthorizer) else AclIndex()
        decision = await controller.acls.decide(
            index,
            principal=request.principal,
            host=canonical_host(request.host),
            operation=operation,
            type=type,
            name=request.resource_name,
            wait_s=wait_s(0, context),
        )
        return acls_pb2.CheckAclsResponse(
            allowed=decision.allowed,
            reason=str(decision),
            rule=None if decision.binding is None else binding_message(decision.binding),
            enforced=enforced,
        )
