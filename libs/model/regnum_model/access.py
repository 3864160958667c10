"""What there are rights to: operations on resources, as Kafka names and numbers them (KIP-11, KIP-290, KIP-48)."""

import enum
from typing import Final

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class ResourceType(enum.IntEnum):
    """Kinds of things.

    >>> AclResourceType.TOPIC.name
    'TOPIC'
    """

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Operation(enum.IntEnum):
    """What is done with a thing.

    >>> AclOperation["READ"].value
    3
    """

    ALL = 2
    """In a rule: any of the others."""
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
