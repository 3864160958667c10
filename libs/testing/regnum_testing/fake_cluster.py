"""Brokers and a controller in one process, over real gRPC, for tests of clients.

A partition has one log, shared by all brokers: what a leader appended, the next leader has too. Leaders, answers
and delays are the test's to choose. Idempotent producers are checked as a broker does it: five batches remembered,
nothing known means any number.
"""

import random
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import cached_property
from typing import Self

import grpc
from regnum.admin.v1 import admin_pb2
from regnum.broker.v1 import log_pb2
from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.history.log import EventLog
from regnum_records.read import read_records
from regnum_service.clock import SystemClock
from regnum_service.errors import Code, RegnumError

from regnum_testing.fake_broker import FakeBroker
from regnum_testing.fake_configs import FakeConfigs
from regnum_testing.fake_election import FakeElection
from regnum_testing.fake_groups import FakeGroups
from regnum_testing.fake_leaders import LeaderAnswers
from regnum_testing.fake_partition import FakePartition
from regnum_testing.fake_quotas import FakeQuotas
from regnum_testing.fake_reassignments import FakeReassignments
from regnum_testing.fake_recoveries import FakeRecoveries
from regnum_testing.fake_tokens import TokenAnswers

ProduceHook = Callable[[FakeBroker, log_pb2.ProduceRequest], Awaitable[None]]
WatchHook = Callable[[int, AsyncIterator[metadata_pb2.WatchMetadataRequest]], AsyncGenerator[bytes, None]]


class FakeCluster:
    """Brokers 1..n and one election process."""

    watch: WatchHook | None = None
    """What WatchMetadata tells, by the broker that is asked; None: brokers are of a release without it."""
    propagation = admin_pb2.DescribePropagationResponse()
    """How far the controller says that metadata has come; replaced, never changed in place."""

    after_deletion: Callable[[FakePartition], Code] | None = None
    """Called when records of a partition were deleted: the error that is answered all the same."""
    deletions_refused = 0
    """Partitions of which no records were deleted, by any broker."""
    id_refusal: RegnumError | None = None
    """What brokers say in place of a producer id."""

    def __init__(self, *, brokers: int = 3, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.brokers = {number: FakeBroker(self, number) for number in range(1, brokers + 1)}
        self.elections = {number: FakeElection(self, number) for number in (1, 2)}
        self.controller = 1
        self.controller_epoch = 1
        self.partitions: dict[tuple[str, int], FakePartition] = {}
        self.replicas: dict[tuple[str, int], tuple[int, ...]] = {}
        """Replicas of partitions that not all brokers have."""
        self.topic_ids: dict[str, str] = {}
        self.producer_ids = 1000
        self.answers: dict[tuple[str, int], deque[Code]] = {}
        """Errors that produce answers in place of appending, by partition."""
        self.fetch_answers: dict[tuple[str, int], Code] = {}
        """Errors that fetch answers for a partition."""
        self.fetched_bytes_max: list[int] = []
        """What fetches allowed an answer to carry, in their order."""
        self.answers_after_append: dict[tuple[str, int], deque[Code]] = {}
        """Errors that produce answers although it has appended."""
        self.cluster_id = "fake"
        self.version = 1
        """Version of the metadata; grows with every change that this class makes."""
        self.asked: list[int] = []
        """Brokers that were asked for metadata, in their order."""
        self.named: list[tuple[str, ...] | None] = []
        """The topics that these questions named; None: all."""
        self.broker_lists_sent = 0
        """Answers that carried the list of brokers."""
        self.calls: Counter[str] = Counter()
        self.acks: list[int] = []
        """What produce calls asked for, in their order."""
        self.quotas = FakeQuotas(SystemClock())
        self.recoveries = FakeRecoveries()
        self.reassignments = FakeReassignments()
        self.configs = FakeConfigs()
        self.groups = FakeGroups(self)
        self.draining: set[int] = set()
        """Brokers that are given no new replicas."""
        self.damaged: dict[str, dict[int, str]] = {}
        """By topic and partition number what is damaged, and why."""
        self.health = admin_pb2.DescribeHealthResponse(complete=True)
        """What the controller says is wrong; its id and epoch are filled in."""
        self.events = EventLog(SystemClock())
        """The event log, in memory."""
        self.leaders = LeaderAnswers()
        self.has_produce_streams = True
        """False: brokers are of a release that has none."""
        self.before_produce: ProduceHook | None = None
        self.after_page: Callable[[], None] | None = None
        """Called when a page of topics was answered."""
        self.failures: list[tuple[str, BaseException]] = []

    @cached_property
    def tokens(self) -> TokenAnswers:
        """Delegation tokens, and what was asked about them."""
        return TokenAnswers()

    @cached_property
    def more_services(self) -> list[Callable[[grpc.aio.Server, int], None]]:
        """What adds services to the broker with that number when it starts; empty unless a test has filled it."""
        return []

    async def __aenter__(self) -> Self:
        self.events.open(None)
        for member in (*self.brokers.values(), *self.elections.values()):
            await member.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in (*self.brokers.values(), *self.elections.values()):
            await member.stop()
        await self.groups.stop()
        await self.events.close()
        assert not self.failures, self.failures

    @property
    def bootstrap(self) -> str:
        """For clients."""
        return ",".join(str(broker.address) for broker in self.brokers.values())

    def assign(self, topic: str, partition: int, *replicas: int, adding: tuple[int, ...] = ()) -> None:
        """A partition has other replicas, some of which an open reassignment brings in."""
        self.version += 1
        self.replicas[topic, partition] = replicas
        self.partitions[topic, partition].adding = adding

    def create(self, topic: str, *, partitions: int = 1) -> None:
        """A topic whose partitions are led by the brokers in turn."""
        self.version += 1
        self.topic_ids[topic] = f"id-of-{topic}-{self.random.randrange(10**6)}"
        for number in range(partitions):
            self.partitions[(topic, number)] = FakePartition(
                topic, self.topic_ids[topic], number, leader=number % len(self.brokers) + 1
            )

    def delete(self, topic: str) -> None:
        """The topic is gone."""
        self.version += 1
        del self.topic_ids[topic]
        self.partitions = {key: one for key, one in self.partitions.items() if one.topic != topic}

    def count(self, topic: str) -> int:
        """How many partitions a topic has; 0 when there is none."""
        return sum(one.topic == topic for one in self.partitions.values())

    def add_partitions(self, topic: str, total: int) -> None:
        """The topic has so many from now on."""
        self.version += 1
        for number in range(self.count(topic), total):
            self.partitions[(topic, number)] = FakePartition(
                topic, self.topic_ids[topic], number, leader=number % len(self.brokers) + 1
            )

    def remove_partitions(self, topic: str, total: int) -> None:
        """The topic has only so many from now on."""
        self.version += 1
        for number in range(total, self.count(topic)):
            del self.partitions[(topic, number)]

    def elect(self, topic: str, partition: int, leader: int) -> None:
        """A new leader, in a new term."""
        self.version += 1
        one = self.partitions[(topic, partition)]
        one.leader = leader
        one.leader_epoch += 1

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """What the log holds."""
        batches = self.partitions[(topic, partition)].batches
        return [record.value for record in read_records(b"".join(batch for _, batch in batches))]

    def find(self, topic: str, partition: int, topic_id: str, broker: int) -> FakePartition | Code:
        """The partition, if that broker leads it and it is the one that is meant."""
        one = self.partitions.get((topic, partition))
        if one is None:
            return errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
        if topic_id and one.topic_id != topic_id:
            return errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID
        return one if one.leader == broker else errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
