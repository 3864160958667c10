"""kazoo's client, which can send requests of ours as well: whatever has a type, bytes and a way to read answers."""

from typing import Any

from kazoo.client import KazooClient

from regnum_coordination.drivers.zookeeper.bulk_reads import BulkRead
from regnum_coordination.drivers.zookeeper.bulk_writes import BulkWrite


class BulkClient(KazooClient):  # type: ignore[misc] # kazoo is untyped
    """kazoo's client."""

    def ask_async(self, request: BulkRead | BulkWrite) -> Any:
        """As its own methods of this kind."""
        answer = self.handler.async_result()
        self._call(request, answer)
        return answer
