"""Whoever is not a page of the console itself neither reads nor changes anything through a browser."""

from urllib.parse import urlencode

import pytest
from regnum_console.app import CHANGES, PAGES
from regnum_testing.asgi import HOST, Answer, ask
from regnum_testing.fake_console import TOKEN, FakeConsole

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


async def post(console: FakeConsole, *, headers: dict[str, str] | None = None, **fields: str) -> Answer:
    body = urlencode(fields).encode()
    return await ask(console.app, "/records/orders", method="POST", headers={**FORM, **(headers or {})}, body=body)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8090"}, 200),
        ({"Origin": f"http://{HOST}"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        # A link that a person follows from elsewhere: a page is shown, and the page elsewhere sees nothing of it.
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        # A name of somebody's that points here (DNS rebinding).
        ({"Host": "evil.example:8090"}, 421),
        ({"Host": "127.0.0.1:9999"}, 421),
        ({"Host": ""}, 421),
        # (Python reads no number of that length.)
        ({"Host": f"127.0.0.1:{'9' * 5_000}"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        # Another port of this machine is another origin.
        ({"Origin": "http://127.0.0.1:3000"}, 403),
        ({"Origin": f"https://{HOST}"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 403),
    ],
)
async def test_only_the_consoles_own_pages_are_answered(headers: dict[str, str], status: int) -> None:
    console = FakeConsole()
    answer = await ask(console.app, "/topics", headers=headers)
    assert answer.status == status
    assert (console.cluster.calls > 0) == (status == 200), "the cluster is asked only for what is answered"


@pytest.mark.parametrize("path", ["/", "/static/console.js", "/nothing", "/topics?trouble=none-such"])
async def test_every_answer_forbids_scripts_of_others_and_frames(path: str) -> None:
    answer = await ask(FakeConsole().app, path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_no_page_needs_what_its_policy_forbids() -> None:
    for path in ("/", "/topics/orders", "/records/orders", "/changes", "/events", "/nothing"):
        text = (await ask(FakeConsole(writes=True).app, path)).text
        assert "<style" not in text
        assert " style=" not in text
        assert "<script>" not in text
        assert "javascript:" not in text
        assert "http://" not in text
        assert "https://" not in text


async def test_a_record_is_produced_with_the_pages_token() -> None:
    console = FakeConsole(writes=True)
    page = (await ask(console.app, "/records/orders")).text
    assert TOKEN in page
    answer = await post(console, token=TOKEN, key="k", value="v", partition="1")
    assert (answer.status, answer.headers["location"]) == (303, "/records/orders?partition=1&from=17")
    assert console.log.sent == [("orders", b"k", b"v", 1, ())]


@pytest.mark.parametrize(
    ("fields", "headers", "status"),
    [
        ({"value": "v"}, {}, 403),
        ({"value": "v", "token": "another"}, {}, 403),
        ({"value": "v", "token": TOKEN}, {"Origin": "http://evil.example"}, 403),
        ({"value": "v", "token": TOKEN}, {"Host": "evil.example:8090"}, 421),
        ({"value": "v", "token": TOKEN}, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ({"value": "v", "token": TOKEN}, {"Content-Type": "text/plain"}, 415),
        ({"value": "v" * 1_200_000, "token": TOKEN}, {}, 413),
        ({"value": "v", "token": TOKEN, "partition": "-1"}, {}, 400),
        ({"value": "v", "token": TOKEN, "partition": "9" * 5_000}, {}, 400),
    ],
)
async def test_nothing_else_produces(fields: dict[str, str], headers: dict[str, str], status: int) -> None:
    console = FakeConsole(writes=True)
    assert (await post(console, headers=headers, **fields)).status == status
    assert console.log.sent == []


async def test_a_console_that_is_read_only_has_neither_token_nor_form() -> None:
    console = FakeConsole()
    page = (await ask(console.app, "/records/orders")).text
    assert TOKEN not in page
    assert "Produce" not in page
    answer = await post(console, token=TOKEN, value="v")
    assert (answer.status, console.log.sent) == (403, [])
    assert "--writes" in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_what_is_read_is_only_read(method: str) -> None:
    console = FakeConsole(writes=True)
    for path, _ in PAGES:
        if path not in {one for one, _ in CHANGES}:
            address = path.replace("{topic}", "orders").replace("{partition:int}", "0").replace("{broker:int}", "1")
            address = address.replace("{group:path}", "billing").replace("{change}", "0")
            assert (await ask(console.app, address, method=method)).status == 405
    assert console.cluster.calls == 0
