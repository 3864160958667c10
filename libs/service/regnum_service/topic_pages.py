"""DescribeTopics, for every process that knows topics: brokers and metadata processes.

Goals: a client of a cluster of any size sees all of it, a page at a time; a page costs the same in a large cluster; no
topic that exists throughout is left out or shown twice, whatever comes and goes between two pages, and whoever answers
the next one.

Constraints: the answer is one message, the loop is free at least every 50 ms (safety rule S22), and a filter may fit
nothing of 200,000 topics.

Algorithm: the cursor is a place in the order of (name of the topic, number of the partition). ``NameOrder`` finds the
names from there on, prefix and the beginning of a glob bound them, and the page ends when it has as many partitions
(or, of summaries, topics) as were asked for, or when LOOKED_AT_MAX partitions were looked at for it. Of a caller whose
rules name what it may be told of, only these names are looked at.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.topic_filter import InvalidTopicFilterError, TopicFilter, Trouble, TroubleCounts, troubles_of
from regnum_model.topics import MAX_NAME_LENGTH, InvalidTopicNameError, check_topic_name

from regnum_service.access.authorization import EVERYBODY, Authorizer
from regnum_service.access.topic_sight import TopicSight, forbidden_topic
from regnum_service.encoding import Encoding
from regnum_service.errors import RegnumError
from regnum_service.name_order import NameOrder
from regnum_service.slices import slices

LIMIT_DEFAULT: Final = 2_000
"""Partitions, or summaries, of a page that says nothing of it; Kafka's default."""

LIMIT_MAX: Final = 10_000
"""Partitions, or summaries, of a page at most: about 1 MB."""

NAMES_MAX: Final = 10_000
"""Topics that one call may name."""

NAMED_LENGTH_MAX: Final = 1_000
"""Characters of a name that is answered, as unknown or as no name: longer ones are not said again."""

LOOKED_AT_MAX: Final = 50_000
"""Partitions that one call looks at, about; a topic counts as TOPIC_WEIGHT more."""

SLICE: Final = 1_000
"""Partitions put into an answer before the event loop gets a turn."""

TOPIC_WEIGHT: Final = 2
"""What a topic takes besides, in partitions."""

TROUBLES: Final[Mapping[int, Trouble]] = {
    metadata_pb2.PARTITION_TROUBLE_OFFLINE: Trouble.OFFLINE,
    metadata_pb2.PARTITION_TROUBLE_UNDER_REPLICATED: Trouble.UNDER_REPLICATED,
    metadata_pb2.PARTITION_TROUBLE_UNDER_MIN_ISR: Trouble.UNDER_MIN_ISR,
}
"""Troubles by their numbers on the wire."""


class Described(Protocol):
    """A topic as its process holds it. Never changed in place."""

    @property
    def name(self) -> str:
        """Topic name."""

    @property
    def topic_id(self) -> str:
        """Topic id."""

    @property
    def partitions(self) -> Mapping[int, types_pb2.PartitionState]:
        """States by number."""


