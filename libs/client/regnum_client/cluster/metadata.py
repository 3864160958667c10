"""Keeps the picture of the cluster fresh.

Goals: a change of leader is known within some ten milliseconds of being known to any broker, and no broker is asked
more than needed.

Constraints: the broker that is asked may be dead, frozen, or behind; all others may be too. One that is cut off from
the rest answers well and is behind for as long as the cut lasts.

Algorithm: one task asks, whoever wants to know waits for it. ``questions`` says what is asked and when, ``enquiry``
whom, and which answer counts; an answer that is behind is merged for what it may add. Where every answer has been
behind for minutes, or about another cluster, that is the cluster there is now (a restored store, a new one at the old
addresses): versions begin anew, and leader epochs with a new cluster id only. A picture is *as of* the moment of the
last question that named all topics in use: whoever waits for news of a failure is not content with an answer about
other topics. Beside all that a broker tells of changes by itself (``watching``), where it can.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from regnum.metadata.v1.metadata_pb2 import GetMetadataResponse, WatchMetadataResponse
from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address
from regnum_model.topics import InvalidTopicNameError, check_topic_name
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_telemetry import tracing

from regnum_client.cluster.connections import Connections
from regnum_client.cluster.enquiry import ANSWER_S, Enquiry
from regnum_client.cluster.pace import may_pass, retry_delay_ms
from regnum_client.cluster.questions import IdleTopics, Question, Questions
from regnum_client.cluster.view import ClusterView, Hint, TopicView, with_leaders
from regnum_client.cluster.watching.changes import is_too_late
from regnum_client.cluster.watching.merging import changed, merged
from regnum_client.cluster.watching.stream import MetadataWatch
from regnum_client.tasks import Tasks

SET_BACK_S: Final = 300.0
"""When all answers have been behind for so long, the newest of them is believed."""


class Metadata:
    """The picture of the cluster, and the task that refreshes it."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        connections: Connections,
        *,
        clock: Clock,
        chance: random.Random,
        client_id: str,
        tasks: Tasks,
        watches: bool = True,
    ) -> None:
        """Only assigns; ``watches``: whether a broker is asked to tell of changes by itself."""
        self._connections: Final = connections
        self._clock: Final = clock
        self._chance: Final = chance
        self._client_id: Final = client_id
        self._tasks: Final = tasks
        self._enquiry: Final = Enquiry(
            bootstrap, connections, clock=clock, chance=chance, client_id=client_id, tasks=tasks
        )
        self._questions: Final = Questions()
        self._view = ClusterView()
        self._forbidden: Final[set[str]] = set()
        """Topics of which the last answer about them says that this client may not know."""
        self._behind_since_s: float | None = None
        self._wanted = asyncio.Event()
        self._waiting: Final = _Waiting()
        self._closed = False
        self._hints_meanwhile: list[Hint] | None = None
        """What refusals said while an answer is being merged; None: nothing is."""
        self._listeners: list[Callable[[], None]] = []
        self._last_error: RegnumError | None = None
        self._task: asyncio.Task[None] | None = None
        self._merging: Final = asyncio.Lock()
        """Held while something is merged into the picture."""
        self._watching: asyncio.Task[None] | None = None
        self._watch: Final = MetadataWatch(
            connections,
            clock=clock,
            chance=chance,
            client_id=client_id,
            candidates=self.candidates,
            suspect=self.suspect,
            topics=lambda: self._questions.kept,
            take=self._take_change,
            tasks=tasks,
        )
        self._watches: Final = watches
        self.idle: Final = IdleTopics(self._questions, self._watch.topics_forgotten, self._forbidden)
        """Says which topics are in use no more."""

    @property
    def changes_told(self) -> int:
        """Changes that brokers told of by themselves."""
        return self._watch.changes

    @property
    def view(self) -> ClusterView:
        """The newest picture."""
        return self._view

    @property
    def last_answer(self) -> str:
        """Why the last question was not answered; empty: it was."""
        return "" if self._last_error is None else self._last_error.message

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after every answer."""
        self._listeners.append(listener)

    async def start(self, *, timeout_s: float) -> None:
        """Get the first picture. Raises what the last broker answered when none does in the time.

        And INVALID_CONFIG at once for what no connection can be made with. Then, or when it is given up, nothing is
        left open, the connections neither.
        """
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(self._connections.close)
            for address in self._enquiry.candidates(self._view)[:1]:
                # Opened, and not connected yet: certificates that cannot be read get no better by trying again.
                self._connections.metadata(address)
            undo.push_async_callback(self.close)
            self._tasks.listen(lambda _failure: self._waiting.give_up())
            self._task = self._tasks.start("client-metadata", self._keep_fresh())
            await self.newer_than(float("-inf"), timeout_s=timeout_s)
            if self._watches:
                self._watching = self._tasks.start("client-metadata-watch", self._watch.run())
            undo.pop_all()

    async def close(self) -> None:
        """Stop refreshing; what waits for an answer hears that the client is closed."""
        self._closed = True
        self._waiting.give_up()
        tasks = [task for task in (self._watching, self._task) if task is not None]
        self._watching = self._task = None
        await self._tasks.end(*tasks)

    def request(self, *, doubted: Address | None = None) -> None:
        """Refresh soon; what the broker at ``doubted`` says of itself is in question, so the others are asked first."""
        if doubted is not None:
            self._enquiry.doubt(doubted)
        self._questions.want_whole()
        self._wanted.set()

    def ask_about(self, topics: Iterable[str], *, doubted: Address | None = None) -> None:
        """Refresh these topics soon, and no others; ``doubted`` as above."""
        if doubted is not None:
            self._enquiry.doubt(doubted)
        for name in topics:
            self._questions.seek(name)
        self._wanted.set()

    def suspect(self, address: Address) -> None:
        """Somebody could not reach that broker: ask the others first."""
        self._enquiry.suspect(address)

    def candidates(self) -> list[Address]:
        """Brokers to ask anything, the most promising first."""
        return self._enquiry.candidates(self._view)

    def take_leaders(self, hints: Iterable[Hint]) -> None:
        """Refusals named leaders; believed where their leader epochs are above those that are known."""
        hints = tuple(hints)
        if self._hints_meanwhile is not None:
            self._hints_meanwhile.extend(hints)
        self._view = with_leaders(self._view, hints)

    async def newer_than(self, moment_s: float, *, timeout_s: float, everything: bool = False) -> ClusterView:
        """A picture asked for after that monotonic time, of the topics in use or of all that there are.

        Raises RegnumError when there is none in time, and at once when no repeat can change what brokers say.
        """
        deadline_s = self._clock.monotonic() + timeout_s
        while self._view.as_of_s <= moment_s:
            self._check()
            self._questions.want_whole(everything=everything)
            self._wanted.set()
            left_s = deadline_s - self._clock.monotonic()
            in_time = left_s > 0 and (await asyncio.wait({self._waiting.news()}, timeout=left_s))[0]
            self._check()
            if not in_time:
                raise self._last_error or _nobody_answered(timeout_s)
            _raise_final(self._last_error)
        return self._view

    async def topic(self, name: str, *, timeout_s: float) -> TopicView:
        """A topic, waited for while brokers do not know it yet. Raises UNKNOWN_TOPIC_OR_PARTITION.

        And TOPIC_AUTHORIZATION_FAILED at once, and INVALID_TOPIC_EXCEPTION for what can be no topic's name. From now on
        it is refreshed with all others.
        """
        check_topic(name)
        told, deadline_s = False, self._clock.monotonic() + timeout_s
        view = self._view.topics.get(name) if self.keep(name) else None
        while view is None:
            self.keep(name)
            left_s = deadline_s - self._clock.monotonic()
            if not told:
                told = _told(f"no broker knows topic {name!r} yet", timeout_s - left_s)
            view = (await self.topics([name], timeout_s=max(left_s, ANSWER_S))).get(name)
            if view is None and (self.is_forbidden(name) or self._clock.monotonic() >= deadline_s):
                raise await self.why_missing(name)
        return view

    def is_forbidden(self, name: str) -> bool:
        """Whether the last answer about a topic says that this client may not know of it."""
        return name in self._forbidden

    async def why_missing(self, name: str) -> RegnumError:
        """Why a topic that was asked about is not known, as far as it can be found out within a second."""
        from regnum_client.cluster.reach.missing import forbidden, missing  # noqa: PLC0415 - seldom needed

        if name in self._forbidden:
            return forbidden(name)
        return await missing(
            name,
            controller=self._view.controller,
            brokers=self.candidates(),
            connections=self._connections,
            client_id=self._client_id,
        )

    async def topics(self, names: Collection[str], *, timeout_s: float) -> Mapping[str, TopicView]:
        """Those of the topics that a broker knows now. Raises RegnumError when none answers in time.

        What can be no topic's name is none of them, and nobody is asked about it.
        """
        deadline_s = self._clock.monotonic() + timeout_s
        left = [name for name in dict.fromkeys(names) if _is_possible(name)]
        while left:
            self._check()
            seeking = {name: self._seek(name) for name in left}
            left_s = deadline_s - self._clock.monotonic()
            in_time = left_s > 0 and not (await asyncio.wait(seeking.values(), timeout=left_s))[1]
            if not in_time:
                self._check()
                raise self._last_error or _nobody_answered(timeout_s)
            left = [name for name, answered in seeking.items() if not answered.result()]
            if left:
                self._check()
                _raise_final(self._last_error)
        known = self._view.topics
        return {name: known[name] for name in names if name in known}

    async def use(self, names: Collection[str], *, timeout_s: float) -> None:
        """Refresh these topics with all others from now on, and ask for those that are not known, all at once.

        Raises RegnumError when no broker answers in time.
        """
        names = [name for name in names if _is_possible(name)]
        await self.topics(
            [name for name in names if not self.keep(name) or name not in self._view.topics],
            timeout_s=timeout_s,
        )

    async def all_topics(self, *, timeout_s: float) -> ClusterView:
        """A fresh picture of everything."""
        return await self.newer_than(self._clock.monotonic(), timeout_s=timeout_s, everything=True)

    def _check(self) -> None:
        """Raise ClientClosedError, or BackgroundTaskError, if no answer comes any more."""
        self._tasks.check()
        if self._closed:
            raise self._tasks.closed_error()

    def keep(self, name: str) -> bool:
        """The topic is in use from now on. False: it was not before."""
        kept = self._questions.keep(name, self._clock.monotonic())
        if not kept:
            self._watch.topic_added(name)
        return kept

    def _seek(self, name: str) -> asyncio.Future[bool]:
        """Ends when a question that is asked from now on and names the topic has been answered, or has not."""
        future = self._waiting.sought(name)
        if future is None:
            future = self._waiting.seek(name)
            self._questions.seek(name)
            self._wanted.set()
        return future

    async def _keep_fresh(self) -> None:
        trouble_since_s: float | None = None
        told = False
        while True:
            question, asked_s = await self._next_question()
            self._waiting.asked(question.sought)
            try:
                answer = await self._enquiry.ask(question.topics, self._view)
            except RegnumError as error:
                self._last_error = error
                if trouble_since_s is None:
                    trouble_since_s = asked_s
                self._questions.failed(question)
                if not may_pass(error):
                    self._waiting.end_news()
                self._waiting.end_asked(answered=False)
                trouble_s = self._clock.monotonic() - trouble_since_s
                if not told and not self._view.version:
                    told = _told(error.message, trouble_s)
                await self._clock.sleep(retry_delay_ms(trouble_s * 1000, self._chance.random()) / 1000)
                continue
            trouble_since_s = None
            before = self._view
            _note_forbidden(self._forbidden, answer)
            await self._take_in(question, answer, asked_s)
            self._questions.answered(question, self._view.topics, asked_s=asked_s)
            self._waiting.end_asked(answered=True)
            await self._enquiry.incarnations_changed(before, self._view)

    async def _next_question(self) -> tuple[Question, float]:
        """What is to be asked now, waited for, and the moment."""
        while True:
            self._wanted.clear()
            now_s = self._clock.monotonic()
            question = self._questions.take(now_s)
            if question is not None:
                return question, now_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._questions.due_s - now_s)):
                    await self._wanted.wait()

    async def _take_in(self, question: Question, answer: GetMetadataResponse, asked_s: float) -> None:
        async with self._merging:
            base = self._base(answer, asked_s)
            if base is not self._view and not question.whole:
                # Begun anew with an answer about some topics: what was known of all others is of before.
                self._questions.want_whole()
            with self._hinted() as hints:
                view = await merged(base, answer, asked=question.topics, as_of_s=asked_s, whole=question.whole)
            # What refusals said while a thread was busy is as true as before: leader epochs never go back.
            view = with_leaders(view, hints)
            self._view = self.idle.forget(view, question, asked_s, sought=self._waiting.names)
        tracing.in_cluster(view.cluster_id)
        self._last_error = None
        if question.whole:
            self._waiting.end_news()
        for listener in self._listeners:
            listener()

    @contextlib.contextmanager
    def _hinted(self) -> Iterator[list[Hint]]:
        """What refusals say meanwhile."""
        hints: list[Hint] = []
        self._hints_meanwhile = hints
        try:
            yield hints
        finally:
            self._hints_meanwhile = None

    async def _take_change(self, parts: Sequence[WatchMetadataResponse]) -> bool:
        """What a broker told by itself. False: of another cluster, or of what is forgotten; nothing changed."""
        forgotten = self.idle.times
        async with self._merging:
            if forgotten != self.idle.times:
                return False
            before = self._view
            with self._hinted() as hints:
                view = await changed(before, parts)
            if view is None:
                return False
            self._view = with_leaders(view, hints) if hints else view
        if is_too_late(before, parts):
            self.request()
        if self._view is not before:
            for listener in self._listeners:
                listener()
            await self._enquiry.incarnations_changed(before, self._view)
        return True

    def _base(self, answer: GetMetadataResponse, now_s: float) -> ClusterView:
        """What the answer is merged into."""
        if not self._view.is_behind(answer):
            self._behind_since_s = None
        elif self._behind_since_s is None:
            self._behind_since_s = now_s
        elif now_s - self._behind_since_s >= SET_BACK_S:
            self._behind_since_s = None
            if self._view.is_of_another_cluster(answer):
                # What the answer does not repeat of the brokers is as it was.
                return ClusterView(brokers=self._view.brokers, brokers_digest=self._view.brokers_digest)
            return replace(self._view, version=0, controller=None)
        return self._view


def _note_forbidden(forbidden: set[str], answer: GetMetadataResponse) -> None:
    for item in answer.topics:
        if item.error_code == errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED:
            forbidden.add(item.topic.name)
        elif forbidden:
            forbidden.discard(item.topic.name)


class _Waiting:
    """Who waits for an answer: for a whole one, or one that names a topic. All hear of its end, and look what came."""

    def __init__(self) -> None:
        """Only assigns."""
        self._news: asyncio.Future[None] | None = None
        """Ends with the next whole answer."""
        self._seekers: Final[dict[str, asyncio.Future[bool]]] = {}
        """Of topics that the next question is to name: whether it was answered."""
        self._asked: list[asyncio.Future[bool]] = []
        """Of topics that the question under way names."""

    def news(self) -> "asyncio.Future[None]":
        """Ends with the next whole answer."""
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        return self._news

    def end_news(self) -> None:
        """There was one."""
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    @property
    def names(self) -> Collection[str]:
        """Topics that the next question is to name."""
        return self._seekers.keys()

    def sought(self, name: str) -> "asyncio.Future[bool] | None":
        """What waits for the next question about a topic; None: nothing does."""
        return self._seekers.get(name)

    def seek(self, name: str) -> "asyncio.Future[bool]":
        """Ends when the next question about a topic has been answered, or has not."""
        future = self._seekers[name] = asyncio.get_running_loop().create_future()
        return future

    def asked(self, names: Collection[str]) -> None:
        """A question is under way that names these topics."""
        self._asked = [self._seekers.pop(name) for name in names if name in self._seekers]

    def end_asked(self, *, answered: bool) -> None:
        """It was answered, or was not."""
        for seeker in self._asked:
            if not seeker.done():
                seeker.set_result(answered)
        self._asked = []

    def give_up(self) -> None:
        """No answer comes any more, neither to the question under way nor to another one."""
        self.end_news()
        self.end_asked(answered=False)
        self.asked(tuple(self._seekers))
        self.end_asked(answered=False)


def _raise_final(error: RegnumError | None) -> None:
    if error is not None and not may_pass(error):
        raise error


def _told(message: str, waited_s: float) -> bool:
    """Tell what has been waited for unusually long; whether it was told."""
    from regnum_client.cluster.reach.told import tell  # noqa: PLC0415 - where all is well it is not needed

    return tell(message, waited_s)


def _is_possible(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicNameError:
        return False
    return True


def check_topic(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for what can be no topic's name."""
    try:
        check_topic_name(name)
    except InvalidTopicNameError as error:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION,
            f"{error}; see `regnum topics list` for the names there are",
            metadata={"topic": name},
        ) from error


def _nobody_answered(timeout_s: float) -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
        f"no broker answered within {timeout_s:g} s; check the bootstrap addresses and `regnum status`",
    )
