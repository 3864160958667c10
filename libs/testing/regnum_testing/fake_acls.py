"""Access rules as clients meet them: added, removed, listed, asked."""

from abc import ABC, abstractmethod
from typing import Any

from regnum.admin.v1 import acls_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.acls.messages import binding_message, binding_of, filter_of
from regnum_model.access import Operation, ResourceType
from regnum_model.acls.bindings import AclBinding, InvalidAclError, check_binding
from regnum_model.acls.filters import AclFilter
from regnum_model.acls.index import AclIndex

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class FakeAcls(ABC):
    """The part of an election process about rules. Pages have two rules."""

    acls: dict[AclBinding, None]

    @abstractmethod
    def _authority(self) -> None:
        """Refuse where a real one has no authority."""

    async def CreateAcls(  # noqa: N802
        self, request: acls_pb2.CreateAclsRequest, _context: Context
    ) -> acls_pb2.CreateAclsResponse:
        """Add."""
        self._authority()
        answer = acls_pb2.CreateAclsResponse()
        for one in request.creations:
            binding, result = binding_of(one), answer.results.add()
            try:
                assert isinstance(binding, AclBinding)
                check_binding(binding)
            except InvalidAclError as error:
                result.error_code, result.error_message = errors_pb2.ERROR_CODE_INVALID_REQUEST, str(error)
                continue
            if not request.validate_only:
                self.acls[binding] = None
        return answer

    async def DeleteAcls(  # noqa: N802
        self, request: acls_pb2.DeleteAclsRequest, _context: Context
    ) -> acls_pb2.DeleteAclsResponse:
        """Remove."""
        self._authority()
        answer = acls_pb2.DeleteAclsResponse()
        for one in request.filters:
            wanted = filter_of(one)
            assert isinstance(wanted, AclFilter)
            found = list(wanted.among(self.acls))
            answer.results.add(deleted=map(binding_message, found))
            for binding in found:
                if not request.validate_only:
                    del self.acls[binding]
        return answer

    async def DescribeAcls(  # noqa: N802
        self, request: acls_pb2.DescribeAclsRequest, _context: Context
    ) -> acls_pb2.DescribeAclsResponse:
        """List."""
        self._authority()
        wanted = filter_of(request.filter)
        assert isinstance(wanted, AclFilter)
        found = sorted(wanted.among(self.acls), key=str)
        first = int(request.page_token or 0)
        return acls_pb2.DescribeAclsResponse(
            acls=map(binding_message, found[first : first + 2]),
            next_page_token=str(first + 2) if len(found) > first + 2 else "",
        )

    async def CheckAcls(  # noqa: N802
        self, request: acls_pb2.CheckAclsRequest, _context: Context
    ) -> acls_pb2.CheckAclsResponse:
        """Ask."""
        self._authority()
        index = AclIndex()
        for pattern in {one.pattern for one in self.acls}:
            index.put(pattern, [one.entry for one in self.acls if one.pattern == pattern])
        decision = index.decide(
            request.principal,
            request.host,
            Operation(request.operation),
            ResourceType(request.resource_type),
            request.resource_name,
        )
        return acls_pb2.CheckAclsResponse(
            allowed=decision.allowed,
            reason=str(decision),
            rule=None if decision.binding is None else binding_message(decision.binding),
            enforced=True,
        )
