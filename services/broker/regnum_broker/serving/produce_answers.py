"""Produce requests under way: what their partitions have come to, and when they are answered.

Goals: a request costs the loop no task and no future of its own, and its partitions cost none either; thousands that
end at once do not hold the loop (safety rule S22).

Algorithm: each partition that waits for replicas stands in the queue of its partition. What is told there is noted, and
taken up in one turn for all that ended together. A request is answered when nothing of it is open, or when its time is
up. Times are kept in steps of STEP_S, rounded down: an answer that is early is one, one that is late may find nobody.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_service.errors import Code
from regnum_service.limits.call import OWN, Call
from regnum_service.slices import slices
from regnum_service.supervisor import Supervisor

from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.purgatory import AckOutcome
from regnum_broker.replication.sessions.first_acknowledgements import FirstAcknowledgements
from regnum_broker.serving.produce_appends import LET_GO, Admitted, Outcome, Refused, Waiting, record_replicated
from regnum_broker.serving.produce_requests import Acks, ProduceResponse, ProduceResult

SLICE: Final = 200
"""Partitions looked at between two turns of the event loop (safety rule S22)."""

STEP_S: Final = 0.02
"""How exactly time-outs are kept."""

Answered = Callable[[ProduceResponse], None]
"""Takes the answer of a request, once."""

NOT_CHECKED: Final = (
    "what this caller has sent takes long to be checked, and this has not been in time; nothing was appended: send the"
    " batch again"
)

NOT_YET: Final = "this broker is to lead and has not recorded it in time; nothing was appended: send the batch again"

DEPOSED_AFTER_APPEND: Final = (
    "this broker was replaced as leader, or may have been, after it had appended the records; they may be committed:"
    " refresh metadata and send the batch to the leader again, with the same numbers"
)


class PendingAnswer:
    """One request until it is answered, or given up by its caller."""

    __slots__ = (
        "_answered",
        "_book",
        "_given_up",
        "acks",
        "began_s",
        "call",
        "coming",
        "context",
        "ended",
        "open",
        "results",
        "step",
    )

    def __init__(
        self,
        book: "PendingAnswers",
        answered: Answered,
        *,
        acks: int,
        began_s: float,
        call: Call = OWN,
    ) -> None:
        self._book: Final = book
        self._answered: Final = answered
        self.acks: Final = acks
        self.began_s: Final = began_s
        """When it came, monotonic seconds."""
        self.call: Final = call
        """Who pays for what threads do for it."""
        self.context: Final = copy_context()
        """In which it came: who calls. What is admitted later is admitted in there."""
        self.results: Final[list[ProduceResult]] = []
        """One for each partition of the request, in its order."""
        self.open: Final[dict[int, Admitted | Waiting]] = {}
        """Partitions whose outcome is not known yet, by their places."""
        self.coming = True
        """Whether partitions of it are still to be looked at: what has come about is not all there is."""
        self._given_up = False
        self.ended = False
        """Whether it is answered, or nobody waits for it."""
        self.step = 0
        """When its time is up; 0: it has none yet."""

    def give_up(self) -> None:
        """Nobody waits for it any more. What the writer has stays."""
        self.ended = self._given_up = True
        for item in self.open.values():
            item.let_go()
        self._book.forget(self)

    def answer(self) -> None:
        """Hand the answer over, if somebody waits for it."""
        if not self._given_up:
            self._answered(ProduceResponse(results=self.results))


class PendingAnswers:
    """All requests under way. Belongs to the event loop."""

    def __init__(
        self,
        *,
        complete: Callable[[Sequence[ProduceResult]], None],
        took: Callable[[float], None],
        supervisor: Supervisor,
        first: FirstAcknowledgements | None = None,
    ) -> None:
        """Only assigns.

        Args:
            complete: called with results, SLICE at most, before they are handed over.
            took: called with the moment at which an answered request came, monotonic seconds.
            supervisor: stops the service when something here fails.
            first: hears of partitions that are acknowledged while it awaits some; None: they are not told of.
        """
        self._first: Final = first or FirstAcknowledgements()
        self._complete: Final = complete
        self._took: Final = took
        self._supervisor: Final = supervisor
        self._told: Final[deque[tuple[Admitted, AckOutcome]]] = deque()
        self._taking_up = False
        self._large: Final[deque[PendingAnswer]] = deque()
        """Those that end in several turns: one after another, for all of them together would be one long turn."""
        self._steps: Final[dict[int, dict[PendingAnswer, None]]] = {}
        """Requests by the moment at which their time is up."""

    def until(self, pending: PendingAnswer, deadline_s: float) -> None:
        """Answer a request by then, in seconds of the loop's clock, whatever is known."""
        if pending.ended:
            return
        pending.step = math.floor(deadline_s / STEP_S)
        due = self._steps.get(pending.step)
        if due is None:
            due = self._steps[pending.step] = {}
            guarded = self._supervisor.guarded("produce time-outs", partial(self._expire, pending.step))
            asyncio.get_running_loop().call_at(pending.step * STEP_S, guarded)
        due[pending] = None

    def forget(self, pending: PendingAnswer) -> None:
        """Its time counts no longer."""
        due = self._steps.get(pending.step)
        if due is not None:
            due.pop(pending, None)

    def appended(self, item: Admitted, outcome: Outcome) -> None:
        """Take up what the writer says of a partition: it is settled, or waits for the high watermark."""
        pending = item.pending
        if pending is None or pending.ended:
            return
        end = _fill_in(pending.results[item.index], item.leadership, outcome, acks=pending.acks)
        if end is None:
            self._settle(pending, item.index)
        else:
            # Its request may be answered long before that, and what it brought is counted only until then.
            item.message, item.checked = LET_GO, None
            item.replicating = item.leadership.partition.acks.tell(end, partial(self._tell, item))

    def refused(self, item: Admitted | Waiting, code: Code, message: str) -> None:
        """Nothing was appended to a partition."""
        pending = item.pending
        if pending is not None and not pending.ended:
            refuse(pending.results[item.index], code, message)
            self._settle(pending, item.index)

    def finish(self, pending: PendingAnswer) -> None:
        """Answer a request with what is known; what is open has not come about in time."""
        if pending.ended:
            return
        pending.ended = True
        self.forget(pending)
        if len(pending.results) > SLICE:
            self._large.append(pending)
            if len(self._large) == 1:
                self._supervisor.start("produce: large answers", self._finish_large())
            return
        for index, item in pending.open.items():
            _time_out(pending.results[index], item)
        self._complete(pending.results)
        self._took(pending.began_s)
        pending.answer()

    async def _finish_large(self) -> None:
        while self._large:
            await self._finish_in_turns(self._large[0])
            self._large.popleft()
            await asyncio.sleep(0)

    async def _finish_in_turns(self, pending: PendingAnswer) -> None:
        async for part in slices(pending.open.items(), SLICE):
            for index, item in part:
                _time_out(pending.results[index], item)
        async for results in slices(pending.results, SLICE):
            self._complete(results)
        self._took(pending.began_s)
        pending.answer()

    def _settle(self, pending: PendingAnswer, index: int) -> None:
        item = pending.open.pop(index)
        if self._first.awaited and isinstance(item, Admitted) and not pending.results[index].error_code:
            self._first.acknowledged(item.leadership.partition.key)
        if not pending.open and not pending.coming:
            self.finish(pending)

    def _tell(self, item: Admitted, outcome: AckOutcome) -> None:
        """Within a turn that moves a high watermark, or deposes a leader: note it only."""
        self._told.append((item, outcome))
        if not self._taking_up:
            self._taking_up = True
            asyncio.get_running_loop().call_soon(self._supervisor.guarded("produce answers", self._take_up))

    def _take_up(self) -> None:
        for _ in range(min(len(self._told), SLICE)):
            item, outcome = self._told.popleft()
            pending = item.pending
            if pending is None or pending.ended:
                continue
            result = pending.results[item.index]
            if outcome is AckOutcome.DEPOSED:
                refuse(result, errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND, DEPOSED_AFTER_APPEND)
            else:
                leadership = _present(item.leadership)
                _check_isr(result, leadership)
                freed = leadership.partition.freed
                if freed is not None and freed.has(result.base_offset):
                    result.isr_change = freed.cause
                    freed.record(leadership, item.came_ms * 1_000_000, result.base_offset)
                if item.first_unix_nano:
                    record_replicated(item)
            self._settle(pending, item.index)
        self._taking_up = bool(self._told)
        if self._taking_up:
            asyncio.get_running_loop().call_soon(self._supervisor.guarded("produce answers", self._take_up))

    def _expire(self, step: int) -> None:
        due, done = self._steps[step], 0
        while due and done < SLICE:
            pending = next(iter(due))
            done += len(pending.results)
            self.finish(pending)
        if due:
            asyncio.get_running_loop().call_soon(
                self._supervisor.guarded("produce time-outs", partial(self._expire, step))
            )
        else:
            del self._steps[step]


