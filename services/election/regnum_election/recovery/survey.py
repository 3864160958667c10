"""What is left of partitions that nobody may lead: their nodes, and what the logs of their replicas hold.

Used in the coroutine of a caller, beside the controller's task, and for a second look within it. All brokers are asked
at once, and one that does not answer costs a deadline once, however many partitions there are.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Node
from regnum_model import paths
from regnum_model.epochs import is_plausible
from regnum_model.ids import NO_EPOCH, BrokerEpoch, BrokerId, LeaderEpoch, LogId, PartitionKey
from regnum_service.errors import RegnumError
from regnum_service.slices import Turns

from regnum_election.decisions.cluster import Broker, Cluster, Partition, Topic
from regnum_election.decisions.leadership import Decision
from regnum_election.decisions.rejection import Rejection
from regnum_election.recovery.decisions import (
    Answer,
    Assessment,
    NoLog,
    ReplicaLog,
    assess,
    is_missing,
    is_sound,
    of_this_life,
)
from regnum_election.recovery.nodes import Recoverable, judge_partition, judge_topic_node, paths_of
from regnum_election.state.context import ControllerContext

PARTITIONS_PER_TURN: Final = 100
"""Partitions looked at between two turns of the event loop (safety rule S22)."""

ASK_S_MAX: Final = 5.0
"""Longest wait for brokers' answers; half of what the caller waits, if that is less."""

UNUSABLE: Final = NoLog(
    code=errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, message="the replica cannot be used there; see the broker's log"
)
"""What a broker has refused to lead would be refused again; but for a replica that it lacks, which may be given up."""