V = TypeVar("V", bound=Described)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a call asks for, checked."""

    names: tuple[str, ...] | None
    """Named topics from the cursor on, in order; None: all topics."""
    chosen: TopicFilter
    topic: str
    """Where the page begins."""
    partition: int
    """Where it begins within that very topic."""
    limit: int
    summaries: bool


class TopicPages(Generic[V]):
    """Of one process. Belongs to the event loop."""

    def __init__(
        self,
        topics: Callable[[], Mapping[str, V]],
        names: NameOrder,
        state_of: Callable[[V, int], types_pb2.PartitionState] = lambda view, number: view.partitions[number],
        authorizer: Authorizer = EVERYBODY,
    ) -> None:
        """Only assigns.

        Args:
            topics: the topics as of now; one value that is replaced and never changed.
            names: their names; told of every change of them.
            state_of: a partition as it is shown.
            authorizer: says which topics a caller may be told of.
        """
        self._authorizer: Final = authorizer
        self._topics: Final = topics
        self._names: Final = names
        self._state_of: Final = state_of

    async def page(
        self, request: metadata_pb2.DescribeTopicsRequest, head: Callable[[], metadata_pb2.DescribeTopicsResponse]
    ) -> bytes:
        """A page: an encoded DescribeTopicsResponse. Raises RegnumError INVALID_REQUEST.

        Args:
            request: what is asked.
            head: the answer without topics, as of now.
        """
        wanted, sight = _read(request), TopicSight(self._authorizer)
        # One page at a time: many do not add up to one long turn, and the order of names stands still.
        async with self._names.asking:
            if wanted.names is None and sight.nothing:
                names: Iterator[str] = iter(())
            elif wanted.names is None:
                await self._names.bring_up(self._topics)
                # No turn of the loop between the names and what they are names of.
                first = max(wanted.topic, wanted.chosen.start)
                names = sight.among(self._names.since, self._topics(), first)
            else:
                names = iter(wanted.names)
            page = _Page(wanted, self._topics(), Encoding(head(), size=SLICE), self._state_of, sight)
            return await page.made(names)


class _Page(Generic[V]):
    """One page in the making."""

    def __init__(
        self,
        wanted: _Wanted,
        topics: Mapping[str, V],
        answer: Encoding[metadata_pb2.DescribeTopicsResponse],
        state_of: Callable[[V, int], types_pb2.PartitionState],
        sight: TopicSight,
    ) -> None:
        self._sight: Final = sight
        self._wanted: Final = wanted
        self._topics: Final = topics
        self._answer: Final = answer
        self._state_of: Final = state_of
        self._looked_at = 0
        self._shown = 0
        self._next: metadata_pb2.TopicCursor | None = None

    async def made(self, names: Iterator[str]) -> bytes:
        """The page, encoded."""
        wanted, fits, start = self._wanted, self._wanted.chosen.matcher(), self._wanted.chosen.start
        async for name in self._told(names, start):
            if self._next is None and self._is_full:
                self._next = metadata_pb2.TopicCursor(topic=name)
            if self._next is not None:
                break
            view = self._topics.get(name)
            if wanted.names is not None and not self._sight.answers(name):
                self._tell(forbidden_topic(name))
                view = None
            elif view is None and wanted.names is not None:
                self._tell(unknown_topic(name))
            if view is None or not fits(name):
                await self._took(TOPIC_WEIGHT)
            elif wanted.summaries:
                await self._summarise(view)
            else:
                await self._describe(view, first=wanted.partition if name == wanted.topic else 0)
        if self._next is not None:
            self._answer.piece.next_cursor.CopyFrom(self._next)
        return self._answer.whole()

    async def _told(self, names: Iterator[str], start: str) -> AsyncGenerator[str, None]:
        """Names that begin so, without those that a list leaves out: no page ends with one, for cursors name topics."""
        listed = self._wanted.names is None
        for name in names:
            if name > start and not name.startswith(start):
                return
            if listed and not self._sight.lists(name):
                await self._answer.took(TOPIC_WEIGHT)
            else:
                yield name

    def _tell(self, topic: metadata_pb2.TopicMetadata) -> None:
        self._answer.piece.topics.append(topic)
        self._shown += 1

    @property
    def _is_full(self) -> bool:
        return self._shown >= self._wanted.limit or self._looked_at >= LOOKED_AT_MAX

    async def _took(self, work: int) -> None:
        self._looked_at += work
        await self._answer.took(work)

    async def _describe(self, view: V, *, first: int) -> None:
        state = types_pb2.TopicState(name=view.name, topic_id=view.topic_id)
        numbers = sorted(number for number in view.partitions if number >= first)
        async for part in slices(numbers, SLICE):
            state.partitions.extend(self._states(view, part))
            if self._next is not None:
                break
        # A topic without partitions is shown as well, unless those of some kind are looked for.
        if state.partitions or not (view.partitions or self._wanted.chosen.troubles):
            self._answer.piece.topics.add().topic.CopyFrom(state)
        await self._took(TOPIC_WEIGHT)
        await self._answer.took(len(state.partitions))

    def _states(self, view: V, numbers: Iterable[int]) -> Iterator[types_pb2.PartitionState]:
        """Partitions that are to be shown, until the page is full."""
        troubles = self._wanted.chosen.troubles
        for number in numbers:
            if self._is_full:
                self._next = metadata_pb2.TopicCursor(topic=view.name, partition=number)
                return
            state = self._state_of(view, number)
            self._looked_at += 1
            if not troubles or not troubles.isdisjoint(troubles_of(state)):
                self._shown += 1
                yield state

    async def _summarise(self, view: V) -> None:
        counts, state_of = TroubleCounts(), self._state_of
        if len(view.partitions) <= SLICE:
            counts.add([state_of(view, number) for number in view.partitions])
        else:
            async for part in slices(view.partitions, SLICE):
                counts.add([state_of(view, number) for number in part])
        troubles = self._wanted.chosen.troubles
        if not troubles or any(map(counts.has, troubles)):
            self._shown += 1
            self._answer.piece.summaries.add(
                name=view.name,
                topic_id=view.topic_id,
                partitions=len(view.partitions),
                replication_factor=counts.replication_factor,
                offline=counts.offline,
                under_replicated=counts.under_replicated,
                under_min_isr=counts.under_min_isr,
            )
        await self._took(TOPIC_WEIGHT + len(view.partitions))


async def listed(sight: TopicSight, names: NameOrder, topics: Callable[[], Mapping[str, V]]) -> Collection[V]:
    """Topics among which are all that a list shows to the caller; ask ``sight.lists`` of each.

    Of a caller whose rules name what it may be told of, those are looked at and not what there is.

    Args:
        sight: of the caller.
        names: the names of the topics.
        topics: the topics as of now.
    """
    if sight.nothing:
        return ()
    if sight.reach is None:
        return topics().values()
    found: list[V] = []
    async with names.asking:
        await names.bring_up(topics)
        known = topics()
        async for part in slices(sight.among(names.since, known, ""), SLICE):
            found += [known[name] for name in part if name in known]
    return found


def unknown_topic(name: str) -> metadata_pb2.TopicMetadata:
    """What is said of a topic that was named and is not known."""
    try:
        check_topic_name(name)
    except InvalidTopicNameError:
        code = errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION
    else:
        code = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    return metadata_pb2.TopicMetadata(error_code=code, topic=types_pb2.TopicState(name=name))


def _read(request: metadata_pb2.DescribeTopicsRequest) -> _Wanted:
    """The request, checked. Raises RegnumError INVALID_REQUEST."""
    check_names(request.topics)
    said, cursor = request.filter, request.cursor
    if unknown := [number for number in said.troubles if number not in TROUBLES]:
        raise _invalid(f"no such trouble of a partition: {unknown[0]}; see PartitionTrouble")
    if request.limit < 0 or cursor.partition < 0:
        raise _invalid("limit and the cursor's partition are not negative; leave them out for the first page")
    if len(cursor.topic) > MAX_NAME_LENGTH:
        raise _invalid("the cursor names no topic; send back that of the page before")
    chosen = TopicFilter(
        prefix=said.prefix,
        glob=said.glob,
        internal=said.internal if said.HasField("internal") else None,
        troubles=frozenset(TROUBLES[number] for number in said.troubles),
    )
    try:
        chosen.check()
    except InvalidTopicFilterError as error:
        raise _invalid(str(error)) from error
    names = sorted(name for name in set(request.topics) if name >= cursor.topic)
    return _Wanted(
        names=tuple(names) if request.topics else None,
        chosen=chosen,
        topic=cursor.topic,
        partition=cursor.partition,
        limit=min(request.limit or LIMIT_DEFAULT, LIMIT_MAX),
        summaries=request.summaries,
    )


def check_names(names: Collection[str]) -> None:
    """Raise RegnumError INVALID_REQUEST where a call names more topics than one may, or names without end."""
    if len(names) > NAMES_MAX:
        raise _invalid(f"a call names {NAMES_MAX} topics at most, not {len(names)}; ask in several calls")
    if names and (longest := max(map(len, names))) > NAMED_LENGTH_MAX:
        raise _invalid(f"a name of {longest} characters is none of a topic, which has {MAX_NAME_LENGTH} at most")


def _invalid(message: str) -> RegnumError:
    return RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, message)
