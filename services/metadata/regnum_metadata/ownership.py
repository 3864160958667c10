"""Which metadata process serves which broker: rendezvous hashing.

Every process computes the same answer from the same list of live processes, without talking to the others. When one
goes, only its brokers move; when one comes, it takes about its share and nothing else moves.
"""

from collections.abc import Iterable
from hashlib import blake2b

from regnum_model.ids import BrokerId, MetadataId


def owner(broker: BrokerId, processes: Iterable[MetadataId]) -> MetadataId | None:
    """The process that serves a broker; None when there is no process."""
    return max(processes, key=lambda process: (_weight(broker, process), process), default=None)


def _weight(broker: BrokerId, process: MetadataId) -> bytes:
    return blake2b(f"{process}/{broker}".encode(), digest_size=8).digest()
