"""A console beyond its machine has no rights of its own: each visitor signs in, and is asked for by name."""

import asyncio
import contextlib
import re
from pathlib import Path

import pytest
from regnum.types.v1 import errors_pb2
from regnum_console.app import CHANGES, PAGES
from regnum_console.live.streams import VISITOR_STREAMS_MAX
from regnum_console.live.tail import TraceTail
from regnum_console.visitors.attempts import ADDRESSES_MAX, BURST, EVERY_S, Attempts
from regnum_console.visitors.contexts import VISITOR_READS_MAX
from regnum_console.visitors.sessions import IDLE_S, LIFETIME_S, OF_TOKEN_MAX
from regnum_console.visitors.visitors import CHECKS_MAX, WAITING_MAX
from regnum_insight.attribution.changes import SELECTION
from regnum_service.errors import RegnumError
from regnum_testing.change_traces import FullChangeTrace
from regnum_testing.fake_visitors import ORIGIN, FakeVisitors, credential_of
from regnum_testing.waiting import eventually, until

ADDRESSES = [
    path.replace("{topic}", "orders")
    .replace("{partition:int}", "0")
    .replace("{broker:int}", "1")
    .replace("{group:path}", "billing")
    .replace("{change}", "0")
    for path, _ in PAGES
]
ENDED = RegnumError(errors_pb2.ERROR_CODE_DELEGATION_TOKEN_EXPIRED, "the delegation token has expired")
NOT_ALLOWED = RegnumError(errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED, "you may not DESCRIBE the cluster")


def page_token(text: str) -> str:
    found = re.search(r'name="token" value="([^"]+)"', text)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("cookie", ["", "__Host-regnum=", "__Host-regnum=guessed", "regnum=other"])
async def test_without_a_session_there_is_the_form_and_nothing_else(cookie: str) -> None:
    console = FakeVisitors()
    alice = console.add("alice", "orders")
    for address in ADDRESSES:
        answer = await console.get(address, cookie=cookie)
        assert answer.status == 401
        assert "orders" not in answer.text.replace(address, "")
    for address, _ in CHANGES:
        assert (await console.post(address.replace("{topic}", "orders"), cookie=cookie, value="v")).status == 401
    assert (await console.post("/sign-out", cookie=cookie)).status == 401
    assert (console.asked, alice.calls) == (0, 0)


async def test_who_signs_in_sees_what_the_cluster_shows_them_and_their_browser_keeps_another_secret() -> None:
    console = FakeVisitors()
    console.add("alice", "orders")
    console.add("bob", "invoices")
    answer = await console.post("/sign-in", token=f" {credential_of('alice')}\n", next="/topics?name=o")
    assert (answer.status, answer.headers["location"]) == (303, "/topics?name=o")
    kept = answer.headers["set-cookie"]
    assert kept.startswith("__Host-regnum=")
    assert {"httponly", "secure", "samesite=strict", "path=/"} <= {one.strip().lower() for one in kept.split(";")}
    assert "domain" not in kept.lower()
    alices, bobs = kept.partition(";")[0], await console.sign_in("bob")
    seen = (await console.get("/topics", cookie=alices)).text
    assert "orders" in seen
    assert "invoices" not in seen
    assert "invoices" in (await console.get("/topics", cookie=bobs)).text
    for text in (kept, seen):
        assert "h" * 80 not in text
    assert "token alice" in seen


async def test_a_page_token_is_of_no_use_but_in_its_own_session() -> None:
    console = FakeVisitors()
    for name in ("alice", "mallory"):
        console.add(name, "orders")
    alices, mallorys = await console.sign_in("alice"), await console.sign_in("mallory")
    stolen = page_token((await console.get("/records/orders", cookie=alices)).text)
    for cookie, status in (("", 401), (mallorys, 403)):
        assert (await console.post("/records/orders", cookie=cookie, token=stolen, value="v")).status == status
        assert (await console.post("/sign-out", cookie=cookie, token=stolen)).status == status
    for origin in ("https://evil.example", "null", "https://console.example"):
        assert (await console.post("/records/orders", cookie=alices, origin=origin, token=stolen)).status == 403
    assert console.logs["alice"].sent == console.logs["mallory"].sent == []
    assert (await console.post("/records/orders", cookie=alices, token=stolen, value="v")).status == 303
    assert [value for _, _, value, *_ in console.logs["alice"].sent] == [b"v"]
    assert console.logs["mallory"].sent == []


