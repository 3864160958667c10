"""What the console keeps in a browser and shows again: filters by name, favourite topics, hidden ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from regnum_testing.pictures.devtools import Page, opened

NAME: Final = "orders of <b>Anna</b> & more"
KEPT: Final = ["★", "clicks.region-0000", "show", "1", "hidden"]
LINK: Final = "document.querySelector('.kept a')"
FILTERED: Final = "records/orders?from=begin&key=customer-3&value=Anna"


def complaints(program: str, address: str, folder: Path) -> Iterator[str]:
    """What does not hold of the console at an address, which ends with ``/``; pictures are left in a folder."""
    with opened(program) as page:
        page.look(width=1100, height=900, dark=False)
        page.requests.clear()
        yield from _filters(page, address, folder)
        yield from _topics(page, address, folder)
        yield from (f"with what is kept: {told}" for told in page.complaints)
        yield from (f"it asks for {one}" for one in page.requests if not one.startswith(address))


def _filters(page: Page, address: str, folder: Path) -> Iterator[str]:
    page.go(f"{address}{FILTERED}")
    page.until("document.querySelector('.kept input')")
    page.value(f"document.querySelector('.kept input').value = {NAME!r}")
    page.value("document.querySelector('.kept input ~ button').click()")
    page.go(f"{address}records/clicks.region-0001")
    page.go(f"{address}records/orders")
    page.until(LINK)
    page.picture(folder / "kept-filters.png")
    if (told := page.value(f"{LINK}.innerText")) != NAME:
        yield f"a filter that is kept is called {told!r}"
    page.value(f"{LINK}.click()")
    page.until("location.search.includes('customer-3')")
    page.until("document.readyState === 'complete'")
    if (key := page.value("document.querySelector('input[name=key]').value")) != "customer-3":
        yield f"a filter that is applied again asks for the key {key!r}"
    page.until(LINK)
    page.value("document.querySelector('.kept a + button').click()")
    page.go(f"{address}records/orders")
    page.until("document.querySelector('.kept input')")
    if page.value(f"Boolean({LINK})"):
        yield "a filter that was forgotten is there again"


def _topics(page: Page, address: str, folder: Path) -> Iterator[str]:
    shown = "[...document.querySelectorAll('a[data-topic]')].filter((one) => !one.closest('tr').hidden).length"
    page.go(f"{address}topics")
    page.until("document.querySelector('td button')")
    before = page.value(shown)
    page.value("document.querySelectorAll('td button')[0].click()")
    page.value("document.querySelectorAll('td button')[3].click()")
    page.go(f"{address}topics?match=0")
    page.until("document.querySelector('td button')")
    page.picture(folder / "kept-topics.png")
    if (told := page.value("document.querySelector('.kept').innerText").split()) != KEPT:
        yield f"a favourite and a hidden topic are told as {told!r}"
    page.go(f"{address}topics")
    page.until("document.querySelector('td button')")
    if (left := page.value(shown)) != before - 1:
        yield f"of {before} topics {left} are left when one is hidden"
    page.value("document.querySelector('.kept button').click()")
    if (left := page.value(shown)) != before:
        yield f"of {before} topics {left} are there when hidden ones are shown"
    page.value("[...document.querySelectorAll('td button[aria-pressed=true]')].forEach((one) => one.click())")
    if told := page.value("document.querySelector('.kept').innerText.trim()"):
        yield f"nothing is kept any more, and the page says {told!r}"
