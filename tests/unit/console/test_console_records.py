"""Records in a browser: pages by offset and time, what comes, and a search that has bounds and can be stopped."""

import asyncio
import json
import re
from collections.abc import MutableMapping
from html import unescape
from typing import Any

import pytest
from regnum_client.records import ConsumedRecord, TopicPartition
from regnum_console.context import FOLLOWS_MAX
from regnum_console.records.filtering import filter_of
from regnum_console.records.reading import SEARCH_BYTES_MAX, SEARCH_S_MAX, Work
from regnum_console.records.words import shown
from regnum_testing.asgi import HOST, EventStream, ask, scope_of
from regnum_testing.fake_console import FakeConsole
from regnum_testing.waiting import until, within


@pytest.mark.parametrize(
    ("data", "form", "text"),
    [
        (None, "auto", "(none)"),
        (b"plain", "auto", "plain"),
        (b'{"a":[1]}', "auto", '{\n  "a": [\n    1\n  ]\n}'),
        (b'{"a":[1]}', "text", '{"a":[1]}'),
        (b"12", "json", "12"),
        (b"{broken", "json", "{broken"),
        (b"\xff\x00A", "auto", f"0000  {'ff 00 41':<48} ..A"),
        (b"\x00\x01A", "auto", f"0000  {'00 01 41':<48} ..A"),
        (b"a\tb\r\nc", "auto", "a\tb\r\nc"),
        (b"A", "bytes", f"0000  {'41':<48} A"),
        ("é".encode() * 3_000, "auto", "é" * 2_048 + "\n... 1,904 bytes more"),
        (b"[" * 3_000, "json", "[" * 3_000),
    ],
)
def test_bytes_are_shown_in_the_form_that_is_asked_for(data: bytes | None, form: str, text: str) -> None:
    assert shown(data, form) == text


def record_of(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...] = ()
) -> ConsumedRecord:
    return ConsumedRecord("orders", 0, 0, 0, key, value, headers)


def test_a_text_is_found_in_keys_values_and_headers_however_json_spells_it() -> None:
    wanted = filter_of({"search": "Zoë"})
    assert wanted is not None
    assert wanted.finds(record_of("Zoë".encode(), None))
    assert wanted.finds(record_of(None, json.dumps({"name": "Zoë"}).encode()))
    assert wanted.finds(record_of(None, b"", (("Zoë", None),)))
    assert wanted.finds(record_of(None, b"", (("by", "Zoë".encode()),)))
    assert not wanted.finds(record_of(b"Zo", b"e", (("by", None),)))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"key": "customer"}, True),
        ({"key": "Anna"}, False),
        ({"value": "Anna"}, True),
        ({"value": "customer"}, False),
        ({"header": "by"}, True),
        ({"header": "BY"}, False),
        ({"header": "by=port"}, True),
        ({"header": "by=Anna"}, False),
        ({"header": "none"}, True),
        ({"header": "none=x"}, False),
        ({"header": "by=a=b"}, True),
        ({"header": "=import"}, True),
        ({"header": "=Anna"}, False),
        ({"key": "customer", "value": "Anna", "header": "by=import", "search": "7"}, True),
        ({"key": "customer", "value": "Bert"}, False),
        ({"key": "customer", "search": "elsewhere"}, False),
    ],
)
def test_a_filter_asks_for_all_that_it_names(asked: dict[str, str], found: bool) -> None:
    record = record_of(b"customer-7", b"Anna", (("by", b"import"), ("by", b"a=b"), ("none", None)))
    wanted = filter_of(asked)
    assert wanted is not None
    assert wanted.finds(record) is found


def test_a_form_without_a_text_filters_nothing() -> None:
    assert filter_of({"search": "", "partition": "3"}) is None


async def test_a_filter_is_an_address_and_stands_in_its_form_again() -> None:
    console = FakeConsole()
    for n in range(20):
        console.log.add(b"value-%d" % n, key=b"customer-%d" % (n % 4), headers=(("by", b"import"),) if n == 6 else ())
    page = (await ask(console.app, "/records/orders?key=customer-2&header=by%3Dimport&partition=0")).text
    live = re.search(r'data-live="([^"]*)"', page)
    assert live is not None
    assert 'name="key" value="customer-2"' in page
    assert 'data-saves="records"' in page
    async with EventStream(console.app, unescape(live[1])) as stream:
        found = await stream.next("part")
        assert "1 found in 20 records" in (await stream.next("done"))["html"]
    assert "value-6<" in found["html"]


async def test_a_page_begins_where_it_is_told_and_leads_on() -> None:
    console = FakeConsole()
    for n in range(180):
        console.log.add(b"value-%d" % n)
    newest = (await ask(console.app, "/records/orders")).text
    assert "value-179" in newest
    assert "value-129<" not in newest
    page = (await ask(console.app, "/records/orders?from=60")).text
    assert "value-60<" in page
    assert "value-109<" in page
    assert "value-110<" not in page
    assert "partition=0&amp;from=10" in page
    assert "partition=0&amp;from=110" in page
    assert "value-40<" in (await ask(console.app, "/records/orders?from=-1h")).text
    assert "value-0<" in (await ask(console.app, "/records/orders?from=begin")).text
    for wrong in ("from=tomorrow", "partition=x", "as=xml"):
        assert (await ask(console.app, f"/records/orders?{wrong}")).status == 400
    assert (await ask(console.app, "/records/orders?partition=9")).status == 404
    assert console.log.open_readers == 0