@pytest.mark.parametrize("origin", [None, "https://evil.example", "null", "http://console.example:8443"])
async def test_another_site_signs_no_browser_in(origin: str | None) -> None:
    console = FakeVisitors()
    console.add("mallory")
    assert (await console.post("/sign-in", origin=origin, token=credential_of("mallory"))).status == 403
    assert console.asked == 0


@pytest.mark.parametrize(
    "back", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:1", "", "/a\r\nb", "/sign-out"]
)
async def test_signing_in_leads_to_a_page_of_the_console_alone(back: str) -> None:
    console = FakeVisitors()
    console.add("alice")
    answer = await console.post("/sign-in", token=credential_of("alice"), next=back)
    assert (answer.status, answer.headers["location"]) == (303, "/")


async def test_signing_out_ends_streams_and_connections() -> None:
    console = FakeVisitors()
    console.add("alice", "orders")
    cookie, other = await console.sign_in("alice"), await console.sign_in("alice")
    token = page_token((await console.get("/topics", cookie=cookie)).text)
    async with console.stream("/live/cluster", cookie=cookie) as stream:
        await stream.next("part")
        answer = await console.post("/sign-out", cookie=cookie, token=token)
        assert answer.status == 303
        assert "max-age=0" in answer.headers["set-cookie"].lower()
        await stream.ended()
    assert (console.open, len(console.sessions)) == (1, 1)
    assert (await console.get("/topics", cookie=cookie)).status == 401
    assert (await console.get("/topics", cookie=other)).status == 200
    await console.sessions.close()
    assert console.open == 0


async def test_signing_in_again_ends_what_that_browser_had() -> None:
    console = FakeVisitors()
    console.add("alice")
    before = await console.sign_in("alice")
    await console.post("/sign-in", cookie=before, token=credential_of("alice"))
    assert (await console.get("/", cookie=before)).status == 401
    assert console.open == 1


async def test_a_session_ends_when_no_page_is_asked_for_and_in_any_case_in_the_end() -> None:
    console = FakeVisitors()
    console.add("alice")
    cookie = await console.sign_in("alice")
    async with console.stream("/live/moves", cookie=cookie) as stream:
        await stream.next("part")
        await console.clock.advance(IDLE_S - 1)
        # (A stream that connects again is no person.)
        async with console.stream("/live/moves", cookie=cookie):
            await console.clock.advance(2)
        await stream.ended()
    assert (await console.get("/", cookie=cookie)).status == 401
    assert console.open == 0
    cookie = await console.sign_in("alice")
    for _ in range(int(LIFETIME_S / (IDLE_S - 1))):
        assert (await console.get("/", cookie=cookie)).status == 200
        await console.clock.advance(IDLE_S - 1)
    await console.clock.advance(LIFETIME_S % (IDLE_S - 1) + 1)
    assert (await console.get("/", cookie=cookie)).status == 401
    assert console.open == 0


@pytest.mark.parametrize("address", ["/topics", "/", "/events", "/quotas", "/changes"])
async def test_a_token_that_ends_takes_its_session_along(address: str) -> None:
    console = FakeVisitors()
    alice = console.add("alice", "orders")
    cookie = await console.sign_in("alice")
    assert (await console.get(address, cookie=cookie)).status == 200
    alice.refusal = ENDED
    answer = await console.get(address, cookie=cookie)
    assert (answer.status, "Sign in" in answer.text) == (401, True)
    await until(lambda: console.open == 0)
    alice.refusal = None
    assert (await console.get(address, cookie=cookie)).status == 401


