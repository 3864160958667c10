"""Access rules shown, added and removed: between Kafka's messages and the controller's.

The numbers are the same, but for the one that means any: 1 in Kafka's filters, 0 at the other door. What Kafka's
clients call unknown is 0, and is refused here as it is there.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from regnum.admin.v1 import acls_pb2
from regnum.types.v1 import errors_pb2
from regnum_kafka_wire.gen.create_acls_request import CreateAclsRequest
from regnum_kafka_wire.gen.create_acls_response import AclCreationResult, CreateAclsResponse
from regnum_kafka_wire.gen.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from regnum_kafka_wire.gen.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from regnum_kafka_wire.gen.describe_acls_request import DescribeAclsRequest
from regnum_kafka_wire.gen.describe_acls_response import AclDescription, DescribeAclsResource, DescribeAclsResponse
from regnum_service.errors import Code, RegnumError
from regnum_service.limits.answers import making
from regnum_service.slices import Turns

from regnum_broker.kafka.administration.passing_on import PassingOn, header
from regnum_broker.kafka.administration.rooms import Room
from regnum_broker.kafka.context import Context

UNKNOWN: Final = 0
ANY: Final = 1
"""Kafka's numbers, of kinds of resources, operations and permissions alike."""
RULE_BYTES: Final = 200
"""About what a rule takes of an answer besides its texts, before it is encoded."""
SLICE: Final = 1_000
"""Rules put into an answer before the event loop gets a turn (safety rule S22)."""


class AclAdministration:
    """Of one broker. Belongs to its event loop."""

    def __init__(self, *, controller: PassingOn) -> None:
        """Only assigns. ``controller``: has the rules."""
        self._controller: Final = controller

    @property
    def rooms(self) -> Mapping[int, Room]:
        """By API key."""
        return {
            29: (self.describe, self.no_describe),
            30: (self.create, self.no_create),
            31: (self.delete, self.no_delete),
        }

    async def describe(self, request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
        """Rules that fit a filter, by what they are about."""
        asked = acls_pb2.DescribeAclsRequest(header=header(context), filter=_filter(request))
        found: dict[tuple[int, str, int], list[AclDescription]] = defaultdict(list)
        turns = Turns(SLICE)
        while True:
            page = await self._controller.pass_on("DescribeAcls", asked, acls_pb2.DescribeAclsResponse, context)
            making(page.ByteSize() + RULE_BYTES * len(page.acls))
            for one in page.acls:
                await turns.took()
                found[one.resource_type, one.resource_name, one.pattern_type].append(
                    AclDescription(one.principal, one.host, one.operation, one.permission)
                )
            if not page.next_page_token:
                break
            asked.page_token = page.next_page_token
        return DescribeAclsResponse(
            error_message=None,
            resources=[DescribeAclsResource(*resource, acls) for resource, acls in found.items()],
        )

    def no_describe(self, request: DescribeAclsRequest, context: Context, code: Code) -> DescribeAclsResponse:
        """That they are not told."""
        del request, context
        return DescribeAclsResponse(error_code=code, error_message=None)

    async def create(self, request: CreateAclsRequest, context: Context) -> CreateAclsResponse:
        """Add rules, each on its own. What is unknown is refused by the controller: unset, or no such number."""
        asked = acls_pb2.CreateAclsRequest(header=header(context))
        for one in request.creations:
            asked.creations.add(
                resource_type=_known(acls_pb2.AclResourceType, one.resource_type),
                resource_name=one.resource_name,
                pattern_type=_known(acls_pb2.AclPatternType, one.resource_pattern_type),
                principal=one.principal,
                host=one.host,
                operation=_known(acls_pb2.AclOperation, one.operation),
                permission=_known(acls_pb2.AclPermission, one.permission_type),
            )
        answer = await self._controller.pass_on("CreateAcls", asked, acls_pb2.CreateAclsResponse, context)
        return CreateAclsResponse(
            results=[AclCreationResult(one.error_code, one.error_message or None) for one in answer.results]
        )

    def no_create(self, request: CreateAclsRequest, context: Context, code: Code) -> CreateAclsResponse:
        """That none were added."""
        del context
        return CreateAclsResponse(results=[AclCreationResult(code, None) for _ in request.creations])

    async def delete(self, request: DeleteAclsRequest, context: Context) -> DeleteAclsResponse:
        """Remove the rules that filters choose."""
        asked = acls_pb2.DeleteAclsRequest(header=header(context), filters=map(_filter, request.filters))
        answer = await self._controller.pass_on("DeleteAcls", asked, acls_pb2.DeleteAclsResponse, context)
        return DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(
                    result.error_code,
                    result.error_message or None,
                    [
                        DeleteAclsMatchingAcl(
                            0,
                            None,
                            one.resource_type,
                            one.resource_name,
                            one.pattern_type,
                            one.principal,
                            one.host,
                            one.operation,
                            one.permission,
                        )
                        for one in result.deleted
                    ],
                )
                for result in answer.results
            ]
        )

    def no_delete(self, request: DeleteAclsRequest, context: Context, code: Code) -> DeleteAclsResponse:
        """That none were removed."""
        del context
        return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(code, None) for _ in request.filters])


def _filter(request: DescribeAclsRequest | DeleteAclsFilter) -> acls_pb2.AclFilter:
    """As the controller takes it. Raises INVALID_REQUEST for what is unknown."""
    chosen = {
        "resource_type": (acls_pb2.AclResourceType, request.resource_type_filter),
        "pattern_type": (acls_pb2.AclPatternType, request.pattern_type_filter),
        "operation": (acls_pb2.AclOperation, request.operation),
        "permission": (acls_pb2.AclPermission, request.permission_type),
    }
    numbers: dict[str, Any] = {}
    for field, (kind, number) in chosen.items():
        if number == UNKNOWN or number not in {ANY, *kind.values()}:
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, f"the filter has an unknown {field}: {number}")
        numbers[field] = UNKNOWN if number == ANY else number
    return acls_pb2.AclFilter(
        resource_name=request.resource_name_filter,
        principal=request.principal_filter,
        host=request.host_filter,
        **numbers,
    )


def _known(kind: Any, number: int) -> Any:
    """The number, or the one of what is not said, which the controller refuses."""
    return number if number in kind.values() else UNKNOWN
