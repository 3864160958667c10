"""Pages of topics: everything once, whatever happens between two of them, at a bounded cost."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.topic_filter import Trouble, TroubleCounts, troubles_of
from regnum_service import topic_pages
from regnum_service.errors import RegnumError
from regnum_service.name_order import CHANGED_MAX, NameOrder
from regnum_service.topic_pages import LOOKED_AT_MAX, TopicPages

Request = metadata_pb2.DescribeTopicsRequest
Page = metadata_pb2.DescribeTopicsResponse


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: str
    partitions: Mapping[int, types_pb2.PartitionState]


def state(
    number: int, *, leader: int = 1, isr: Iterable[int] = (1, 2, 3), min_insync: int = 2, adding: Sequence[int] = ()
) -> types_pb2.PartitionState:
    return types_pb2.PartitionState(
        partition=number,
        leader=leader,
        isr=isr,
        replicas=[1, 2, 3, *adding],
        min_insync_replicas=min_insync,
        adding_replicas=adding,
    )


def topic(name: str, *states: types_pb2.PartitionState, partitions: int = 1) -> Topic:
    chosen = states or [state(number) for number in range(partitions)]
    return Topic(name, f"id-{name}", {one.partition: one for one in chosen})


@dataclass
class Served:
    """A process that knows topics."""

    topics: dict[str, Topic] = field(default_factory=dict)
    names: NameOrder = field(default_factory=NameOrder)

    def __post_init__(self) -> None:
        self.pages: TopicPages[Topic] = TopicPages(lambda: self.topics, self.names)

    def put(self, *topics: Topic) -> None:
        self.topics = {**self.topics, **{one.name: one for one in topics}}
        self.names.note(one.name for one in topics)

    def remove(self, name: str) -> None:
        self.topics = {known: one for known, one in self.topics.items() if known != name}
        self.names.note([name])

    async def page(self, request: Request) -> Page:
        return Page.FromString(await self.pages.page(request, lambda: Page(cluster_id="c", version=1)))

    async def all(self, request: Request, *, between: Callable[[], None] = lambda: None) -> list[Page]:
        pages = []
        while True:
            pages.append(await self.page(request))
            if not pages[-1].HasField("next_cursor"):
                return pages
            request.cursor.CopyFrom(pages[-1].next_cursor)
            between()


def shown(pages: Iterable[Page]) -> list[tuple[str, int]]:
    return [(item.topic.name, one.partition) for page in pages for item in page.topics for one in item.topic.partitions]


NAMES = st.text("ab_-", min_size=1, max_size=3)


@settings(deadline=None)
@given(
    st.dictionaries(NAMES, st.integers(1, 5), max_size=12),
    st.lists(st.tuples(NAMES, st.booleans()), max_size=30),
    st.integers(1, 6),
    st.booleans(),
)
def test_what_is_there_throughout_is_shown_once_and_in_order(
    stay: dict[str, int], moves: list[tuple[str, bool]], limit: int, forgets: bool
) -> None:
    async def scenario() -> None:
        served = Served()
        served.put(*(topic(name, partitions=count) for name, count in stay.items()))
        left = iter(moves)

        def between() -> None:
            for name, comes in (next(left, ("", False)), next(left, ("", False))):
                if name and name not in stay:
                    served.put(topic(name)) if comes else served.remove(name)
            if forgets:
                served.names.forget()

        found = shown(await served.all(Request(limit=limit), between=between))
        assert found == sorted(set(found))
        assert [one for one in found if one[0] in stay] == [
            (name, number) for name in sorted(stay) for number in range(stay[name])
        ]

    asyncio.run(scenario())


async def test_a_page_has_as_many_partitions_as_were_asked_for() -> None:
    served = Served()
    served.put(topic("a", partitions=7), topic("b", partitions=2), topic("c"))
    pages = await served.all(Request(limit=4))
    assert [len(shown([page])) for page in pages] == [4, 4, 2]
    assert (pages[0].next_cursor.topic, pages[0].next_cursor.partition) == ("a", 4)
    assert (pages[1].next_cursor.topic, pages[1].next_cursor.partition) == ("b", 1)


async def test_a_page_that_is_just_full_has_no_cursor_when_nothing_follows() -> None:
    served = Served()
    served.put(topic("a", partitions=2), topic("b", partitions=2))
    (page,) = await served.all(Request(limit=4))
    assert len(shown([page])) == 4


async def test_filters_choose_by_name_and_by_trouble() -> None:
    served = Served()
    served.put(
        topic("orders-eu", state(0), state(1, leader=-1, isr=[2])),
        topic("orders-us", state(0), state(1, isr=[1, 2])),
        topic("__offsets", state(0, isr=[1])),
        topic("audit"),
    )

    async def names(**chosen: object) -> list[str]:
        request = Request()
        for key, value in chosen.items():
            if key == "troubles":
                request.filter.troubles.extend(value)  # type: ignore[arg-type]
            else:
                setattr(request.filter, key, value)
        pages = await served.all(request)
        return [f"{name}-{number}" for name, number in shown(pages)]

    assert await names(prefix="orders-") == ["orders-eu-0", "orders-eu-1", "orders-us-0", "orders-us-1"]
    assert await names(glob="*-us") == ["orders-us-0", "orders-us-1"]
    assert await names(glob="orders-?s") == ["orders-us-0", "orders-us-1"]
    assert await names(prefix="au", glob="orders*") == []
    assert await names(internal=True) == ["__offsets-0"]
    assert len(await names(internal=False)) == 5
    assert await names(troubles=[metadata_pb2.PARTITION_TROUBLE_OFFLINE]) == ["orders-eu-1"]
    under = [metadata_pb2.PARTITION_TROUBLE_UNDER_REPLICATED]
    assert await names(troubles=under) == ["__offsets-0", "orders-eu-1", "orders-us-1"]
    assert await names(troubles=[metadata_pb2.PARTITION_TROUBLE_UNDER_MIN_ISR]) == ["__offsets-0", "orders-eu-1"]


async def test_summaries_count_all_partitions_of_what_the_filter_chooses() -> None:
    served = Served()
    served.put(topic("a"), topic("b", state(0), state(1, leader=-1, isr=[])))
    request = Request(summaries=True)
    request.filter.troubles.append(metadata_pb2.PARTITION_TROUBLE_OFFLINE)
    (page,) = await served.all(request)
    (one,) = page.summaries
    assert (one.name, one.partitions, one.replication_factor) == ("b", 2, 3)
    assert (one.offline, one.under_replicated, one.under_min_isr) == (1, 1, 1)


async def test_replicas_that_a_reassignment_brings_in_are_counted_as_none_before_it_is_over() -> None:
    served = Served()
    served.put(
        topic("a", state(0, adding=[4, 5]), state(1, isr=[1, 2], adding=[4])), topic("b", state(0, adding=[4, 5]))
    )
    (page,) = await served.all(Request(summaries=True))
    assert [(one.replication_factor, one.under_replicated) for one in page.summaries] == [(3, 1), (3, 0)]
    request = Request()
    request.filter.troubles.append(metadata_pb2.PARTITION_TROUBLE_UNDER_REPLICATED)
    assert shown(await served.all(request)) == [("a", 1)]


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 3), st.integers(0, 4), st.booleans()), max_size=8))
def test_what_is_counted_is_what_is_judged_one_by_one(partitions: list[tuple[int, int, int, bool]]) -> None:
    states = [
        state(number, leader=leader, isr=range(1, 1 + in_sync), min_insync=min_insync, adding=[4] if moves else [])
        for number, (leader, in_sync, min_insync, moves) in enumerate(partitions)
    ]
    counts = TroubleCounts()
    counts.add(states)
    judged = Counter(trouble for one in states for trouble in troubles_of(one))
    assert judged == Counter(
        {
            Trouble.OFFLINE: counts.offline,
            Trouble.UNDER_REPLICATED: counts.under_replicated,
            Trouble.UNDER_MIN_ISR: counts.under_min_isr,
        }
    )
    assert {trouble for trouble in Trouble if counts.has(trouble)} == set(+judged)


async def test_named_topics_that_do_not_exist_are_said_to_be_unknown() -> None:
    served = Served()
    served.put(topic("a"))
    (page,) = await served.all(Request(topics=["b", "a", "a", "no name"]))
    assert [(item.topic.name, item.error_code) for item in page.topics] == [
        ("a", errors_pb2.ERROR_CODE_NONE),
        ("b", errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION),
        ("no name", errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION),
    ]


@pytest.mark.parametrize(
    "request_",
    [
        Request(limit=-1),
        Request(topics=["x"] * (topic_pages.NAMES_MAX + 1)),
        Request(filter=metadata_pb2.TopicFilter(glob="[a-z]+")),
        Request(filter=metadata_pb2.TopicFilter(prefix="x" * 300)),
        Request(filter=metadata_pb2.TopicFilter(troubles=[17])),  # type: ignore[list-item]
        Request(cursor=metadata_pb2.TopicCursor(topic="a", partition=-1)),
        Request(cursor=metadata_pb2.TopicCursor(topic="a" * 300)),
    ],
)
async def test_what_makes_no_sense_is_refused(request_: Request) -> None:
    with pytest.raises(RegnumError) as refused:
        await Served().page(request_)
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST


async def test_a_filter_that_nothing_fits_costs_no_more_in_a_call_than_any_other() -> None:
    served = Served()
    per_topic, count = 1_000, 120
    served.put(*(topic(f"t{number:03}", partitions=per_topic) for number in range(count)))
    request = Request()
    request.filter.troubles.append(metadata_pb2.PARTITION_TROUBLE_OFFLINE)
    pages = await served.all(request)
    assert shown(pages) == []
    assert len(pages) == -(-count * per_topic // LOOKED_AT_MAX)


async def test_a_prefix_looks_at_nothing_else() -> None:
    looked_at: list[str] = []

    def look(view: Topic, number: int) -> types_pb2.PartitionState:
        looked_at.append(view.name)
        return view.partitions[number]

    known = {f"t{number:05}": topic(f"t{number:05}") for number in range(20_000)}
    pages = TopicPages(lambda: known, NameOrder(), look)
    request = Request()
    request.filter.glob = "t0123*"
    await pages.page(request, Page)
    assert looked_at == [f"t0123{digit}" for digit in range(10)]


async def test_names_are_put_in_order_once_however_many_changes_come() -> None:
    served = Served()
    names = [f"t{number:05}" for number in range(6_000)]
    random.Random(7).shuffle(names)
    served.put(*map(topic, names))
    await served.page(Request())
    for number in range(50):
        served.put(topic(f"new-{number}"))
        served.remove(f"t{number:05}")
        await served.page(Request(limit=1))
    assert served.names.sorts == 1
    assert [name for name, _ in shown(await served.all(Request()))] == sorted(served.topics)


async def test_nobody_who_does_not_ask_pays_for_the_order_of_names() -> None:
    served = Served()
    served.put(*(topic(f"t{number}") for number in range(100)))
    assert served.names.sorts == 0
    assert list(served.names.since("")) == []


async def test_an_order_that_very_many_changes_have_made_old_is_made_anew() -> None:
    served = Served()
    served.put(topic("a"))
    await served.page(Request())
    served.put(*(topic(f"t{number:05}") for number in range(CHANGED_MAX + 1)))
    assert len(shown(await served.all(Request(limit=10_000)))) == CHANGED_MAX + 2
    assert served.names.sorts == 2


async def test_an_order_whose_making_was_given_up_is_made_anew() -> None:
    """A caller that hangs up in the middle leaves nothing half done."""
    served = Served()
    served.put(*(topic(f"t{number:05}") for number in range(20_000)))
    first = asyncio.create_task(served.page(Request()))
    # Two turns: some names are in order, and most are not.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert first.cancelled()
    assert len(shown(await served.all(Request(limit=10_000)))) == 20_000


async def test_what_changes_while_names_are_put_in_order_is_not_lost() -> None:
    served = Served()
    served.put(*(topic(f"t{number:05}") for number in range(20_000)))
    first = asyncio.create_task(served.page(Request(limit=1)))
    # Two turns: some names are in order, and most are not.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    served.put(topic("a-new-one"))
    served.remove("t00000")
    assert shown([await first])[0][0] == "a-new-one"
    names = [name for name, _ in shown(await served.all(Request(limit=10_000)))]
    assert names == sorted(served.topics)
