"""May a caller do that: the port that servicers ask, and the answer where there is no access control."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from regnum.types.v1 import errors_pb2
from regnum_model.access import CLUSTER_NAME, Operation, ResourceType

from regnum_service.access.identity import Caller
from regnum_service.errors import Code

FAILED: Final[Mapping[ResourceType, Code]] = MappingProxyType(
    {
        ResourceType.TOPIC: errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED,
        ResourceType.GROUP: errors_pb2.ERROR_CODE_GROUP_AUTHORIZATION_FAILED,
        ResourceType.CLUSTER: errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED,
        ResourceType.TRANSACTIONAL_ID: errors_pb2.ERROR_CODE_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ResourceType.DELEGATION_TOKEN: errors_pb2.ERROR_CODE_DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ResourceType.USER: errors_pb2.ERROR_CODE_DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
"""The error that says no, by what was asked for."""


class Authorizer(Protocol):
    """Decides, from rights that it holds in memory. Belongs to one event loop."""

    def allows(
        self, who: Caller, operation: Operation, type: ResourceType, name: str = CLUSTER_NAME, *, audit: bool = True
    ) -> bool:
        """Whether the caller may do that; ``audit`` False: a no is no denial (names left out of a list)."""


class EverybodyMay:
    """No access control: everybody may do everything."""

    def allows(self, *_what: object, **_how: object) -> bool:
        """Yes."""
        return True
