"""The list of topics: sizes, records and lag, sorted and chosen by them, at a cost that topics do not raise."""

import asyncio
import re

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client.admin.groups.views import CommittedOffset
from regnum_client.records import TopicPartition
from regnum_console.keeping import KEPT_S, Kept
from regnum_console.pages.lags import MEASURED_MAX
from regnum_console.pages.ranking import bytes_in
from regnum_service.errors import RegnumError
from regnum_testing.asgi import ask
from regnum_testing.clock import FakeClock
from regnum_testing.fake_console import WHEN_MS, FakeConsole, topic_of
from starlette.exceptions import HTTPException


async def shown(console: FakeConsole, path: str, *, status: int = 200) -> str:
    answer = await ask(console.app, path)
    assert answer.status == status, answer.text
    return answer.text


def rows(html: str) -> list[list[str]]:
    """Cells of each row of a table."""
    body = html.partition("<tbody>")[2].partition("</tbody>")[0]
    return [[re.sub("<[^>]*>", "", cell) for cell in row.split("</td>")[:-1]] for row in body.split("</tr>")[:-1]]


def names(html: str) -> list[str]:
    return [row[0] for row in rows(html)]


def console_of(*topics: str) -> FakeConsole:
    console = FakeConsole()
    console.cluster.topics = {name: topic_of(name, [[1, 2, 3]]) for name in topics}
    return console


def commit(console: FakeConsole, group: str, **offsets: int) -> None:
    committed = {TopicPartition(name, 0): CommittedOffset(at, 1, "", WHEN_MS) for name, at in offsets.items()}
    console.cluster.groups[group] = committed


async def test_each_row_has_the_lag_of_all_groups_and_a_topic_without_commits_has_none() -> None:
    console = console_of("clicks", "orders", "quiet")
    commit(console, "billing", orders=70, clicks=100)
    commit(console, "report", orders=95)
    assert [(row[0], row[-1]) for row in rows(await shown(console, "/topics"))] == [
        ("clicks", "0"), ("orders", "35"), ("quiet", "-"),
    ]  # fmt: skip
    by_lag = await shown(console, "/topics?by=lag")
    assert names(by_lag) == ["orders", "clicks"]
    assert rows(by_lag)[0][-3:] == ["35", "100", "1 kB"]
    assert names(await shown(console, "/topics?by=lag&match=click")) == ["clicks"]
    assert names(await shown(console_of("orders"), "/topics?by=lag")) == []


async def test_lag_is_measured_once_in_a_while_however_many_pages_ask() -> None:
    console = console_of(*(f"topic-{n:04}" for n in range(3_000)))
    for n in range(50):
        commit(console, f"group-{n}", **{"topic-0007": n})
    await shown(console, "/topics")
    first = console.cluster.calls
    assert first <= 50 + 10, "one call for each group, none for a topic"
    await asyncio.gather(*(shown(console, "/topics") for _ in range(5)))
    assert console.cluster.calls == first + 5
    await console.clock.advance(KEPT_S)
    await shown(console, "/topics")
    assert console.cluster.calls == 2 * first + 5


async def test_a_list_without_lag_says_why_and_is_shown() -> None:
    console = console_of("orders")

    refusal = RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "no coordinator answers")
    console.cluster.groups_refusal = refusal
    page = await shown(console, "/topics")
    assert rows(page)[0][-1] == "-"
    assert "Lag is not known: no coordinator answers" in page
    many = console_of("orders")
    for n in range(MEASURED_MAX + 1):
        commit(many, f"group-{n:03}", orders=n % 100)
    assert f"the first {MEASURED_MAX} of {MEASURED_MAX + 1} groups" in await shown(many, "/topics")


async def test_topics_are_sorted_and_chosen_by_size_and_records() -> None:
    console = console_of("a", "b", "c", "__own")
    console.cluster.sizes = {TopicPartition("b", 0): 7_000_000, TopicPartition("c", 0): 9_000_000}
    assert names(await shown(console, "/topics?by=size")) == ["c", "b", "a"]
    assert names(await shown(console, "/topics?by=size&min_size=8MB")) == ["c"]
    assert names(await shown(console, "/topics?min_size=1+MB")) == ["b", "c"], "by name, unless told otherwise"
    assert names(await shown(console, "/topics?by=records&internal=1")) == ["__own", "a", "b", "c"]
    assert names(await shown(console, "/topics?min_records=100")) == ["a", "b", "c"]
    assert names(await shown(console, "/topics?min_records=101")) == []
    page = await shown(console, "/topics?by=size&min_size=1MB&match=b")
    assert 'href="/topics?match=b&amp;by=records&amp;min_size=1MB"' in page
    for wrong in ("by=colour", "min_size=much", "min_records=x"):
        await shown(console, f"/topics?{wrong}", status=400)


async def test_ranked_topics_come_in_pages() -> None:
    console = console_of(*(f"topic-{n:03}" for n in range(150)))
    first = await shown(console, "/topics?by=size")
    assert (len(rows(first)), "150 of 150 topics" in first) == (100, True)
    assert 'href="/topics?by=size&amp;from=100">Next page' in first
    assert names(await shown(console, "/topics?by=size&from=100"))[-1] == "topic-149"


@pytest.mark.parametrize(
    ("text", "size"), [("", 0), ("4096", 4_096), ("10 MB", 10_000_000), ("1.5g", 1_500_000_000), ("2 kb", 2_000)]
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert bytes_in("it", text) == size


@pytest.mark.parametrize("text", ["-1", "MB", "1 XB", "9" * 5_000, "1e9", "٣"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(HTTPException, match="is a size such as"):
        bytes_in("it", text)


async def test_a_figure_whose_finder_fails_is_found_out_by_the_next_page() -> None:
    kept, clock = Kept[int](), FakeClock()

    async def fails() -> int:
        raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "not now")

    async def seven() -> int:
        return 7

    with pytest.raises(RegnumError, match="not now"):
        await kept.get(fails, clock)
    assert await kept.get(seven, clock) == 7