async def test_a_token_that_ends_while_a_page_is_open_takes_its_session_along() -> None:
    console = FakeVisitors()
    alice = console.add("alice")
    cookie = await console.sign_in("alice")
    async with console.stream("/live/cluster", cookie=cookie) as stream:
        await stream.next("part")
        alice.refusal = ENDED
        await until(lambda: console.clock.sleepers > 1)
        await console.clock.advance(2.0)
        assert "expired" in (await stream.next("trouble"))["text"]
    await until(lambda: console.open == 0)
    assert (await console.get("/live/cluster", cookie=cookie)).status == 401


async def test_a_visitor_without_rights_sees_nothing_of_traces(tmp_path: Path) -> None:
    FullChangeTrace().write(tmp_path)
    console = FakeVisitors(source=TraceTail(tmp_path, SELECTION))
    alice, mallory = console.add("alice", "orders"), console.add("mallory", "orders")
    alices, mallorys = await console.sign_in("alice"), await console.sign_in("mallory")
    seen = (await console.get("/changes", cookie=alices)).text
    trace_id = re.search(r"/changes/([0-9a-f]{32})", seen)
    assert trace_id is not None
    mallory.refusal = NOT_ALLOWED
    for address in ("/changes", f"/changes/{trace_id[1]}", "/topics/orders/1"):
        assert "broker 1" in (await console.get(address, cookie=alices)).text
        answer = await console.get(address, cookie=mallorys)
        assert (answer.status, "broker 1" in answer.text) == (403, False)
    for address in ("/live/changes", f"/live/changes/{trace_id[1]}"):
        async with console.stream(address, cookie=mallorys) as stream:
            assert "may not" in (await stream.next("trouble"))["text"]
    async with console.stream("/live/changes", cookie=alices) as stream:
        await stream.next("part")
        alice.refusal = NOT_ALLOWED
        # A right that is taken back while the page is open.
        trouble = asyncio.ensure_future(stream.next("trouble"))

        async def has_come() -> bool:
            await console.clock.advance(1.0)
            return trouble.done()

        await eventually(has_come, what="what the page says of the right")
        await trouble


async def test_ten_thousand_wrong_tokens_cost_next_to_nothing_and_shut_out_no_other_visitor() -> None:
    console = FakeVisitors()
    console.add("alice")
    statuses = [
        (await console.post("/sign-in", token=credential_of(f"n{n}"), client="203.0.113.7")).status for n in range(100)
    ]
    assert statuses.count(401) == console.asked == BURST
    assert statuses[BURST:] == [429] * (100 - BURST)
    refused = await console.post("/sign-in", token=credential_of("alice"), client="203.0.113.7")
    assert (refused.status, int(refused.headers["retry-after"]) <= EVERY_S) == (429, True)
    assert (await console.post("/sign-in", token=credential_of("alice"), client="203.0.113.8")).status == 303


