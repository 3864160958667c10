"""Contents of store nodes: JSON that a person can read and write, decoded into frozen values.

Store contents written by hand are input (seed 001 B, seed 002, safety rule S14). ``decode`` raises MalformedNodeError
with the reason and never anything else, whatever the bytes are; ``encode`` is deterministic.
"""

from regnum_model.nodes.leader_and_isr import LeaderAndIsr, Membership
from regnum_model.nodes.processes import (
    Address,
    AddressNode,
    BrokerNode,
    ControllerNode,
    ElectionNode,
    MetadataNode,
    ProducerIdBlockNode,
    decode_controller_epoch,
    encode_controller_epoch,
)
from regnum_model.nodes.reading import (
    MAX_BROKER_ID,
    MAX_EPOCH,
    MAX_PARTITIONS,
    MEMBERS_KEPT,
    LaterVersionError,
    MalformedNodeError,
)
from regnum_model.nodes.topic_ids import AcceptedAssignment, TopicIdNode
from regnum_model.nodes.topics import (
    DeletedTopicNode,
    DeletionNode,
    PartitionDeletionNode,
    TopicNode,
    decode_added_replicas,
)

__all__ = [
    "MAX_BROKER_ID",
    "MAX_EPOCH",
    "MAX_PARTITIONS",
    "MEMBERS_KEPT",
    "AcceptedAssignment",
    "Address",
    "AddressNode",
    "BrokerNode",
    "ControllerNode",
    "DeletedTopicNode",
    "DeletionNode",
    "ElectionNode",
    "LaterVersionError",
    "LeaderAndIsr",
    "MalformedNodeError",
    "Membership",
    "MetadataNode",
    "PartitionDeletionNode",
    "ProducerIdBlockNode",
    "TopicIdNode",
    "TopicNode",
    "decode_added_replicas",
    "decode_controller_epoch",
    "encode_controller_epoch",
]
