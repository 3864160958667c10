"""Writes records: batched, idempotent, in order, across changes of leader."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from regnum_client.records import RecordMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How a producer behaves. The defaults lose nothing and duplicate nothing."""

    acks: Literal[-1, 0, 1] = -1
    """-1: every in-sync replica has the record; 1: the leader has it; 0: no wait."""
    idempotent: bool = True
    """Repeats are recognised by the broker. Counts with acks -1 only."""
    linger_ms: float = 5.0
    """How long a record waits for company before its batch is sent."""
    batch_bytes: int = 16 * 1024
    """A batch this large is sent at once. At most what the broker takes (1 MiB by default)."""
    buffer_bytes: int = 32 * 1024 * 1024
    """Records not yet acknowledged, in all; beyond it ``send`` waits."""
    buffer_wait_s: float = 60.0
    """How long ``send`` waits for room before BufferFullError."""
    topic_wait_s: float = 5.0
    """How long ``send`` waits for a topic that the brokers do not know yet."""
    delivery_timeout_s: float = 120.0
    """From ``send`` to the acknowledgement, all retries included; then DeliveryTimeoutError."""
    request_timeout_s: float = 30.0
    """Deadline of one produce call."""
    in_flight_max: int = 5
    """Produce calls under way to one broker. At most 5 when idempotent: brokers remember five batches."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """Codec of the batches."""


class Producer:
    """Writes records to topics. One event loop, any number of tasks."""

    def __init__(
        self, bootstrap: str | Sequence[str] | None = None, *, settings: ProducerSettings | None = None
    ) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """Find the cluster and take a producer id."""

    async def close(self) -> None:
        """Send what is buffered, wait for it, close the connections."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Buffer one record; the future that comes back ends when the brokers have it (or have refused it).

        Without a partition, the key's hash chooses it as Kafka's Java client does; without a key, batches go round.
        """
        raise NotImplementedError

    async def flush(self) -> None:
        """Send everything that is buffered now and wait until every future of it has ended."""
