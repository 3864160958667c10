"""What may have been meant by a name that does not exist. Pure."""

from collections.abc import Iterable
from typing import Final

ALIKE: Final = 0.7
"""How alike a name has to be to be named, of 1 (``difflib``)."""


def nearest(name: str, names: Iterable[str]) -> str:
    """The name that may have been meant, whatever the case; empty: none is alike.

    >>> nearest("retention.sm", ["retention.ms", "segment.bytes"])
    'retention.ms'
    """
    import difflib  # noqa: PLC0415 - seldom needed

    by_lower = {one.lower(): one for one in names}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=ALIKE)
    return by_lower[found[0]] if found else ""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The same as a clause to put behind what does not exist: ``; did you mean 'retention.ms'?``. Empty: nothing."""
    meant = nearest(name, names)
    return f"; did you mean {meant!r}?" if meant else ""
