"""HTML as text that was escaped on its way in. Pure."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

VOID: Final = frozenset({"input", "link", "meta", "br"})
"""Elements that have no end."""


WORDS: Final = 40
"""A cell with more characters is broken into lines; others stay in one, and the table scrolls."""


class Markup(str):
    """Text that is HTML already: everything else is escaped."""

    __slots__ = ()


Child = str | int | float | None | Iterable["Child"]
"""What stands in an element; None is nothing."""


def el(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """An element. ``class_`` is class, ``data_live`` is data-live; what is None or False is left out.

    >>> el("a", "x < y", href="/?a=1&b=2", class_="k")
    '<a href="/?a=1&amp;b=2" class="k">x &lt; y</a>'
    """
    written = [name]
    for key, value in attributes.items():
        attribute = key.rstrip("_").replace("_", "-")
        if value is True:
            written.append(attribute)
        elif value is not None and value is not False:
            written.append(f'{attribute}="{_text(str(value))}"')
    opened = f"<{' '.join(written)}>"
    return Markup(opened) if name in VOID else Markup(f"{opened}{join(children)}</{name}>")


def join(children: Child) -> Markup:
    """Children one behind the other."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, str | int | float):
        return Markup(_text(str(children)))
    return Markup("".join(map(join, children)))


def _text(text: str) -> str:
    """Escaped, and such that UTF-8 has it: records may hold halves of surrogate pairs."""
    return escape(text).encode("utf-8", "backslashreplace").decode()


def table(
    columns: Sequence[Child], rows: Iterable[Sequence[Child]], *, empty: str = "", caption: str = "", numbers: int = 0
) -> Markup:
    """A table that scrolls sideways where it is wider than the page; ``empty`` is said in place of one without rows.

    ``numbers``: so many of the last columns are numbers.
    """
    from_number = len(columns) - numbers

    def kind(at: int, cell: Child) -> str | None:
        if at >= from_number:
            return "n"
        return "words" if isinstance(cell, str) and not isinstance(cell, Markup) and len(cell) > WORDS else None

    body = [el("tr", [el("td", cell, class_=kind(at, cell)) for at, cell in enumerate(row)]) for row in rows]
    if not body:
        return el("p", empty, class_="quiet")
    head = el(
        "tr",
        [el("th", cell, scope="col", class_="n" if at >= from_number else None) for at, cell in enumerate(columns)],
    )
    named = el("caption", caption, class_="hidden") if caption else None
    return el("div", el("table", named, el("thead", head), el("tbody", body)), class_="wide")
