"""What the console keeps in a browser: filters by name, which a page shows again after it was closed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from regnum_testing.pictures.devtools import Page, opened

NAME: Final = "orders of <b>Anna</b> & more"
LINK: Final = "document.querySelector('.kept a')"
FILTERED: Final = "records/orders?from=begin&key=customer-3&value=Anna"


def complaints(program: str, address: str, folder: Path) -> Iterator[str]:
    """What does not hold of the console at an address, which ends with ``/``; pictures are left in a folder."""
    with opened(program) as page:
        page.look(width=1100, height=900, dark=False)
        page.requests.clear()
        yield from _filters(page, address, folder)
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
