"""Leaders for restored partitions: every broker is heard first, then the newest log leads (``newest_logs``).

Goals: a cluster whose store was lost serves again as soon as that can lose nothing; what is held up says by what.

Algorithm: nothing at all happens where no restore left its mark. Otherwise each look waits until every broker that the
mark names is registered, and asks each live one, once in each of its lives, for all that its disks hold. What is
decided goes through the same writes as what a person recovers: nodes as they were read, and the live registration of
the chosen. What is held up is looked at again when a broker registers or its assignment changes. Replicas of topics
that the tree does not know are told of, and never touched (safety rule S13).

Cost: a report for each replica on a live broker, once; a few hundred bytes of memory for each until all are decided.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import structlog
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.backup.nodes import MARK, RestoreMark
from regnum_model.ids import BrokerEpoch, BrokerId, PartitionKey, TopicId
from regnum_model.nodes import MalformedNodeError
from regnum_service.errors import RegnumError
from regnum_service.slices import Turns, slices

from regnum_election.decisions.cluster import Broker, Topic
from regnum_election.decisions.topic_nodes import RESTORED, is_restored
from regnum_election.recovery.calls import PARTITIONS_MAX, PartitionRecoveries
from regnum_election.recovery.decisions import Answer, Assessment, assess, of_this_life
from regnum_election.recovery.newest_logs import Withheld, choose
from regnum_election.recovery.nodes import Recoverable
from regnum_election.recovery.survey import Survey, answer_of, believed
from regnum_election.reign.reign import DeposedError
from regnum_election.state.context import ControllerContext

INTERVAL_S: Final = 1.0
"""Pause between two looks."""

LOOKS_BEFORE_WORDS: Final = 3
"""Looks with the same brokers missing, before each partition says so: brokers start one after another."""

PAGE_S_MAX: Final = 10.0
"""Longest wait for a page of a broker's report."""

WAIT_S: Final = 30.0
"""Longest wait for the writes of one topic's partitions."""

PARTITIONS_PER_TURN: Final = 1_000
"""Partitions looked at between two turns of the event loop (safety rule S22)."""

INFOS_PER_TURN: Final = 200
"""Reports taken up between two turns of the event loop."""

NAMED: Final = 10
"""Replicas without a topic that the log names for each broker."""

Report = Mapping[PartitionKey, Answer]
"""What a broker has of restored partitions."""