async def test_a_page_of_large_records_is_bounded() -> None:
    console = FakeConsole()
    for _ in range(60):
        console.log.add(b"x" * 900_000, key=b"k" * 90_000)
    assert len((await ask(console.app, "/records/orders")).body) < 1_000_000


@pytest.mark.parametrize("value", [b"[" * 900 + b"]" * 900, b"[" * 31 + b"1," * 1_900 + b"1" + b"]" * 31])
async def test_json_that_grows_when_it_is_laid_out_is_shown_as_it_is(value: bytes) -> None:
    assert shown(value, "auto") == value.decode()
    assert shown(value, "json") == value.decode()
    assert shown(b'{"a": {"b": [1]}}', "auto").count("\n") == 6


async def test_pages_are_made_while_as_many_follow_as_may() -> None:
    console = FakeConsole()
    console.log.add(b"value")
    followers = [EventStream(console.app, "/live/tail/orders") for _ in range(FOLLOWS_MAX)]
    try:
        for one in followers:
            await one.__aenter__()
        await until(lambda: console.log.open_readers == FOLLOWS_MAX)
        assert "value" in (await ask(console.app, "/records/orders?from=begin")).text
    finally:
        for one in followers:
            await one.__aexit__()


async def test_what_comes_is_shown_the_newest_on_top() -> None:
    console = FakeConsole()
    console.log.add(b"before")
    async with EventStream(console.app, "/live/tail/orders?partition=0") as stream:
        await stream.next("open")
        await until(lambda: console.log.open_readers == 1)
        for n in range(60):
            console.log.add(b"value-%d" % n)
        part = await stream.next("part")
    assert part["how"] == "prepend"
    assert "before" not in part["html"].split("records before")[0]
    assert part["html"].index("value-59") < part["html"].index("value-10")
    assert "10 records before these" in part["html"]
    assert console.log.assigned == [0]
    assert console.log.open_readers == 0


async def test_a_stream_whose_reader_has_stopped_is_let_go_with_what_it_holds() -> None:
    console = FakeConsole()
    writing, hung_up = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        await hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            writing.set()
            await asyncio.Event().wait()

    path = "/live/tail/orders"
    stream = asyncio.create_task(console.app(scope_of(path, "GET", {"Host": HOST}), receive, send))
    await within(writing.wait())
    assert console.streams.open == 1
    hung_up.set()
    await within(stream)
    await until(lambda: console.streams.open == 0)
    assert console.log.open_readers == 0


async def test_a_search_goes_to_the_end_says_how_far_it_is_and_shows_what_it_found() -> None:
    console = FakeConsole()
    for n in range(3_500):
        console.log.add(b"needle" if n == 1_700 else b"hay-%d" % n)
    async with EventStream(console.app, "/live/search/orders?search=needle") as stream:
        found = await stream.next("part")
        done = await stream.next("done")
        await stream.ended()
    assert found["element"] == "found"
    assert "1,700" in found["html"]
    assert "Everything was searched. 1 found in 3,500 records" in done["html"]
    assert console.log.open_readers == 0


async def test_a_search_ends_when_its_page_is_closed() -> None:
    console = FakeConsole()
    console.log.add(b"hay")
    console.log.gate.clear()
    async with EventStream(console.app, "/live/search/orders?search=needle") as stream:
        await stream.next("open")
        await until(lambda: console.log.open_readers == 1)
    assert console.log.open_readers == 0


async def test_searches_beyond_the_bound_wait_for_others() -> None:
    console = FakeConsole()
    console.log.add(b"hay")
    console.log.gate.clear()
    path = "/live/search/orders?search=needle"
    async with EventStream(console.app, path), EventStream(console.app, path):
        await until(lambda: console.log.open_readers == 2)
        async with EventStream(console.app, path) as third:
            assert "Other searches" in (await third.next("part"))["html"]
            assert console.log.open_readers == 2
            console.log.gate.set()
            await third.next("done")


async def test_a_search_ends_with_so_many_found() -> None:
    console = FakeConsole()
    for _ in range(2_500):
        console.log.add(b"needle")
    async with EventStream(console.app, "/live/search/orders?search=needle") as stream:
        assert "200 records are found" in (await stream.next("done"))["html"]


def test_a_search_is_bounded_in_bytes_and_in_time() -> None:
    partition = TopicPartition("orders", 0)
    work = Work({partition: 100}, {partition: 1_100})
    assert work.over({partition: 600}, SEARCH_S_MAX - 1) == ""
    assert work.share({partition: 600}) == 0.5
    assert "as much as one search" in work.over({partition: 600}, SEARCH_S_MAX)
    work.bytes = SEARCH_BYTES_MAX
    assert "as much as one search" in work.over({partition: 600}, 1)
    assert "Everything" in work.over({partition: 1_100}, 1)
