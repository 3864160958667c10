"""What all pages have in common."""

from typing import Final

from starlette.responses import HTMLResponse

from regnum_console.html import Child, Markup, el

PLACES: Final = (
    ("/", "Cluster"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/records", "Records"),
    ("/changes", "Changes"),
    ("/events", "Events"),
    ("/quotas", "Quotas"),
    ("/moves", "Moves"),
)
"""Pages that every page leads to; the keys 1 to 8 as well."""


def page(title: str, *body: Child, here: str = "", live: str = "", status: int = 200) -> HTMLResponse:
    """A page. ``live``: address of the stream that keeps it up to date."""
    places = [
        el("a", name, href=path, accesskey=str(at), aria_current="page" if path == here else None)
        for at, (path, name) in enumerate(PLACES, 1)
    ]
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", f"{title} - Regnum"),
        el("link", rel="icon", href="/static/icon.svg"),
        el("link", rel="stylesheet", href="/static/svg.css"),
        el("link", rel="stylesheet", href="/static/console.css"),
        el("script", src="/static/console.js", type="module"),
    )
    content = el(
        "body",
        el("a", "Skip to content", href="#main", class_="skip"),
        el("header", el("a", "Regnum", href="/", class_="brand"), el("nav", places, aria_label="Pages")),
        el(
            "main",
            el("div", el("h1", title), _live() if live else None, class_="head"),
            body,
            id="main",
            tabindex=-1,
            data_live=live or None,
        ),
    )
    return HTMLResponse(f"<!doctype html>{el('html', head, content, lang='en')}", status_code=status)


def _live() -> Markup:
    """Says whether the page is kept up to date."""
    return el("span", "connecting", id="live", role="status", class_="quiet")


def area(id: str, *content: Child) -> Markup:
    """An element that a stream puts new content into."""
    return el("div", *content, id=id)
