"""Strays: logs on brokers' disks of topics or partitions that do not exist, as their brokers list them."""

from collections.abc import AsyncGenerator, Collection
from typing import NamedTuple

from regnum.broker.v1 import figures_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_service.errors import RegnumError

from regnum_client.admin.session import AdminSession
from regnum_client.cluster.connections import call


class StrayReplica(NamedTuple):
    """A log of a topic or partition that does not exist. Its broker keeps it, and never deletes it."""

    broker: int
    """Where it is."""
    topic_id: str
    partition: int
    topic: str
    """Name of the topic as the files say; a topic of that name now has another id."""
    size_bytes: int
    """Bytes of its segments."""
    log_start: int
    """Its first offset."""
    log_end: int
    """Offset after its last record."""
    last_epoch: int
    """Leader epoch of its last record; -1: it is empty."""

    @property
    def newest_offset(self) -> int | None:
        """Offset of its last record; None: it is empty."""
        return self.log_end - 1 if self.log_end > self.log_start else None


StrayPage = tuple[StrayReplica, ...] | RegnumError
"""Some strays of a broker, or why it does not say more."""


class StrayAdmin(AdminSession):
    """Logs that nobody knows."""

    async def describe_strays(self, brokers: Collection[int] = ()) -> AsyncGenerator[tuple[int, StrayPage], None]:
        """Strays, page by page: broker after broker, each in the order of topic id and partition.

        A broker that does not answer ends with the error. Without ``brokers`` all live ones are asked. Raises
        RegnumError when no broker answers for metadata.

        >>> async for broker, page in admin.describe_strays():
        ...     print(broker, [] if isinstance(page, RegnumError) else [one.topic for one in page])
        1 []
        """
        view = await self._open().newer_than(self._clock.monotonic(), timeout_s=self._timeout_s)
        live = {int(id): broker.address for id, broker in view.brokers.items()}
        for id in sorted(set(brokers) or live):
            if id not in live:
                yield id, RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, f"broker {id} is not live")
                continue
            try:
                async for page in self._pages(id, live[id]):
                    yield id, page
            except RegnumError as error:
                yield id, error

    async def _pages(self, broker: int, address: Address) -> AsyncGenerator[tuple[StrayReplica, ...], None]:
        request = figures_pb2.DescribeStraysRequest(header=RequestHeader(client_id=self._client_id))
        stub = self._connections.figures(address)
        before = ("", -1)
        while True:
            answer = await call(stub.DescribeStrays, request, timeout_s=self._timeout_s)
            yield tuple(_stray(broker, one) for one in answer.strays)
            if not answer.HasField("next"):
                return
            after = (answer.next.topic_id, answer.next.partition)
            if after <= before:
                raise RegnumError(
                    errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR, f"the pages of broker {broker} do not go on"
                )
            before = after
            request.after.CopyFrom(answer.next)


def _stray(broker: int, told: figures_pb2.StrayReplica) -> StrayReplica:
    return StrayReplica(
        broker=broker,
        topic_id=told.topic_id,
        partition=told.partition,
        topic=told.topic,
        size_bytes=told.size_bytes,
        log_start=told.log_start_offset,
        log_end=told.log_end_offset,
        last_epoch=told.last_written_leader_epoch,
    )
