"""Appending what clients produce.

Goals: a record is acknowledged only by a broker that led from the append to the answer; an idempotent producer's
repeat is answered with its first offset, and not before that is committed; bad input changes nothing.

Algorithm: admission on the event loop (leader, min.insync); then batches are unpacked and checked beside the writer, in
turn by caller (``produce_checks``), but for small ones without compression; then one job on the writer thread for every
two hundred partitions of what came together: check the small ones, check the sequence, assign offsets, append
(``produce_appends``); then followers are woken. With acks all the answer waits until the high
watermark has passed the last record (``produce_answers``). A leader epoch that begins while it waits, or before it is
admitted, is nothing to a producer where this broker leads in it (``promised_leaders``). A broker that is deposed after
the append answers NOT_ENOUGH_REPLICAS_AFTER_APPEND: the outcome is the next leader's to tell. NOT_LEADER_OR_FOLLOWER is
kept for what was not appended, because a producer may send that under another producer id.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog
from regnum.types.v1 import errors_pb2
from regnum_model.access import Operation, ResourceType
from regnum_model.topics import INTERNAL_TOPICS
from regnum_service.access.authorization import EVERYBODY, Authorizer, Right
from regnum_service.clock import Clock
from regnum_service.errors import Code, RegnumError
from regnum_service.limits.budget import OF_UNPACKED
from regnum_service.limits.call import OWN, Call
from regnum_service.limits.held_bytes import HeldBytes
from regnum_service.slices import Turns, next_turn
from regnum_service.supervisor import Supervisor
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics

from regnum_broker.log.errors import StorageError
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Role
from regnum_broker.replication.purgatory import AckOutcome
from regnum_broker.replication.replicas import NotHere, Replicas
from regnum_broker.replication.sessions.fresh_appends import FreshAppends
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.error_counts import ErrorCounts
from regnum_broker.serving.produce_answers import DEPOSED_AFTER_APPEND, SLICE, PendingAnswer, PendingAnswers, refuse
from regnum_broker.serving.produce_appends import (
    DEPOSED,
    Admitted,
    Done,
    Outcome,
    Refused,
    Waiting,
    append_some,
    record_first_append,
)
from regnum_broker.serving.produce_checks import BatchChecks, Line, all_through, waits_for_nothing
from regnum_broker.serving.produce_requests import (
    Acks,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
    check_request,
    wrong_in,
)
from regnum_broker.serving.promised_leaders import PromisedLeaders
from regnum_broker.serving.topic_traffic import TopicTraffic
from regnum_broker.storage import Storage

TIMEOUT_MS_DEFAULT: Final = 30_000
TIMEOUT_MS_MAX: Final = 300_000

WRITE_TOPIC: Final = Right(Operation.WRITE, ResourceType.TOPIC)

CHECKED_AT_ONCE: Final = 10_000
"""Partitions of requests that came together whose form is looked at between two turns of the event loop."""

_BUSY: Final = (
    "more waits to be written here than this broker has memory for; nothing was appended: wait, and try again"
)

Told = Callable[[int, ProduceResponse | RegnumError], None]
"""Takes the answer to a request by its place among those that came together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAppend:
    """What became of a batch of the broker's own."""

    code: Code
    """NONE: every in-sync replica has it."""
    message: str
    """Why not."""
    put_off: bool = False
    """Nothing was appended, and the same leader may take the same batch later."""


