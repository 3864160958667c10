"""Changes topics at the controller and describes the cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create."""

    name: str
    """Name: 1 to 249 of [a-zA-Z0-9._-]."""
    partitions: int = 1
    """Number of partitions; 0 together with an assignment."""
    replication_factor: int = 0
    """Replicas of each partition. 0: the cluster's default."""
    assignment: Mapping[int, Sequence[int]] | None = None
    """Broker ids of each partition, the preferred leader first. None: the controller places the replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic that was created (or would be, when validating only)."""

    name: str
    """Name."""
    topic_id: str
    """Topic id; empty when validating only."""
    partitions: int
    """Number of partitions."""
    replication_factor: int
    """Replicas of each partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopic:
    """A topic that was deleted."""

    name: str
    """Name, free again."""
    topic_id: str
    """Topic id that it had."""


class Admin:
    """Topics and the cluster. Errors are RegnumError; for several topics the first failure is raised, see ``try_*``."""

    def __init__(
        self, bootstrap: str | Sequence[str] | None = None, *, timeout_s: float = 30.0
    ) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """Find the cluster."""

    async def close(self) -> None:
        """Close the connections."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