class Survey:
    """Looks; changes nothing. One for each reign."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    async def without_leader(self, topic: Topic, *, first: int, limit: int) -> tuple[list[int], int]:
        """Partitions from ``first`` on without a leader, ``limit`` at most; and where the rest begins (0: no rest)."""
        numbers: list[int] = []
        turns = Turns(PARTITIONS_PER_TURN)
        for number in topic.partitions:
            await turns.took()
            if number < first:
                continue
            picture = self._context.picture
            partition = picture.partitions.get(PartitionKey(topic.id, number))
            if partition is None or _has_leader(partition, picture):
                continue
            if len(numbers) == limit:
                return numbers, number
            numbers.append(number)
        return numbers, 0

    async def look(
        self, topic: Topic, numbers: Sequence[int], wait_s: float
    ) -> tuple[dict[int, Rejection], dict[int, tuple[Recoverable, Assessment]]]:
        """Read, judge and ask: what stands against recovering a partition, or what there is of it."""
        rejected, recoverable = await self.judge(topic, numbers)
        answers = await self._ask(recoverable.values(), wait_s / 2)
        found: dict[int, tuple[Recoverable, Assessment]] = {}
        turns = Turns(PARTITIONS_PER_TURN)
        for number, one in recoverable.items():
            await turns.took()
            picture = self._context.picture
            offline = picture.offline_at(one.key)
            own = {
                id: UNUSABLE
                if id in offline and not is_missing(answers[id, one.key])
                else of_this_life(believed(answers[id, one.key], one.known_epoch), one.partition.began)
                for id in one.partition.replicas
            }
            move = one.partition.reassignment
            # Called back, or sent elsewhere, it has new replicas as well that no target names.
            adding = [id for id in one.partition.replicas if move is not None and id not in move.origin]
            found[number] = (
                one,
                assess(one.partition.replicas, one.state, own, leaving=picture.leaving, adding=adding),
            )
        return rejected, found

    async def judge(self, topic: Topic, numbers: Sequence[int]) -> tuple[dict[int, Rejection], dict[int, Recoverable]]:
        """Read the nodes of partitions as of now, and judge each."""
        if not numbers:
            return {}, {}
        shared = (paths.topic(topic.name), paths.topic_id(topic.id))
        found = await self._context.store.read_many(
            [*shared, *(path for number in numbers for path in paths_of(topic, number))]
        )
        damaged = judge_topic_node(topic, found)
        rejected: dict[int, Rejection] = {}
        recoverable: dict[int, Recoverable] = {}
        turns = Turns(PARTITIONS_PER_TURN)
        for number in numbers:
            await turns.took()
            match damaged or self._judge_one(topic, number, found):
                case Rejection() as rejection:
                    rejected[number] = rejection
                case Recoverable() as one:
                    recoverable[number] = one
        return rejected, recoverable

    def _judge_one(self, topic: Topic, number: int, found: Mapping[str, Node]) -> Rejection | Recoverable:
        key = PartitionKey(topic.id, number)
        picture = self._context.picture
        partition = picture.partitions.get(key)
        if partition is None:
            return Rejection(
                code=errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
                message=f"topic {topic.name} has no partition {number}",
            )

        def settle(as_read: Partition) -> Decision:
            return self._context.settle(picture, key, as_read)

        return judge_partition(topic, key, partition, found, settle, reign=self._context.reign.epoch)

    async def _ask(
        self, recoverable: Iterable[Recoverable], timeout_s: float
    ) -> dict[tuple[BrokerId, PartitionKey], Answer]:
        """What every assigned replica answers; all brokers are asked at once."""
        by_broker: dict[BrokerId, list[PartitionKey]] = {}
        for one in recoverable:
            for id in one.partition.replicas:
                by_broker.setdefault(id, []).append(one.key)
        return await self.ask(by_broker, timeout_s)

    async def ask(
        self, by_broker: Mapping[BrokerId, Sequence[PartitionKey]], timeout_s: float
    ) -> dict[tuple[BrokerId, PartitionKey], Answer]:
        """What brokers say of the partitions that each is asked about; all at once."""
        timeout_s = min(ASK_S_MAX, timeout_s)
        async with asyncio.TaskGroup() as group:
            asking = [
                group.create_task(self._ask_broker(id, keys, timeout_s), name=f"ask broker {id} for its logs")
                for id, keys in by_broker.items()
            ]
        return {place: answer for task in asking for place, answer in task.result().items()}

    async def _ask_broker(
        self, id: BrokerId, keys: Sequence[PartitionKey], timeout_s: float
    ) -> dict[tuple[BrokerId, PartitionKey], Answer]:
        broker = self._context.picture.brokers.get(id)
        if broker is None:
            away = NoLog(code=errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, message="the broker is not registered")
            return {(id, key): away for key in keys}
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._context.dispatch.replica_logs(
                    broker,
                    [control_pb2.ReplicaLogQuery(topic_id=key.topic_id, partition=key.partition) for key in keys],
                    timeout_s=timeout_s,
                )
        except TimeoutError:
            silent = NoLog(code=errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, message=f"no answer within {timeout_s:g} s")
            return {(id, key): silent for key in keys}
        except RegnumError as error:
            refused = NoLog(code=error.code, message=error.message)
            return {(id, key): refused for key in keys}
        answers: dict[tuple[BrokerId, PartitionKey], Answer] = {}
        told = {(info.topic_id, info.partition): info for info in response.replicas}
        turns = Turns(PARTITIONS_PER_TURN)
        for key in keys:
            await turns.took()
            answers[id, key] = answer_of(broker, BrokerEpoch(response.broker_epoch), told.get(key))
        return answers


def is_of(broker: Broker, log: ReplicaLog) -> bool:
    """Whether the broker that is registered now is the one that answered, with the log it answered with."""
    return broker.epoch == log.broker_epoch and log.log_id in broker.log_ids


def _has_leader(partition: Partition, picture: Cluster) -> bool:
    return partition.trouble is None and partition.held is not None and partition.held.state.leader in picture.brokers


def believed(answer: Answer, known: LeaderEpoch) -> Answer:
    """The answer; none where it would use up epochs that nobody can have led in."""
    if known == NO_EPOCH or not isinstance(answer, ReplicaLog):
        return answer
    shown = max(answer.last_written_epoch, answer.current_epoch)
    if is_plausible(shown, known):
        return answer
    message = f"it shows leader epoch {shown}, far above the {known} of the store; its files are damaged"
    return NoLog(code=errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR, message=message)


def answer_of(broker: Broker, epoch: BrokerEpoch, info: control_pb2.ReplicaLogInfo | None) -> Answer:
    """What a broker says of a replica, as far as it can be true.

    Args:
        broker: as it is registered.
        epoch: broker epoch that it answered with.
        info: its answer; None: it said nothing of it.
    """
    if info is None:
        return NoLog(code=errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR, message="it was not in the broker's answer")
    present = info.error_code != errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    if present and info.error_code != errors_pb2.ERROR_CODE_NONE:
        return NoLog(code=info.error_code, message=UNUSABLE.message)
    log = ReplicaLog(
        broker_epoch=epoch,
        log_id=LogId(info.log_id),
        present=present,
        last_written_epoch=LeaderEpoch(info.last_written_leader_epoch),
        current_epoch=LeaderEpoch(info.current_leader_epoch),
        log_start_offset=info.log_start_offset,
        high_watermark=info.high_watermark,
        log_end_offset=info.log_end_offset,
        leading=info.leading,
    )
    if not is_of(broker, log):
        return NoLog(
            code=errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH, message="the broker has registered anew; look again"
        )
    if not is_sound(log):
        return NoLog(code=errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR, message="the answer contradicts itself")
    return log