class RestoredPartitions:
    """One for each reign. Looks beside the controller's task; what changes anything goes through its queue."""

    def __init__(self, context: ControllerContext, recoveries: PartitionRecoveries) -> None:
        """Only assigns."""
        self._context: Final = context
        self._recoveries: Final = recoveries
        self._survey: Final = Survey(context)
        self._reports: dict[BrokerId, tuple[BrokerEpoch, Report]] = {}
        self._asked: frozenset[PartitionKey] = frozenset()
        self._decided: dict[PartitionKey, object] = {}
        self._said = ""
        self._words = ""
        self._looks = 0
        self._log: Final = structlog.get_logger("restored").bind(epoch=context.reign.epoch)

    async def run(self, ready: Callable[[], Awaitable[None]]) -> None:
        """Look until nothing that was restored is left; a task of the reign."""
        await ready()
        try:
            while await self._mark() is not None:
                await self.look()
                await self._context.clock.sleep(INTERVAL_S)
        except DeposedError as error:
            # The reign's own task finds out by itself.
            self._log.info("restored partitions not looked at", reason=str(error))

    async def look(self) -> None:
        """Look once. Raises DeposedError."""
        topics = await self._restored()
        if not topics:
            self._reports, self._asked, self._decided = {}, frozenset(), {}
            return
        mark = await self._mark()
        if mark is None:
            return
        if not mark.whole:
            # Whose logs there were, and who has to be heard, stands there only at the end.
            await self._waits("the restore has not ended", topics)
            return
        missing = sorted(id for id in mark.brokers if id not in self._context.picture.brokers)
        if missing:
            await self._waits(f"brokers {missing} are not registered", topics)
            return
        if reason := await self._hear(topics):
            await self._waits(reason, topics)
            return
        self._said = self._words = ""
        lives = frozenset((id, epoch) for id, (epoch, _) in self._reports.items())
        for id, numbers in topics.items():
            topic = self._context.picture.topics.get(id)
            open_ = [number for number in numbers if self._is_open(PartitionKey(id, number), lives, mark)]
            for start in range(0, len(open_), PARTITIONS_MAX):
                if topic is not None:
                    await self._decide(topic, open_[start : start + PARTITIONS_MAX], mark, lives)

    async def _mark(self) -> RestoreMark | None:
        node = (await self._context.store.read_many((MARK,))).get(MARK)
        try:
            return None if node is None else RestoreMark.decode(node.data)
        except MalformedNodeError as error:
            self._log.error("restored partitions stay offline", reason=f"{MARK} cannot be read: {error}")
            return None

    async def _restored(self) -> dict[TopicId, list[int]]:
        """Restored partitions without a leader, by topic."""
        found: dict[TopicId, list[int]] = {}
        async for some in slices(self._context.picture.unled, PARTITIONS_PER_TURN):
            partitions = self._context.picture.partitions
            for key in some:
                partition = partitions.get(key)
                if partition is not None and is_restored(partition.trouble):
                    found.setdefault(key.topic_id, []).append(key.partition)
        return found

    def _basis(self, key: PartitionKey, lives: object, mark: RestoreMark) -> object:
        partition = self._context.picture.partitions.get(key)
        return lives, mark.brokers, None if partition is None else partition.replicas

    def _is_open(self, key: PartitionKey, lives: object, mark: RestoreMark) -> bool:
        """Whether something is known of a partition that was not when it was decided about."""
        return self._decided.get(key) != self._basis(key, lives, mark)

    async def _hear(self, topics: Mapping[TopicId, Sequence[int]]) -> str:
        """Have the report of every live broker; why not, if one is missing."""
        keys: set[PartitionKey] = set()
        for id, numbers in topics.items():
            keys.update(PartitionKey(id, number) for number in numbers)
        if not keys <= self._asked:
            self._reports, self._asked = {}, frozenset(keys)
        brokers = self._context.picture.brokers
        self._reports = {
            id: known for id, known in self._reports.items() if id in brokers and brokers[id].epoch == known[0]
        }
        for broker in tuple(brokers.values()):
            if broker.id in self._reports:
                continue
            try:
                self._reports[broker.id] = (broker.epoch, await self._report(broker))
            except RegnumError as error:
                return f"broker {broker.id} does not say what it has: {error.message}"
        return ""

    async def _report(self, broker: Broker) -> Report:
        """All that a broker has of restored partitions. Raises RegnumError."""
        report: dict[PartitionKey, Answer] = {}
        unknown: list[PartitionKey] = []
        after: control_pb2.ReplicaLogQuery | None = None
        turns = Turns(INFOS_PER_TURN)
        while True:
            page = await self._context.dispatch.all_replica_logs(broker, after, timeout_s=PAGE_S_MAX)
            if not page.listed:
                raise RegnumError(
                    errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION,
                    "it is of an earlier release, which cannot be asked for all of its replicas; upgrade it",
                )
            if page.broker_epoch != broker.epoch:
                raise RegnumError(errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH, "it has registered anew")
            for info in page.replicas:
                await turns.took()
                key = PartitionKey(TopicId(info.topic_id), info.partition)
                if key in self._asked:
                    report[key] = answer_of(broker, BrokerEpoch(page.broker_epoch), info)
                elif key not in self._context.picture.partitions and key.topic_id not in self._context.deletions:
                    unknown.append(key)
            if not page.more:
                break
            last = page.replicas[-1] if page.replicas else after
            before = ("", -1) if after is None else (after.topic_id, after.partition)
            if last is None or (last.topic_id, last.partition) <= before:
                raise RegnumError(errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR, "its pages do not go on")
            after = control_pb2.ReplicaLogQuery(topic_id=last.topic_id, partition=last.partition)
        if unknown:
            self._log.warning(
                "replicas that the restored tree does not know, kept on the disks",
                broker=broker.id,
                replicas=len(unknown),
                first=[f"{key.topic_id}/{key.partition}" for key in unknown[:NAMED]],
            )
        return report

    async def _decide(self, topic: Topic, numbers: Sequence[int], mark: RestoreMark, lives: object) -> None:
        _, recoverable = await self._survey.judge(topic, numbers)
        found: dict[int, tuple[Recoverable, Assessment]] = {}
        withheld: dict[PartitionKey, str] = {}
        turns = Turns(INFOS_PER_TURN)
        for number, one in recoverable.items():
            await turns.took()
            key = one.key
            self._decided[key] = self._basis(key, lives, mark)
            if not is_restored(one.reason):
                continue
            answers = {
                id: of_this_life(believed(report[key], one.known_epoch), one.partition.began)
                for id, (_, report) in self._reports.items()
                if key in report
            }
            picture = self._context.picture
            verdict = choose(
                one.partition.replicas,
                answers,
                mark.logs,
                holders=one.holders,
                min_insync=picture.min_insync(key, one.partition),
            )
            if isinstance(verdict, Withheld):
                withheld[key] = f"{RESTORED}; {verdict.reason}; see regnum partitions recover"
                continue
            own = {id: answers[id] for id in one.partition.replicas}
            chosen = assess(one.partition.replicas, None, own, leaving=picture.leaving)
            # The leader epoch is to be above what any log knows, also of those that are not assigned.
            found[number] = (one, replace(chosen, answers={**answers, **chosen.answers}))
        if withheld:
            self._context.defer("what restored partitions wait for", self._tell(withheld, as_news=True))
        if not found:
            return
        try:
            done = await self._recoveries.elect_restored(topic, found, wait_s=WAIT_S)
        except RegnumError as error:
            self._log.info("restored partitions not elected; they are tried again", reason=error.message)
            done = {}
        for number in found:
            if not isinstance(done.get(number), int):
                self._decided.pop(PartitionKey(topic.id, number), None)

    async def _waits(self, reason: str, topics: Mapping[TopicId, Sequence[int]]) -> None:
        """Nothing can be decided yet: the log says so at once, the partitions if it stays so."""
        self._looks = self._looks + 1 if reason == self._said else 1
        if reason != self._said:
            self._said = reason
            self._log.warning("restored partitions wait", reason=reason, topics=len(topics))
        if self._looks < LOOKS_BEFORE_WORDS or self._words == reason:
            return
        self._words = reason
        words = f"{RESTORED}; {reason}"
        keys = {PartitionKey(id, number): words for id, numbers in topics.items() for number in numbers}
        self._context.defer("what restored partitions wait for", self._tell(keys, as_news=False))

    async def _tell(self, troubles: Mapping[PartitionKey, str], *, as_news: bool) -> AsyncGenerator[None, None]:
        """In the controller's task: partitions say what they wait for."""
        context = self._context
        async for some in slices(tuple(troubles.items()), PARTITIONS_PER_TURN):
            partitions = context.picture.partitions
            # Whatever happened to a partition meanwhile counts, and not this.
            still = {
                key: words
                for key, words in some
                if (one := partitions.get(key)) is not None and is_restored(one.trouble) and one.trouble != words
            }
            if as_news:
                context.trouble(still)
            elif still:
                context.picture = context.picture.with_trouble(still)
                context.metadata.changed(still)
            yield