def test_tries_are_counted_by_network_and_what_is_remembered_is_bounded() -> None:
    attempts = Attempts()
    for n in range(1_000):
        attempts.take("198.51.100.1", n / 100)
    assert attempts.take("198.51.100.1", 10.0) > 0
    assert attempts.take("198.51.100.1", 10.0 + EVERY_S) == 0
    tries = [attempts.take(f"2001:db8::{n:x}", 20.0) for n in range(BURST + 5)]
    assert tries.count(0) == BURST
    assert attempts.take("2001:db8:0:1::1", 20.0) == 0
    assert attempts.take("::ffff:198.51.100.1", 20.0) == 0
    for n in range(ADDRESSES_MAX + 100):
        attempts.take(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", 30.0)
    assert len(attempts) == ADDRESSES_MAX


async def test_so_many_tokens_are_checked_at_a_time_and_what_waits_is_bounded() -> None:
    console = FakeVisitors()
    answers = await asyncio.gather(
        *(console.post("/sign-in", token=credential_of(f"n{n}"), client=f"10.0.1.{n}") for n in range(200))
    )
    statuses = [answer.status for answer in answers]
    assert console.checking_most == CHECKS_MAX
    assert statuses.count(503) == 200 - WAITING_MAX
    assert statuses.count(401) == console.asked == WAITING_MAX


@pytest.mark.parametrize("token", ["", "x", "i" * 22, f"{'i' * 22}.{'h' * 85}", f"{'i' * 22}.{'é' * 86}", "x" * 3_000])
async def test_what_is_no_token_is_not_passed_on_and_not_repeated(token: str) -> None:
    console = FakeVisitors()
    answer = await console.post("/sign-in", token=token)
    assert (answer.status, console.asked) == (401, 0)
    assert "x" * 100 not in answer.text
    assert (await console.post("/sign-in", token="x" * 5_000)).status == 413


async def test_a_visitor_takes_no_place_of_others() -> None:
    console = FakeVisitors()
    console.add("alice")
    console.add("mallory")
    cookies = [await console.sign_in("alice")]
    mallorys: list[str] = []
    for _ in range(OF_TOKEN_MAX + 3):
        mallorys.append(await console.sign_in("mallory"))
        await console.clock.advance(EVERY_S)
    assert (len(console.sessions), console.open) == (OF_TOKEN_MAX + 1, OF_TOKEN_MAX + 1)
    assert (await console.get("/", cookie=cookies[0])).status == 200
    assert [(await console.get("/", cookie=one)).status for one in mallorys[:4]] == [401, 401, 401, 200]
    assert await _follows(console, mallorys[-1], times=3) == [False, False, True]
    streams = [console.stream("/live/moves", cookie=mallorys[-1]) for _ in range(VISITOR_STREAMS_MAX + 1)]
    try:
        for stream in streams:
            await stream.__aenter__()
        for stream in streams[:-1]:
            await stream.next("part")
        assert "are open already" in (await streams[-1].next("done"))["html"]
        async with console.stream("/live/moves", cookie=cookies[0]) as other:
            await other.next("part")
    finally:
        for stream in streams:
            await stream.__aexit__()


async def test_who_searches_twice_waits_for_the_own_search_and_others_do_not() -> None:
    console = FakeVisitors()
    for name in ("alice", "mallory"):
        console.add(name, "orders")
        console.logs[name].add(b"needle")
    alices, mallorys = await console.sign_in("alice"), await console.sign_in("mallory")
    console.logs["mallory"].gate.clear()
    async with (
        console.stream("/live/search/orders?search=needle", cookie=mallorys),
        console.stream("/live/search/orders?search=needle", cookie=mallorys) as second,
        console.stream("/live/search/orders?search=needle", cookie=mallorys),
    ):
        assert "Other searches" in (await second.next("part"))["html"]
        async with console.stream("/live/search/orders?search=needle", cookie=alices) as other:
            assert "needle" in (await other.next("part"))["html"]
        console.logs["mallory"].gate.set()


async def test_every_page_with_a_session_is_as_closed_as_without() -> None:
    console = FakeVisitors()
    console.add("alice", "orders")
    cookie = await console.sign_in("alice")
    for path in ("/", "/sign-in"):
        answer = await console.get(path, cookie=cookie)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
    assert (await console.get("/topics", cookie=cookie)).headers.get("access-control-allow-origin") is None
    assert ORIGIN not in (await console.get("/", cookie=cookie)).text


async def _follows(console: FakeVisitors, cookie: str, *, times: int) -> list[bool]:
    """Of pages that follow records, opened one after another, which wait for the others."""
    waits = []
    async with contextlib.AsyncExitStack() as stack:
        for number in range(times):
            stream = await stack.enter_async_context(console.stream("/live/tail/orders", cookie=cookie))
            await stream.next("open")
            waits.append(number >= VISITOR_READS_MAX and "Other pages" in (await stream.next("part"))["html"])
    return waits
