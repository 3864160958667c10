"""One span, flat: what a line of OTLP says of it and of its process. Pure."""

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial
from typing import Any, Final, NamedTuple, cast

INTEGER_LIMIT: Final = 2**63
"""Integers of OTLP, and of every table, are below it."""


def process_name(service: str, instance: str) -> str:
    """How a process is called: its service, without the product's name, and its instance id among those."""
    return f"{service.removeprefix('regnum-')} {instance}".strip()


class Kind(IntEnum):
    """Kinds of spans, by OTLP's numbers."""

    UNSPECIFIED = 0
    INTERNAL = 1
    SERVER = 2
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


class Span(NamedTuple):
    """One span."""

    trace_id: str
    """32 hexadecimal digits, in lower case."""
    span_id: str
    """16 hexadecimal digits, in lower case."""
    parent_id: str
    """Span id of the parent; empty at a root."""
    name: str
    """Name of the operation."""
    kind: int
    """Side of a call, or none: a number of ``Kind``."""
    start_ns: int
    """Begin by the clock of its process, in nanoseconds since 1970."""
    end_ns: int
    """End by the same clock."""
    process: str
    """The process that wrote it: ``broker 2``."""
    attributes: Mapping[str, str]
    """Attributes as text; booleans are ``true`` and ``false``."""
    links: tuple[tuple[str, str], ...] = ()
    """Trace id and span id of each span it is linked to."""
    version: str = ""
    """Version of the product that wrote it; empty where it says none."""
    cluster: str = ""
    """Id of the cluster; empty where the process did not know it yet, or belongs to several."""

    def number(self, attribute: str) -> int | None:
        """An attribute that is an integer of 64 bits; None where it is absent or is none."""
        text = self.attributes.get(attribute)
        if text is None:
            return None
        try:
            number = int(text)
        except ValueError:
            return None
        return number if abs(number) < INTEGER_LIMIT else None


span_of: Final = cast("Callable[[tuple[Any, ...]], Span]", partial(tuple.__new__, Span))
"""A span of all its fields in order: where there are millions, half the time that a call with each of them takes."""
