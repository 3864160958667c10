"""Store paths, built from validated parts only. Seeds 001 and 002 name them; design section 3 lists their owners."""

from typing import Final
from urllib.parse import quote

from regnum_model.acls.chosen import FOLDER as ACL_DELETIONS
from regnum_model.acls.nodes import FOLDERS as ACL_FOLDERS
from regnum_model.configs import BROKERS as BROKER_CONFIGS
from regnum_model.configs import TOPICS as TOPIC_CONFIGS
from regnum_model.delegation_tokens import FOLDER as DELEGATION_TOKENS
from regnum_model.ids import BrokerId, ElectionId, MetadataId, TopicId
from regnum_model.nodes.processes import Address
from regnum_model.nodes.reading import MAX_BROKER_ID
from regnum_model.quotas import FOLDERS as QUOTA_FOLDERS

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
TREE_ID: Final = "/cluster/tree_id"
"""Name of the tree, new with each restore; absent until the first. What a disk remembers counts under one name only."""
WENT_BACK: Final = "/cluster/went_back"
"""Stands from the moment when a broker proved that the store went back until the tree is restored (trace T9)."""
ELECTION_ADDRESSES: Final = "/election/addresses"
METADATA_ADDRESSES: Final = "/metadata/addresses"
BROKER_ADDRESSES: Final = "/brokers/addresses"
QUOTA_ADDRESSES: Final = "/quota/addresses"
"""Folders with a node for each listener and address that a live process of that role advertises (decision 73)."""
ELECTION_IDS: Final = "/election/ids"
METADATA_IDS: Final = "/metadata/ids"
BROKER_IDS: Final = "/brokers/ids"
BROKER_EPOCHS: Final = "/brokers/epochs"
BROKER_LIVES: Final = "/brokers/lives"
TOPICS: Final = "/brokers/topics"
TOPIC_IDS: Final = "/brokers/topic_ids"
DELETE_TOPICS: Final = "/admin/delete_topics"
DELETED_TOPICS: Final = "/admin/deleted_topics"
DELETE_PARTITIONS: Final = "/admin/delete_partitions"
PARTITIONS_ADD: Final = "/admin/partitions_add"
PARTITIONS_REMOVE: Final = "/admin/partitions_remove"
PARTITIONS_REASSIGNED: Final = "/admin/partitions_reassigned"
DRAINING: Final = "/admin/draining"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"

PERSISTENT_FOLDERS: Final = (
    ELECTION_IDS,
    METADATA_IDS,
    BROKER_IDS,
    BROKER_EPOCHS,
    BROKER_LIVES,
    ELECTION_ADDRESSES,
    METADATA_ADDRESSES,
    BROKER_ADDRESSES,
    QUOTA_ADDRESSES,
    TOPICS,
    TOPIC_IDS,
    DELETE_TOPICS,
    DELETED_TOPICS,
    DELETE_PARTITIONS,
    PARTITIONS_ADD,
    PARTITIONS_REMOVE,
    PARTITIONS_REASSIGNED,
    DRAINING,
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    DELEGATION_TOKENS,
    *QUOTA_FOLDERS,
    *ACL_FOLDERS,
    ACL_DELETIONS,
)
"""Folders that an election process creates before it campaigns."""


_ID_DIGITS_MAX: Final = len(str(MAX_BROKER_ID))


def id_named(name: str) -> int | None:
    """The id of the process whose node has that name; None: no process has such an id.

    People can put nodes of any name beside those of processes. The wire carries no greater id than MAX_BROKER_ID, and
    ``int`` refuses thousands of digits.
    """
    if len(name) > _ID_DIGITS_MAX or not name.isascii() or not name.isdigit():
        return None
    id = int(name)
    return id if id <= MAX_BROKER_ID and str(id) == name else None


def election_id(id: ElectionId) -> str:
    """Ephemeral node of an election process."""
    return f"{ELECTION_IDS}/{id}"


def metadata_id(id: MetadataId) -> str:
    """Ephemeral node of a metadata process."""
    return f"{METADATA_IDS}/{id}"


def broker_id(id: BrokerId) -> str:
    """Ephemeral registration of a broker."""
    return f"{BROKER_IDS}/{id}"


def advertised(folder: str, listener: str, address: Address) -> str:
    """Ephemeral node of the process that advertises an address, as it is written, for a listener of that name."""
    return f"{folder}/{quote(f'{listener}@{address}', safe='@:[]')}"


def draining(id: BrokerId) -> str:
    """Stands while a broker is being drained: it is given no new replicas."""
    return f"{DRAINING}/{id}"


def broker_epoch(id: BrokerId) -> str:
    """Persistent guard of a broker's registration (safety rule S2)."""
    return f"{BROKER_EPOCHS}/{id}"


def broker_life(id: BrokerId) -> str:
    """Life of a broker's log directory, as the store knows it (safety rule S10)."""
    return f"{BROKER_LIVES}/{id}"


def topic(name: str) -> str:
    """Assignment of a topic."""
    return f"{TOPICS}/{name}"


def topic_id(id: TopicId) -> str:
    """Guard that exists exactly as long as the topic (safety rule S2)."""
    return f"{TOPIC_IDS}/{id}"


def partition(name: str, partition: int) -> str:
    """Folder of a partition's state."""
    return f"{TOPICS}/{name}/{partition}"


def leader_and_isr(name: str, partition: int) -> str:
    """State of a partition."""
    return f"{TOPICS}/{name}/{partition}/leaderAndISR"


def deletion(id: TopicId) -> str:
    """Record of a deletion that some broker still has to confirm (safety rule S13)."""
    return f"{DELETE_TOPICS}/{id}"


def partition_deletions(id: TopicId) -> str:
    """Folder of the records of a topic's removed partitions; exists while there are any."""
    return f"{DELETE_PARTITIONS}/{id}"


def partition_deletion(id: TopicId, partition: int) -> str:
    """Record of a removed partition that some broker still has to confirm (safety rule S13)."""
    return f"{DELETE_PARTITIONS}/{id}/{partition}"
