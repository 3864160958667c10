"""Admission of mutations before they are queued: by the active quota process, or by the stand-in while none answers.

Goals: nobody waits for the quota process but those who want a mutation; many callers cost few calls; nothing is
charged twice; a quota process that goes costs its callers a second once, and nobody else anything.

Constraints: an answer may be lost after the charge, so a repeat carries the same request ids. A caller may go away
after it, so the verdict stands whether or not he waits; who goes before it was asked for is never charged. What a
quota process does not know (one that begins, or that was away while the stand-in admitted) it is told before it judges.

Algorithm: one task, one call in flight; all that wait meanwhile go in the next one. A call that fails, or that another
process should have got, is repeated while the patience of its first attempt lasts. Then the stand-in begins, and
judges at once; the quota process is called again and again, with nothing to judge, until it answers.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog
from regnum.quota.v1 import quota_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.bucket import Bucket
from regnum_model.quota_matching import BucketKey, limits_on
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError, reason_of
from regnum_telemetry.instruments import election as instruments
from regnum_telemetry.metrics import Metrics

from regnum_election.admission.kept_buckets import KeptBuckets
from regnum_election.admission.quota_book import QuotaBook
from regnum_election.admission.quota_process import ActiveQuotaProcess, QuotaChannel
from regnum_election.admission.stand_in import Account, QuotaStandIn, Verdict
from regnum_election.reign.request_queue import cut_off

PATIENCE_S: Final = 1.0
"""How long callers wait for a quota process; also the longest deadline of a call."""

REPEAT_INTERVAL_S: Final = 0.05
"""Pause before a call that was refused is repeated."""

PROBE_INTERVAL_S: Final = 0.5
"""Pause between two looks for a quota process while the stand-in acts."""

WAITING_MAX: Final = 2_000
"""Requests that may wait for admission."""

MUTATIONS_PER_CALL: Final = 2_000
"""Mutations of one call, and of one turn of the event loop (safety rule S22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A mutation and what it costs."""

    name: str
    """What is changed: a topic."""
    permits: int
    """Partitions that are created or deleted."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Waiting:
    account: Account
    costs: Sequence[Cost]
    message: quota_pb2.Admission
    verdict: "asyncio.Future[Verdict]"


class _ProcessChangedError(Exception):
    """Another process decides now."""


class Admissions:
    """Judges what callers want; one for each reign."""

    def __init__(
        self,
        *,
        name: str,
        book: QuotaBook,
        process: ActiveQuotaProcess,
        kept: KeptBuckets,
        stand_in: QuotaStandIn,
        clock: Clock,
        metrics: Metrics | None = None,
    ) -> None:
        """Only assigns.

        Args:
            name: unique name of the reign's process; request ids begin with it.
            book: the quotas.
            process: who judges.
            kept: what he answered last.
            stand_in: who judges while nobody answers.
            clock: source of time.
            metrics: where decisions are counted; None: nobody asks.
        """
        self._metrics = metrics or Metrics()
        self._name = name
        self._book = book
        self._process = process
        self._kept = kept
        self._stand_in = stand_in
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()
        self._in_flight: Sequence[_Waiting] = ()
        self._wake = asyncio.Event()
        self._requests = 0
        self._told: str | None = None
        """Incarnation that has everything that is kept."""
        self._absences = 0
        self._absent = asyncio.Event()
        self._over = False
        self._log = structlog.get_logger("admissions")

    @property
    def absences(self) -> int:
        """How often the stand-in has begun."""
        return self._absences

    @property
    def stands_in(self) -> bool:
        """Whether no quota process answers at present."""
        return self._stand_in.is_acting

    def may_throttle(self, account: Account) -> bool:
        """Whether a quota counts for a caller, or may, for all that is known before the quotas are read."""
        if not self._book.is_read:
            return True
        return bool(limits_on(self._book.table.limits, account.user, account.client_id))

    async def applies_to(self, account: Account) -> bool:
        """Whether any quota counts for a caller; waits until the quotas are read."""
        table = await self._book.known()
        return bool(limits_on(table.limits, account.user, account.client_id))

    async def judge(
        self, account: Account, costs: Sequence[Cost], asked: Callable[[int, "asyncio.Future[Verdict]"], None]
    ) -> Verdict:
        """Admit or refuse mutations; what is admitted has been charged. Raises RegnumError.

        Args:
            account: who wants them.
            costs: what each costs.
            asked: called with the place of the first of MUTATIONS_PER_CALL mutations, and where it will stand what was
                decided about these: also when nobody waits here any more. Not called where no quota counts.
        """
        if not costs or not await self.applies_to(account):
            return Verdict(admitted=(True,) * len(costs), throttle_ms=0)
        admitted: list[bool] = []
        throttle_ms = 0
        for start in range(0, len(costs), MUTATIONS_PER_CALL):
            part = await self._judge(account, costs[start : start + MUTATIONS_PER_CALL], partial(asked, start))
            self._count(part)
            admitted.extend(part.admitted)
            throttle_ms = max(throttle_ms, part.throttle_ms)
        return Verdict(admitted=tuple(admitted), throttle_ms=throttle_ms)

    def _count(self, verdict: Verdict) -> None:
        by = "controller" if self.stands_in else "quota"
        yes = sum(verdict.admitted)
        self._metrics.counter(instruments.ADMISSIONS, "admitted", by).add(yes)
        self._metrics.counter(instruments.ADMISSIONS, "throttled", by).add(len(verdict.admitted) - yes)

    async def _judge(
        self, account: Account, costs: Sequence[Cost], asked: Callable[["asyncio.Future[Verdict]"], None]
    ) -> Verdict:
        if self._over:
            raise cut_off(begun=False)
        if len(self._waiting) >= WAITING_MAX:
            raise RegnumError(
                errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
                "too many requests wait for admission; try again later",
                retry_after_ms=1_000,
            )
        self._requests += 1
        message = quota_pb2.Admission(
            request_id=f"{self._name}-{self._requests}",
            entity=quota_pb2.MutatingEntity(user=account.user, client_id=account.client_id),
            mode=quota_pb2.ADMIT_MODE_STRICT if account.strict else quota_pb2.ADMIT_MODE_PERMISSIVE,
            mutations=[quota_pb2.Mutation(name=cost.name, permits=cost.permits) for cost in costs],
        )
        verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        asked(verdict)
        waiting = _Waiting(account=account, costs=costs, message=message, verdict=verdict)
        self._waiting.append(waiting)
        self._wake.set()
        try:
            return await asyncio.shield(verdict)
        except asyncio.CancelledError:
            # What is under way is charged whoever waits for it.
            if waiting not in self._in_flight:
                verdict.cancel()
            raise

    async def run(self) -> None:
        """Judge what waits, for as long as the reign lasts."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while batch := self._next_batch():
                self._in_flight = batch
                if self._stand_in.is_acting or not await self._ask(batch):
                    self._judge_here(batch)
                    # Nothing was waited for, and the next batch is as large.
                    await asyncio.sleep(0)
                self._in_flight = ()

    def close(self) -> None:
        """The reign is over: nothing is judged any more."""
        self._over = True
        for one in (*self._in_flight, *self._waiting):
            if not one.verdict.done():
                one.verdict.set_exception(cut_off(begun=False))
        self._waiting.clear()

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        mutations = 0
        while self._waiting and (not batch or mutations + len(self._waiting[0].costs) <= MUTATIONS_PER_CALL):
            one = self._waiting.popleft()
            if not one.verdict.done():
                batch.append(one)
                mutations += len(one.costs)
        return batch

    # By the quota process.

    async def _ask(self, batch: Sequence[_Waiting]) -> bool:
        """Let the quota process judge; False when none answers, and the stand-in has begun."""
        give_up_s = self._clock.monotonic() + PATIENCE_S
        reason = "no process is active"
        while (left_s := give_up_s - self._clock.monotonic()) > 0:
            channel = self._process.channel
            if channel is None:
                await self._process_changes_within(left_s)
                continue
            try:
                response = await self._call(channel, [one.message for one in batch], left_s)
            except _ProcessChangedError:
                continue
            except RegnumError as error:
                reason = f"{reason_of(error.code)}: {error.message}"
                left_s = give_up_s - self._clock.monotonic()
                await self._process_changes_within(min(REPEAT_INTERVAL_S, left_s))
                continue
            if not _answers(response, batch):
                reason = "its answer does not fit the question"
                break
            for one, verdict in zip(batch, response.verdicts, strict=True):
                if not one.verdict.done():
                    one.verdict.set_result(
                        Verdict(admitted=tuple(verdict.admitted), throttle_ms=verdict.throttle_time_ms)
                    )
            return True
        self._begin_absence(reason)
        return False

    async def _call(
        self, channel: QuotaChannel, admissions: Sequence[quota_pb2.Admission], timeout_s: float
    ) -> quota_pb2.AdmitResponse:
        """One Admit. Raises RegnumError, and _ProcessChangedError when somebody else has to be asked."""
        incarnation = self._process.incarnation
        news = self._kept.all() if self._told != incarnation or self._kept.has_charges else ()
        request = quota_pb2.AdmitRequest(admissions=admissions, changes_seen=self._book.change, known=self._known(news))
        call = asyncio.create_task(channel.admit(request, timeout_s=timeout_s), name="admit")
        call.add_done_callback(_heard)
        changed = asyncio.create_task(self._process.changed(), name="quota process changes")
        try:
            await asyncio.wait({call, changed}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done() or call.cancelled():
                raise _ProcessChangedError
            response = call.result()
        finally:
            call.cancel()
            changed.cancel()
        self._kept.handed_over(news)
        # Another one that answers at the same address has heard nothing yet.
        self._told = incarnation if response.incarnation == incarnation else None
        now_s = self._clock.monotonic()
        for state in response.buckets:
            # It cannot be older than this; tokens that flowed in since then are not counted.
            self._kept.reported(_key(state.key), Bucket(state.tokens, now_s))
        return response

    def _known(self, buckets: Sequence[tuple[BucketKey, Bucket]]) -> list[quota_pb2.BucketState]:
        now_s = self._clock.monotonic()
        return [
            quota_pb2.BucketState(
                key=quota_pb2.BucketKey(user=key.user, client_id=key.client_id),
                tokens=bucket.tokens,
                age_ms=max(0, math.floor((now_s - bucket.as_of_s) * 1000)),
            )
            for key, bucket in buckets
        ]

    async def _process_changes_within(self, seconds: float) -> None:
        """Return when another process decides, or after that time."""
        changed = asyncio.create_task(self._process.changed(), name="quota process changes")
        slept = asyncio.create_task(self._clock.sleep(seconds), name="wait for a quota process")
        try:
            await asyncio.wait({changed, slept}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            slept.cancel()

    # By the stand-in.

    def _begin_absence(self, reason: str) -> None:
        self._absences += 1
        self._stand_in.begin(self._book.table.limits, self._clock.monotonic())
        self._absent.set()
        self._log.warning(
            "no quota process answers, the controller judges by itself", reason=reason, buckets=len(self._kept)
        )

    def _judge_here(self, batch: Sequence[_Waiting]) -> None:
        now_s = self._clock.monotonic()
        for one in batch:
            if not one.verdict.done():
                permits = [cost.permits for cost in one.costs]
                one.verdict.set_result(self._stand_in.judge(self._book.table.limits, one.account, permits, now_s))

    async def look_out(self) -> None:
        """While the stand-in acts, look for a quota process that answers; for as long as the reign lasts."""
        while True:
            await self._absent.wait()
            channel = self._process.channel
            if channel is not None and await self._is_back(channel):
                continue
            await self._process_changes_within(PROBE_INTERVAL_S)

    async def _is_back(self, channel: QuotaChannel) -> bool:
        try:
            await self._call(channel, (), PATIENCE_S)
        except (RegnumError, _ProcessChangedError):
            # It was away before, which was told then; the next probe asks again.
            return False
        report = self._stand_in.end(self._clock.monotonic())
        self._absent.clear()
        self._log.info(
            "a quota process answers again",
            absent_s=round(report.absent_s, 3),
            admitted=report.admitted,
            refused=report.refused,
        )
        return True


def _heard(call: "asyncio.Task[quota_pb2.AdmitResponse]") -> None:
    """A call that nobody waits for any more may fail as it likes."""
    if not call.cancelled():
        call.exception()


def _answers(response: quota_pb2.AdmitResponse, batch: Sequence[_Waiting]) -> bool:
    return len(response.verdicts) == len(batch) and all(
        len(verdict.admitted) == len(one.costs) for one, verdict in zip(batch, response.verdicts, strict=True)
    )


def _key(message: quota_pb2.BucketKey) -> BucketKey:
    return BucketKey(
        message.user if message.HasField("user") else None,
        message.client_id if message.HasField("client_id") else None,
    )
