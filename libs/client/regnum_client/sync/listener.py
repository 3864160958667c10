"""What a service without asyncio hears of its group."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError

from regnum_client.consumer.groups.listener import RebalanceListener as AsyncListener
from regnum_client.records import TopicPartition


class RebalanceListener:
    """Hears which partitions come and go; make a subclass of it. It is called in a thread of its own.

    It is told while the application asks for records, so the application is done with those that it had; it may commit
    and seek, and must not read. What it raises, the read raises; the rebalance goes on.

    >>> class Told(regnum_client.sync.RebalanceListener):
    ...     def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
    ...         print("now mine:", len(list(partitions)))
    >>> with regnum_client.sync.Consumer(bootstrap, topics=["orders"], group_id="sync", listener=Told()) as consumer:
    ...     _ = next(consumer)
    now mine: 1
    """

    def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """These go to another member when this returns; what was processed of them can still be committed."""

    def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """These are read from now on, besides those that stay. Positions are set and may be changed."""

    def on_partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """These are another member's by now, because this one was silent or slow: nothing of them can be committed."""


class OffLoop(AsyncListener):
    """Lets a synchronous listener know, on threads that may wait for the event loop."""

    def __init__(self, listener: RebalanceListener) -> None:
        """Only assigns."""
        self._listener: Final = listener
        self._thread: int | None = None

    async def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Let it know."""
        await asyncio.to_thread(self._tell, self._listener.on_partitions_revoked, partitions)

    async def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Let it know."""
        await asyncio.to_thread(self._tell, self._listener.on_partitions_assigned, partitions)

    async def on_partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Let it know."""
        await asyncio.to_thread(self._tell, self._listener.on_partitions_lost, partitions)

    def check_reader(self) -> None:
        """Raise INVALID_REQUEST when the listener itself would read: it would wait for its own end."""
        if self._thread == threading.get_ident():
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST,
                "a rebalance listener must not read records: nothing is handed out before it has returned",
            )

    def _tell(self, told: Callable[[Iterable[TopicPartition]], None], partitions: Iterable[TopicPartition]) -> None:
        self._thread = threading.get_ident()
        try:
            told(partitions)
        finally:
            self._thread = None
