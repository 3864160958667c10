"""Carries the topics of one call to the controller, again and again, until each has a definite answer.

Goals: a topic is changed once, whoever is the controller when (safety rule S20); one that a quota refuses is sent
again after its wait, and nothing else is; when the time is up, the caller knows what became of each topic.

Algorithm: topics whose outcome is open are repeated soon, under the same mutation id. Topics that the quota refused
wait (see throttle); both have the call's deadline. A wait that would end after it is not begun.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.admin.carrying.throttle import Throttle
from regnum_client.errors import ThrottlingQuotaExceededError

A = TypeVar("A")

CALL_S_MAX: Final = 15.0
"""Deadline of one call; a longer wait is made of several, so that a frozen controller costs no more than this."""
LAST_CALL_S: Final = 0.25
"""With less time left, a topic that waits for a quota is not sent again: a call that cannot be answered in time would
leave its outcome open, and a refusal is certain."""

_DEFINITE: Final = frozenset(
    {
        # What the controller itself does not know does not exist: waiting cannot help.
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Topics of a call wait for a quota.

    >>> def say(waiting: Waiting) -> None:
    ...     print(f"{waiting.done} done, {waiting.waiting} wait for {waiting.wait_ms} ms")
    >>> answers = admin.create_topics([NewTopic(name="said")], on_wait=say)
    """

    done: int
    """Topics that have their answer."""
    waiting: int
    """Topics that wait."""
    refusals: int
    """Refusals so far; a topic may have been refused more than once."""
    wait_ms: int
    """Milliseconds until some of them are sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Generic[A]):
    """What the controller answered to one call."""

    topics: dict[str, A | RegnumError]
    """Outcome of each topic."""
    throttle_ms: int
    """Wait that it asks for, in milliseconds; 0 means none."""


class Ask(Protocol[A]):
    """Sends topics to the controller; raises RegnumError when the call fails as a whole."""

    async def __call__(self, address: Address, names: Sequence[str], timeout_ms: int, /) -> Answered[A]:
        """Send these, with that deadline."""


class Search(Protocol):
    """Finds the controller (see ControllerSearch)."""

    @property
    def left_s(self) -> float:
        """Seconds until the time is up."""

    async def address(self) -> Address:
        """Where the controller is believed to be."""

    async def failed(self, address: Address, error: RegnumError, /) -> None:
        """The call failed as a whole; raises when no repeat can help."""

    async def pause(self) -> None:
        """Wait before a repeat."""


class TopicMutation(Generic[A]):
    """One call of ``create_topics`` or ``delete_topics``. Used once."""

    def __init__(
        self,
        search: Search,
        ask: Ask[A],
        *,
        clock: Clock,
        verb: str,
        retry_on_quota_violation: bool,
        on_wait: Callable[[Waiting], None] | None,
    ) -> None:
        """Only assigns.

        Args:
            search: finds the controller; knows the deadline.
            ask: sends topics to it.
            clock: the client's.
            verb: what is done to topics, for messages: ``created``, ``deleted``.
            retry_on_quota_violation: whether topics that a quota refused are sent again.
            on_wait: called for every wait for a quota.
        """
        self._search: Final = search
        self._ask: Final = ask
        self._clock: Final = clock
        self._verb: Final = verb
        self._patient: Final = retry_on_quota_violation
        self._on_wait: Final = on_wait
        self._throttle: Final = Throttle()
        self._unsettled: list[str] = []
        self._waiting: list[str] = []
        self._refused: set[str] = set()
        self._answers: dict[str, A | RegnumError] = {}
        self._refusals = 0
        self._asked_until_s: float | None = None

    async def carry_out(self, names: Sequence[str]) -> dict[str, A | RegnumError]:
        """The answer for each name. Raises RegnumError when the controller answered for none of them."""
        self._waiting = list(names)
        while self._unsettled or self._waiting:
            if not self._unsettled and not await self._wait_is_over():
                break
            try:
                await self._send(self._batch())
            except RegnumError as error:
                if not self._answers and not self._refused:
                    raise
                self._answers.update(dict.fromkeys((*self._unsettled, *self._waiting), error))
                break
            if self._unsettled and self._search.left_s <= 0:
                break
        # Of these the last word was a refusal, whatever became of the call.
        self._answers.update({name: self._throttled(name) for name in self._refused})
        return {name: self._answers[name] for name in names}

    def _batch(self) -> list[str]:
        """What to send now."""
        rested = self._clock.monotonic() >= self._throttle.resume_s
        return self._unsettled + self._waiting[: self._throttle.batch(len(self._waiting)) if rested else 0]

    async def _send(self, batch: list[str]) -> None:
        """Ask once, and sort the answers. Raises when the call failed and may not be repeated."""
        address = await self._search.address()
        try:
            answered = await self._ask(address, batch, max(1, int(min(self._search.left_s, CALL_S_MAX) * 1000)))
        except RegnumError as error:
            if not error.traits.outcome_known and (self._answers or self._refused):
                # An earlier refusal says nothing of a call that may have been carried out.
                self._refused.difference_update(batch)
                self._answers.update(dict.fromkeys(batch, error))
                self._settle(batch, unsettled=batch)
            await self._search.failed(address, error)
            return
        self._take(answered, batch)
        if self._unsettled and self._search.left_s > 0:
            await self._search.pause()

    def _settle(self, batch: Sequence[str], *, unsettled: list[str], refused: Sequence[str] = ()) -> None:
        """The batch is no longer on its way."""
        sent = set(batch)
        self._unsettled = unsettled
        self._waiting = [*refused, *(name for name in self._waiting if name not in sent)]

    def _take(self, answered: Answered[A], batch: Sequence[str]) -> None:
        """Sort the answers."""
        now_s = self._clock.monotonic()
        outcomes = {name: answered.topics.get(name) or _missing(name) for name in batch}
        refused = [name for name, outcome in outcomes.items() if _is_throttled(outcome)]
        self._refused.difference_update(batch)
        self._refused.update(refused)
        self._refusals += len(refused)
        self._answers.update(outcomes)
        for name in refused:
            del self._answers[name]
        self._settle(
            batch,
            unsettled=[name for name, outcome in outcomes.items() if _is_open(outcome)],
            refused=refused if self._patient else (),
        )
        if refused:
            self._asked_until_s = now_s + answered.throttle_ms / 1000
        self._throttle.answered(
            admitted=len(batch) - len(refused),
            refused=len(refused),
            waiting=len(self._waiting),
            throttle_ms=answered.throttle_ms,
            now_s=now_s,
            deadline_s=now_s + self._search.left_s - LAST_CALL_S,
        )

    async def _wait_is_over(self) -> bool:
        """Wait for the quota; False when the call's time is up before that, and then without waiting."""
        if self._asked_until_s is None:
            return True
        wait_s = self._throttle.resume_s - self._clock.monotonic()
        if max(0.0, wait_s) + LAST_CALL_S >= self._search.left_s:
            return False
        if wait_s > 0 and self._on_wait is not None:
            self._on_wait(
                Waiting(
                    done=len(self._answers),
                    waiting=len(self._waiting),
                    refusals=self._refusals,
                    wait_ms=_ms(wait_s),
                )
            )
        # A clock may wake a sleeper a little early.
        while (wait_s := self._throttle.resume_s - self._clock.monotonic()) > 0:
            await self._clock.sleep(wait_s)
        return True

    def _throttled(self, name: str) -> ThrottlingQuotaExceededError:
        left_s = max(0.0, (self._asked_until_s or 0.0) - self._clock.monotonic())
        return ThrottlingQuotaExceededError(name, verb=self._verb, throttle_time_ms=_ms(left_s))


def _is_throttled(outcome: object) -> bool:
    return isinstance(outcome, RegnumError) and outcome.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED


def _is_open(outcome: object) -> bool:
    """Whether a repeat may bring another answer."""
    if not isinstance(outcome, RegnumError):
        return False
    return outcome.traits.retriable and outcome.code not in _DEFINITE and not _is_throttled(outcome)


def _missing(name: str) -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR,
        f"the controller did not say what became of topic {name!r}; see `regnum topics describe {name}`",
        metadata={"topic": name},
    )


def _ms(seconds: float) -> int:
    """Milliseconds, rounded up, so that whoever waits so long has waited enough."""
    return math.ceil(seconds * 1000 - 1e-6)
