"""What all pages have in common."""

from typing import Final

from starlette.responses import HTMLResponse

from regnum_console.context import Context
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


SIGN_IN: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"
"""Where these forms go."""


def page(
    context: Context | None, title: str, *body: Child, here: str = "", live: str = "", status: int = 200
) -> HTMLResponse:
    """A page. ``live``: address of the stream that keeps it up to date."""
    places = [
        el("a", name, href=path, accesskey=str(at), aria_current="page" if path == here else None)
        for at, (path, name) in enumerate(PLACES, 1)
    ]
    head = [el("nav", places, aria_label="Pages"), None if context is None else _visitor(context)]
    return _document(title, head, [*body], live, status)


def bare(title: str, *body: Child, status: int) -> HTMLResponse:
    """A page for a visitor who has not signed in: it leads nowhere."""
    return _document(title, None, [*body], "", status)


def _document(title: str, head: Child, body: list[Child], live: str, status: int) -> HTMLResponse:
    about = el(
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
        el("header", el("a", "Regnum", href="/", class_="brand"), head),
        el(
            "main",
            el("div", el("h1", title), _live() if live else None, class_="head"),
            body,
            id="main",
            tabindex=-1,
            data_live=live or None,
        ),
    )
    return HTMLResponse(f"<!doctype html>{el('html', about, content, lang='en')}", status_code=status)


def _visitor(context: Context) -> Markup | None:
    """Who is asked for, and the way out."""
    if context.visitor is None:
        return None
    return el(
        "form",
        el("span", f"token {context.visitor}", class_="quiet"),
        el("input", type="hidden", name="token", value=context.token),
        el("button", "Sign out"),
        method="post",
        action=SIGN_OUT,
        class_="visitor",
    )


def _live() -> Markup:
    """Says whether the page is kept up to date."""
    return el("span", "connecting", id="live", role="status", class_="quiet")


def area(id: str, *content: Child) -> Markup:
    """An element that a stream puts new content into."""
    return el("div", *content, id=id)
