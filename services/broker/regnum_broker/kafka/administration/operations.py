"""What a caller may do with a thing, as one number (KIP-430): a bit for each operation, at the place of its number."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from regnum_model.access import CLUSTER_NAME, Operation, ResourceType
from regnum_service.access.authorization import Authorizer, Right

NOT_ASKED: Final = -(2**31)
"""What is answered to clients that do not ask."""

POSSIBLE: Final[Mapping[ResourceType, tuple[Operation, ...]]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        ),
        ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
        ResourceType.CLUSTER: (
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        ),
    }
)
"""What can be done with things of a kind, as Kafka has it (AclEntry.supportedOperations)."""


def authorized(authorizer: Authorizer, type: ResourceType, name: str = CLUSTER_NAME) -> int:
    """What the present caller may do with it. A no is no denial."""
    return sum(
        1 << operation.value
        for operation in POSSIBLE[type]
        if Right(operation, type).held(authorizer, name, audit=False)
    )
