"""A page of another origin in the same browser, and a search over a gigabyte: what a browser really does with them."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, Final

from regnum_console.guard import Hosts
from regnum_console.listening import served
from regnum_service.clock import SystemClock
from starlette.responses import HTMLResponse

from regnum_testing.fake_console import TOKEN, FakeConsole
from regnum_testing.pictures.devtools import Page, opened

RECORDS: Final = 100_000
RECORD_BYTES: Final = 10_000
"""A gigabyte of them."""
STOPPED_S: Final = 30.0
ELSEWHERE: Final = """<!doctype html><title>elsewhere</title>
<form id="form" method="post" action="{console}records/orders">
<input name="value" value="from elsewhere"><input name="token" value="{token}"></form>
<script>
const body = new URLSearchParams({{value: "from elsewhere", token: "{token}"}});
window.read = "nothing yet";
fetch("{console}records/orders", {{method: "POST", mode: "no-cors", body}})
  .catch(() => null)
  .then(() => fetch("{console}topics"))
  .then((answer) => answer.text(), () => "refused")
  .then((text) => {{ window.read = text; }});
</script>"""
"""Knows even the token of the page."""


async def judge(program: str) -> list[str]:
    """All that does not hold."""
    console = FakeConsole(writes=True, hosts=Hosts(scheme="http", names=("127.0.0.1",)))
    value = bytes(RECORD_BYTES)
    for _ in range(RECORDS):
        console.log.add(value)
    address = ""

    async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
        await HTMLResponse(ELSEWHERE.format(console=address, token=TOKEN))(scope, receive, send)

    clock = SystemClock()
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        address = f"http://127.0.0.1:{one.getsockname()[1]}/"
        async with served(console.app, one, clock), served(elsewhere, other, clock):
            ticking = asyncio.create_task(_ticking(console), name="time of the console")
            try:
                place = f"http://127.0.0.1:{other.getsockname()[1]}/"
                found = await asyncio.to_thread(lambda: list(_complaints(program, console, address, place)))
            finally:
                ticking.cancel()
                console.streams.closing.set()
    return found


async def _ticking(console: FakeConsole) -> None:
    while True:
        await asyncio.sleep(0.1)
        await console.clock.advance(0.1)


def _complaints(program: str, console: FakeConsole, address: str, elsewhere: str) -> Iterator[str]:
    with opened(program) as page:
        page.go(elsewhere)
        page.until("window.read !== 'nothing yet'")
        if (read := page.value("window.read")) != "refused":
            yield f"a page of another origin reads {len(read)} characters"
        page.value("document.getElementById('form').submit()")
        page.until(f"location.href.startsWith('{address}') && document.readyState === 'complete'")
        if "another origin" not in (told := page.value("document.body.innerText")):
            yield f"a form of another origin is answered: {told[:200]}"
        if console.log.sent:
            yield f"a page of another origin has produced {console.log.sent}"
        yield from _searched(page, console, f"{address}records/orders?search=needle&from=begin")


def _searched(page: Page, console: FakeConsole, search: str) -> Iterator[str]:
    page.go(search)
    page.until("document.querySelector('#progress progress')")
    page.value("document.getElementById('stop').click()")
    page.wait(1.0)
    with contextlib.suppress(TimeoutError):
        page.until("document.getElementById('live').dataset.state === 'done'", within_s=STOPPED_S)
    if console.log.open_readers:
        yield "a search goes on when it was stopped"
    page.go(search)
    page.until("document.getElementById('live').dataset.state === 'done'", within_s=10 * STOPPED_S)
    told = page.value("document.getElementById('progress').innerText")
    if f"0 found in {RECORDS:,} records, {RECORDS * RECORD_BYTES / 1e6:,.1f} MB" not in told:
        yield f"a search over a gigabyte says {told}"
