r"""Lists of names in a setting: one spelling that holds every principal. Pure.

Goals: every name can be written, a list of plain names is as short as it looks, and no name falls apart unnoticed.

Form: names are separated by semicolons; blanks around them do not count. An empty one is none, so one name alone may
end with a semicolon. A separator behind a backslash belongs to the name, and the backslash too: so distinguished names
are written as certificates say them (RFC 4514: ``CN=Doe\, Ann,OU=Ops``). In double quotes a name may hold anything,
also blanks at its ends; a quote in it is doubled, and a backslash is a backslash.

Where it is allowed, a list without semicolons is separated by commas. Parts of a distinguished name stay together there
when they can be nothing else; where that is in doubt, the list is refused.

Example: ``root;CN=admin,OU=Ops,O=Example;"a;b ""c"" \"`` is three names: ``root``, ``CN=admin,OU=Ops,O=Example``, and
``a;b "c" \``. ``root,ann`` is two. ``CN=admin,OU=Ops`` is one, ``CN=ann,CN=bob`` are two. ``root,CN=admin,OU=Ops`` is
refused.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

SEMICOLON: Final = ";"
COMMA: Final = ","

_QUOTED: Final = re.compile(r'"((?:[^"]|"")*)"')
_PLAIN: Final = {separator: re.compile(rf"(?:\\.|[^{separator}])*", re.DOTALL) for separator in (SEMICOLON, COMMA)}
_QUOTED_ITEM: Final = re.compile(r'(^|[;,])\s*"(?:[^"]|"")*"')
_SEMICOLON: Final = re.compile(r"(?:^|[^\\])(?:\\\\)*;")
_ATTRIBUTE: Final = re.compile(
    r"(?:User:)?(CN|UID|L|ST|O|OU|C|STREET|DC|EMAILADDRESS|SERIALNUMBER|[0-2](?:\.[0-9]+)+)\s*=", re.IGNORECASE
)
"""How a part of a distinguished name begins (RFC 4514, section 3), and what OpenSSL writes besides."""
_OF_SOMEBODY: Final = frozenset({"CN", "UID"})
"""Attributes that are a name by themselves."""


class NameListError(ValueError):
    """What is no list of names. The message says why, and how to write it."""


class _Item(NamedTuple):
    name: str
    quoted: bool


def parse_names(text: str, *, commas: bool = False) -> tuple[str, ...]:
    """The names in a list, in order; see the head of the module.

    Args:
        text: the list.
        commas: whether a list without semicolons is separated by commas.

    Raises:
        NameListError: a quote is not closed, or it is in doubt where a name ends.
    """
    if not commas or _SEMICOLON.search(_QUOTED_ITEM.sub(r"\1", text)):
        return tuple(item.name for item in _items(text, SEMICOLON))
    items = _items(text, COMMA)
    return (COMMA.join(item.name for item in items),) if _is_one(items) else tuple(item.name for item in items)


def _items(text: str, separator: str) -> list[_Item]:
    """What stands between separators, but for what is empty."""
    items: list[_Item] = []
    rest = text.strip()
    while rest:
        if rest.startswith('"'):
            match = _QUOTED.match(rest)
            following = "" if match is None else rest[match.end() :].lstrip()
            if match is None or (following and not following.startswith(separator)):
                raise NameListError(
                    f"{rest[:40]!r} begins with a quote, and no other ends that name; a quote within is written twice"
                )
            item, rest = _Item(match[1].replace('""', '"'), quoted=True), following
        else:
            match = _PLAIN[separator].match(rest)
            end = len(rest) if match is None else match.end()
            item, rest = _Item(rest[:end].strip(), quoted=False), rest[end:]
        if item.name:
            items.append(item)
        rest = rest[1:].lstrip()
    return items


def _is_one(items: Sequence[_Item]) -> bool:
    """Whether what commas separate is one distinguished name. Raises NameListError where that is in doubt."""
    found = [None if item.quoted else _ATTRIBUTE.match(item.name) for item in items]
    attributes = [None if match is None else match[1].upper() for match in found]
    if all(attribute is None or attribute in _OF_SOMEBODY for attribute in attributes):
        return False
    if None not in attributes and sum(attribute in _OF_SOMEBODY for attribute in attributes) <= 1:
        return True
    part = next(
        item.name for item, attribute in zip(items, attributes, strict=True) if attribute not in {None, *_OF_SOMEBODY}
    )
    raise NameListError(
        f"{part!r} is part of a distinguished name, and commas separate names too; separate names by semicolons (one"
        " alone ends with one), or put each into double quotes"
    )
