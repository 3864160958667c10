"""What a consumer has of its group: a membership, or only the group's offsets."""

import asyncio
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.admin.groups.views import CommittedOffset
from regnum_client.cluster.connections import Connections
from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.offsets import OffsetLookup
from regnum_client.consumer.fetching.fetcher import Fetcher
from regnum_client.consumer.groups.assignors import ASSIGNORS
from regnum_client.consumer.groups.commits import Commits
from regnum_client.consumer.groups.coordinator import CoordinatorCalls
from regnum_client.consumer.groups.gate import Gate
from regnum_client.consumer.groups.handover import Handover
from regnum_client.consumer.groups.leading import Leading
from regnum_client.consumer.groups.listener import OffsetAndMetadata, RebalanceListener
from regnum_client.consumer.groups.members.member import Member
from regnum_client.consumer.groups.members.member_events import Event, Subscribed
from regnum_client.consumer.groups.members.member_task import MemberTask
from regnum_client.consumer.groups.missing_topics import MissingTopics
from regnum_client.consumer.settings import ConsumerSettings
from regnum_client.records import TopicPartition
from regnum_client.tasks import Tasks

ToCommit = Mapping[TopicPartition, int | OffsetAndMetadata]
"""The next offset of each partition, with or without a note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """Which group, and as whom."""

    group_id: str
    """1 to 255 characters."""
    instance_id: str = ""
    """Name of a static member; empty: a dynamic one."""
    listener: RebalanceListener | None = None
    """Hears what comes and goes."""


class GroupSession:
    """Of one consumer that is open."""

    def __init__(
        self,
        place: GroupPlace,
        *,
        connections: Connections,
        metadata: Metadata,
        lookup: OffsetLookup,
        fetcher: Fetcher,
        settings: ConsumerSettings,
        clock: Clock,
        chance: random.Random,
        client_id: str,
        tasks: Tasks,
    ) -> None:
        """Only assigns. Raises INVALID_REQUEST for settings that no group can have."""
        check(settings)
        self._settings: Final = settings
        self._fetcher: Final = fetcher
        self._metadata: Final = metadata
        self.gate: Final = Gate(clock=clock, wake=fetcher.arrived.set)
        """Where the application and the member meet."""
        calls = CoordinatorCalls(
            place.group_id,
            connections,
            metadata,
            clock=clock,
            chance=chance,
            client_id=client_id,
            call_timeout_s=settings.request_timeout_s,
        )
        self._commits: Final = Commits(
            calls,
            instance_id=place.instance_id,
            clock=clock,
            member=self._member,
            cursor=fetcher.cursors.get,
            tell=self._tell,
        )
        handover = Handover(
            place.group_id,
            gate=self.gate,
            commits=self._commits,
            fetcher=fetcher,
            metadata=metadata,
            lookup=lookup,
            listener=place.listener,
            settings=settings,
            clock=clock,
            chance=chance,
            tasks=tasks,
        )
        self._leading: Final = Leading(metadata, timeout_s=settings.topic_wait_s)
        self._task: Final = MemberTask(
            calls,
            instance_id=place.instance_id,
            gate=self.gate,
            handover=handover,
            leading=self._leading,
            settings=settings,
            clock=clock,
            chance=chance,
            tasks=tasks,
        )
        self._tasks: Final = tasks
        self._missing: Final = MissingTopics(
            metadata, clock=clock, wait_s=settings.topic_wait_s, report=self.gate.report
        )
        self._missing_task: asyncio.Task[None] | None = None
        self._joined = False
        self._topics: frozenset[str] = frozenset()

    @property
    def topics(self) -> frozenset[str]:
        """Topics that the member wants, and those that others want, while it leads."""
        return self._topics.union(self._leading.topics)

    @property
    def is_member(self) -> bool:
        """It takes what the group assigns; otherwise it has only the group's offsets."""
        return self._joined

    def subscribe(self, topics: Iterable[str], *, named: bool) -> None:
        """Be a member that wants these topics; ``named``: each was asked for by its name, and is missed."""
        self._topics = topics = frozenset(topics)
        if not self._joined:
            self._joined = True
            self._metadata.listen(self._task.look)
            self._metadata.listen(self._missing.look)
            self._task.start()
            self._missing_task = self._tasks.start("group-topics", self._missing.run())
        self._missing.want(topics if named else ())
        self._task.tell(Subscribed(topics))

    async def leave(self) -> None:
        """Commit what is finished, if that is asked for, and leave."""
        await self._task.leave()

    async def close(self) -> None:
        """End what goes on, whether it has left or not."""
        if self._missing_task is not None:
            await self._tasks.end(self._missing_task)
        await self._task.close()

    async def commit(self, offsets: ToCommit | None) -> None:
        """As ``Consumer.commit``."""
        if offsets is None:
            chosen = {
                one: OffsetAndMetadata(cursor.position, cursor.read_epochs.before(cursor.position))
                for one, cursor in self._fetcher.cursors.items()
                if cursor.has_place
            }
        else:
            chosen = {one: OffsetAndMetadata(at) if isinstance(at, int) else at for one, at in offsets.items()}
        await self._commits.commit(chosen, timeout_s=self._settings.commit_timeout_s)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """As ``Consumer.committed``."""
        return await self._commits.committed(list(dict.fromkeys(partitions)), timeout_s=self._settings.commit_timeout_s)

    def _member(self) -> Member | None:
        return self._task.member if self._joined else None

    def _tell(self, event: Event) -> None:
        self._task.tell(event)


def check(settings: ConsumerSettings) -> None:
    """Raise INVALID_REQUEST for settings of a group that cannot be."""
    names = settings.partition_assignment_strategy
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown or not names or len(set(names)) < len(names):
        raise _invalid(f"partition_assignment_strategy is {names!r}; give one or more of {', '.join(ASSIGNORS)}, once")
    if settings.heartbeat_interval_s >= settings.session_timeout_s:
        raise _invalid(
            f"heartbeat_interval_s ({settings.heartbeat_interval_s:g}) is not below session_timeout_s "
            f"({settings.session_timeout_s:g}); give a third of it at most"
        )


def no_group() -> RegnumError:
    """The consumer was not told of one."""
    return _invalid("this consumer has no group; give it a group_id")


def assigned_by_group() -> RegnumError:
    """What a member reads is not its own matter."""
    return _invalid(
        "the group assigns partitions to this consumer; pause() those not to be read, or leave topics out and assign()"
    )


def _invalid(message: str) -> RegnumError:
    return RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, message)