class ProduceHandler:
    """Serves Produce. Belongs to the event loop."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        leaders: CurrentLeaders,
        storage: Storage,
        clock: Clock,
        batch_bytes_max: int,
        supervisor: Supervisor,
        fresh: FreshAppends | None = None,
        metrics: Metrics | None = None,
        traffic: TopicTraffic | None = None,
        authorizer: Authorizer = EVERYBODY,
        unpacked: HeldBytes | None = None,
    ) -> None:
        self._authorizer: Final = authorizer
        self._fresh: Final = fresh or FreshAppends()
        counted = metrics or Metrics()
        self._traffic: Final = traffic or TopicTraffic()
        self._errors: Final = ErrorCounts(counted, instruments.PRODUCE_ERRORS)
        self._bytes: Final = counted.counter(instruments.BYTES_IN)
        self._records: Final = counted.counter(instruments.RECORDS_IN)
        self._refused: Final = counted.counter(instruments.BATCHES_REFUSED)
        self._durations: Final = counted.histogram(instruments.PRODUCE_DURATION)
        self._replicas: Final = replicas
        self._leaders: Final = leaders
        self._storage: Final = storage
        self._clock: Final = clock
        self._batch_bytes_max: Final = batch_bytes_max
        self._supervisor: Final = supervisor
        self._log: Final = structlog.get_logger("produce")
        self._answers: Final = PendingAnswers(
            complete=self._complete,
            took=self._note_duration,
            supervisor=supervisor,
            first=replicas.first_acknowledgements,
        )
        self._promised: Final = PromisedLeaders(
            admit=self._admit, append=self._append, refuse=self._answers.refused, supervisor=supervisor
        )
        self._checks: Final = BatchChecks(
            storage=storage,
            clock=clock,
            bytes_max=batch_bytes_max,
            unpacked=unpacked or HeldBytes(OF_UNPACKED),
            hand_in=self._hand_in_checked,
            refuse=self._answers.refused,
            supervisor=supervisor,
        )

    async def produce(
        self, request: ProduceRequest, *, waitable_s: float = math.inf, call: Call = OWN
    ) -> ProduceResponse:
        """Append for a call and wait for acks, for ``waitable_s`` at most: the caller hears no later answer.

        Raises:
            RegnumError: the request contradicts itself.
        """
        check_request(request)
        answer: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
        pending = self._begin(request, partial(_answer, answer), call)
        try:
            await self._bring([(pending, request)], waitable_s=waitable_s)
            return await answer
        finally:
            pending.give_up()

    async def take(
        self, requests: Sequence[ProduceRequest], told: Told, *, call: Call = OWN
    ) -> dict[int, PendingAnswer]:
        """Take requests that came together: append them in their order, tell the answer to each when it has come about.

        Returns once they are on their way to the writer, which may mean a wait for room: those that are not answered
        yet, by place.
        Whoever gives one up hears no more of it.
        """
        taken: dict[int, tuple[PendingAnswer, ProduceRequest]] = {}
        turns = Turns(CHECKED_AT_ONCE)
        for place, request in enumerate(requests):
            try:
                check_request(request)
            except RegnumError as error:
                told(place, error)
            else:
                taken[place] = (self._begin(request, partial(told, place), call), request)
            await turns.took(len(request.partitions))
        try:
            await self._bring(tuple(taken.values()))
        except asyncio.CancelledError:
            for pending, _ in taken.values():
                pending.give_up()
            raise
        return {place: pending for place, (pending, _) in taken.items() if not pending.ended}

    def _begin(self, request: ProduceRequest, answered: Callable[[ProduceResponse], None], call: Call) -> PendingAnswer:
        acks, began_s = request.acks or Acks.ALL, self._clock.monotonic()
        call = call.named(request.client_id)
        return PendingAnswer(self._answers, answered, acks=acks, began_s=began_s, call=call)

    async def _bring(
        self, requests: Sequence[tuple[PendingAnswer, ProduceRequest]], *, waitable_s: float = math.inf
    ) -> None:
        """Admit what requests bring, and hand it to the writer."""
        now_s = asyncio.get_running_loop().time()
        admitted: list[Admitted] = []
        turns = Turns(SLICE)
        for pending, request in requests:
            for index, message in enumerate(request.partitions):
                await turns.took()
                result = ProduceResult(message.topic, message.partition)
                pending.results.append(result)
                size_bytes = message.size_bytes
                found = _malformed(message, size_bytes) or self._admit(message, acks=pending.acks)
                soon = self._promised.led_soon(found, acks=pending.acks)
                if soon is not None:
                    self._promised.wait(soon, Waiting(pending=pending, index=index, message=message))
                elif isinstance(found, Leadership):
                    pending.open[index] = item = Admitted(
                        pending=pending, index=index, leadership=found, message=message, size_bytes=size_bytes
                    )
                    admitted.append(item)
                else:
                    refuse(result, found.code, found.message)
            pending.coming = False
        if admitted:
            await self._append(admitted)
        for pending, request in requests:
            if not pending.open or pending.acks == Acks.NONE:
                pending.open.clear()
                self._answers.finish(pending)
            else:
                timeout_s = min(min(request.timeout_ms or TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX) / 1000, waitable_s)
                self._answers.until(pending, now_s + timeout_s)

    def _complete(self, results: Sequence[ProduceResult]) -> None:
        """Add what refusals lack."""
        refused = 0
        for result in results:
            if result.error_code != errors_pb2.ERROR_CODE_NONE:
                self._leaders.complete(result)
                self._errors.add(result.error_code)
                refused += 1
        if refused:
            self._refused.add(refused)

    def _note_duration(self, began_s: float) -> None:
        self._durations.record(self._clock.monotonic() - began_s)

    async def append(self, leadership: Leadership, batch: bytes) -> OwnAppend:
        """Append a batch of the broker's own under one leadership, as a produce request with acks all would be.

        Returns when it is committed, however long that takes, or never will be by this leader. Once the writer has it,
        cancelling the caller changes nothing.
        """
        refused = self._own_refusal(leadership, len(batch))
        if refused is not None:
            return refused
        message = ProducePartition(leadership.partition.topic, leadership.partition.key.partition, batch)
        item = Admitted(pending=None, index=0, leadership=leadership, message=message, size_bytes=len(batch))
        unfit = await self._checks.check_own(item)
        if unfit is not None:
            return OwnAppend(code=unfit.code, message=unfit.message)
        appending = await self._hand_in((item,))
        try:
            (outcome,) = await asyncio.shield(appending)
        except StorageError as error:
            return OwnAppend(code=errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, message=str(error))
        if isinstance(outcome, Refused):
            return OwnAppend(code=outcome.code, message=outcome.message, put_off=outcome.put_off)
        if await _is_committed(leadership, outcome.last_offset + 1):
            return OwnAppend(code=errors_pb2.ERROR_CODE_NONE, message="")
        return OwnAppend(code=errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND, message=DEPOSED_AFTER_APPEND)

    def _own_refusal(self, leadership: Leadership, size_bytes: int) -> OwnAppend | None:
        """Why a batch of the broker's own is not handed in."""
        if leadership.cut_off or leadership.partition.role is not leadership:
            return OwnAppend(code=errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER, message=DEPOSED)
        if not leadership.isr_sufficient:
            message = leadership.insufficiency
            return OwnAppend(code=errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS, message=message, put_off=True)
        if not self._storage.takes(size_bytes):
            return OwnAppend(code=errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, message=_BUSY, put_off=True)
        return None

    def causes(self, request: ProduceRequest) -> list[tuple[int, str]]:
        """What made this broker leader of the partitions of a request, by their places in it; only what is known.

        Of topics that the caller may not write nothing is said: a cause says that there is such a topic.
        """
        causes: list[tuple[int, str]] = []
        for index, message in enumerate(request.partitions):
            if not WRITE_TOPIC.held(self._authorizer, message.topic, audit=False):
                continue
            found = self._replicas.find_leader(message.topic, message.topic_id, message.partition, known=True)
            if isinstance(found, Leadership) and found.cause:
                causes.append((index, found.cause))
        return causes

    def _admit(self, message: ProducePartition, *, acks: int) -> Leadership | NotHere:
        if not WRITE_TOPIC.held(self._authorizer, message.topic):
            refused = WRITE_TOPIC.refusal(message.topic)
            return NotHere(refused.code, refused.message)
        if message.topic in INTERNAL_TOPICS:
            return NotHere(
                errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION,
                f"{message.topic} is an internal topic, written by coordinators of groups only: use OffsetCommit",
            )
        known = self._leaders.knows(message.topic, message.partition)
        found = self._replicas.find_leader(message.topic, message.topic_id, message.partition, known=known)
        if isinstance(found, Leadership) and acks == Acks.ALL and not found.isr_sufficient:
            if found.new is not None:
                found.new.refused()
            return NotHere(
                errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS,
                f"{found.insufficiency}; nothing was appended: try again",
            )
        return found

    async def _append(self, admitted: Sequence[Admitted]) -> None:
        """Hand to the writer what is checked there, and have the rest checked first; waits for room only.

        What comes of a producer that waits for no answer is waited for, too: its request is over with it.
        """
        now_ms, turns = self._clock.wall_ms(), Turns(SLICE)
        for item in admitted:
            await turns.took()
            item.came_ms, item.size_bytes = now_ms, item.size_bytes or item.message.size_bytes
        size_bytes = sum(item.size_bytes for item in admitted)
        if not self._storage.takes(size_bytes, beside_bytes=self._checks.size_bytes):
            for item in admitted:
                self._answers.refused(item, errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, _BUSY)
            return
        at_once: list[Admitted] = []
        in_lines: defaultdict[Line, list[Admitted]] = defaultdict(list)
        turns = Turns(SLICE)
        try:
            for item in admitted:
                await turns.took()
                line = self._checks.line_of(item)
                (at_once if line is None else in_lines[line]).append(item)
            await self._hand_in_all(at_once)
        finally:
            # Behind those of the same partitions that came before them; of a call that has ended, to be passed over.
            for line, items in in_lines.items():
                self._checks.enter(line, items)
        if waits_for_nothing(admitted):
            await all_through(admitted)

    async def _hand_in_checked(self, items: Sequence[Admitted]) -> None:
        """Those whose leadership has ended meanwhile go behind the others that wait for the next."""
        await self._hand_in_all([item for item in items if not self._promised.takes_back(item)])

    async def _hand_in_all(self, items: Sequence[Admitted]) -> None:
        together: list[Admitted] = []
        turns = Turns(SLICE)
        for item in items:
            await turns.took()
            if item.leadership.partition.log.settings.flush_messages is None:
                together.append(item)
            else:
                # A job of its own: it may have to wait for the disk, and the others' followers are not to wait with it.
                # Behind what came before it, which may be of the same partition and from before the setting.
                await self._hand_in_together(together)
                together = []
                await self._hand_in((item,))
        await self._hand_in_together(together)

    async def _hand_in_together(self, items: Sequence[Admitted]) -> None:
        # (A generator for the few that there are most often would cost more than all else here.)
        for start in range(0, len(items), SLICE):
            if start:
                await next_turn()
            await self._hand_in(tuple(items[start : start + SLICE]))

    async def _hand_in(self, items: tuple[Admitted, ...]) -> asyncio.Future[list[Outcome]]:
        """Hand a job to the writer; the future is its outcome."""
        bytes_max, directory, clock = self._batch_bytes_max, self._storage.directory, self._clock

        def append() -> list[Outcome]:
            with directory.many_appends():
                return append_some(items, bytes_max=bytes_max, now_s=clock.monotonic, wall_ms=clock.wall_ms)

        appending = await self._storage.write_later(append, size_bytes=sum(item.size_bytes for item in items))
        # The followers hear of it even when the caller is gone: the completion does not hang on this call.
        appending.add_done_callback(self._supervisor.guarded("append", lambda done: self._appended(items, done)))
        return appending

    def _appended(self, admitted: Sequence[Admitted], appending: asyncio.Future[list[Outcome]]) -> None:
        """Wake followers and move high watermarks, as soon as the records are in the log."""
        error = appending.exception()
        if isinstance(error, StorageError):
            self._log.error("append failed", reason=str(error))
            for item in admitted:
                self._answers.refused(item, errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, str(error))
            return
        if error is not None:
            # Nobody else may be listening: a caller that does not wait, or that is gone.
            raise error
        now_s = self._clock.monotonic()
        outcomes = appending.result()
        for item in admitted:
            item.charge()
        self._count(admitted, outcomes)
        for item, outcome in zip(admitted, outcomes, strict=True):
            if isinstance(outcome, Done):
                self._tell_leadership(item, outcome, now_s)
        for item, outcome in zip(admitted, outcomes, strict=True):
            if not self._promised.goes_again(item, outcome):
                self._answers.appended(item, outcome)

    def _tell_leadership(self, item: Admitted, outcome: Done, now_s: float) -> None:
        leadership = item.leadership
        role = leadership.partition.role
        if role is not leadership:
            # If it leads, it began while they were on their way to the disk: nobody else says that they are there.
            _tell_shown(role, now_s)
            return
        if leadership.new is not None:
            # A repeat counts: the leader before had replicated it, and this is what its producer waits for.
            record_first_append(item, outcome)
        if outcome.duplicate:
            _tell_shown(leadership, now_s)
            return
        if leadership.has_followers:
            self._fresh.note(
                leadership, outcome.batch, base_offset=outcome.base_offset, last_offset=outcome.last_offset
            )
        leadership.appended(outcome.base_offset, now_s=now_s)

    def _count(self, admitted: Sequence[Admitted], outcomes: Sequence[Outcome]) -> None:
        """What was appended: all together once for the job, and for each batch only its topic's two additions."""
        records = size = 0
        for item, outcome in zip(admitted, outcomes, strict=True):
            if isinstance(outcome, Done) and not outcome.duplicate:
                added, added_bytes = outcome.last_offset - outcome.base_offset + 1, len(outcome.batch)
                self._traffic.of(item.leadership.partition.topic).appended(added, added_bytes)
                records += added
                size += added_bytes
        self._records.add(records)
        self._bytes.add(size)


def _malformed(message: ProducePartition, size_bytes: int) -> NotHere | None:
    wrong = wrong_in(message, size_bytes)
    return NotHere(errors_pb2.ERROR_CODE_INVALID_REQUEST, wrong) if wrong else None


def _answer(answer: asyncio.Future[ProduceResponse], response: ProduceResponse) -> None:
    """Unless its caller has just left: its task hears of that in the next turn, and gives the request up then."""
    if not answer.done():
        answer.set_result(response)


def _tell_shown(role: Role | None, now_s: float) -> None:
    """Records were brought to the disk (``flush.messages``) that were not appended under this leadership."""
    if isinstance(role, Leadership) and role.partition.high_watermark < role.partition.log.log_end_offset:
        role.partition.appended.fire()
        role.advance(now_s)


async def _is_committed(leadership: Leadership, end: int) -> bool:
    """Wait until all below ``end`` is committed. False: the leadership ended before."""
    partition = leadership.partition
    if partition.role is not leadership or leadership.cut_off:
        return False
    return partition.high_watermark >= end or await partition.acks.wait_for(end) is AckOutcome.COMMITTED