def refuse(result: ProduceResult, code: Code, message: str) -> None:
    """Say that nothing is confirmed, and why."""
    result.error_code, result.error_message, result.base_offset = code, message, -1


def _fill_in(result: ProduceResult, leadership: Leadership, outcome: Outcome, *, acks: int) -> int | None:
    """Fill a result in; returns the high watermark that still has to be reached for it, None if nothing has."""
    if isinstance(outcome, Refused):
        refuse(result, outcome.code, outcome.message)
        return None
    partition = leadership.partition
    result.base_offset, result.log_start_offset = outcome.base_offset, partition.log.log_start_offset
    if outcome.append_ms is not None:
        result.log_append_time_ms = outcome.append_ms
    if partition.tenure is not leadership.tenure or leadership.cut_off:
        refuse(result, errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND, DEPOSED_AFTER_APPEND)
    elif acks == Acks.ALL:
        if partition.high_watermark <= outcome.last_offset:
            return outcome.last_offset + 1
        _check_isr(result, _present(leadership))
    return None


def _present(leadership: Leadership) -> Leadership:
    """The leadership of the same tenure that there is now; the one given, while the next is being recorded."""
    role = leadership.partition.role
    return role if isinstance(role, Leadership) else leadership


def _time_out(result: ProduceResult, item: Admitted | Waiting) -> None:
    item.let_go()
    if isinstance(item, Waiting):
        refuse(result, errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER, NOT_YET)
        return
    if item.in_line:
        refuse(result, errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, NOT_CHECKED)
        return
    leadership = _present(item.leadership)
    if item.message is not LET_GO:
        refuse(
            result,
            errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
            f"broker {leadership.broker} has not appended the records in time: its disk is slow, or does not answer; "
            "they may still be appended",
        )
    elif leadership.isr_sufficient:
        refuse(
            result,
            errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
            f"the in-sync replicas did not confirm in time{_lacking(leadership)}; the records may still be committed",
        )
    else:
        _check_isr(result, leadership)


def _check_isr(result: ProduceResult, leadership: Leadership) -> None:
    if not leadership.isr_sufficient:
        refuse(
            result,
            errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            f"the records were appended and too few replicas are in sync now ({leadership.insufficiency}); they may "
            "still be committed",
        )


def _lacking(leadership: Leadership) -> str:
    """Which of them lack records, with what is known of why."""
    end, why = leadership.partition.log.log_end_offset, leadership.storing_nothing
    lacking = [
        f"broker {id} ({why[id]})" if id in why else f"broker {id}"
        for id in leadership.state.isr
        if (progress := leadership.progress_of(id)) is not None and progress.log_end_offset < end
    ]
    return f": waiting for {', '.join(lacking)}" if lacking else ""
