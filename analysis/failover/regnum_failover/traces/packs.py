"""Spans of one trace that a task read together, as the bytes of one row. Pure.

A change leaves some thirty spans, most of them close together in few files. As a row each they cost the engine more
than what is done with them: so a trace is grouped from as many rows as there are places in which its spans lie.
"""

import marshal
from collections.abc import Sequence
from typing import Any, Final, cast

from regnum_failover.compression import compressed, decompressed, size_of

_VERSION: Final = 2
"""Of marshal's format, as of a span (``packing``)."""
_MANY: Final = b"Z"
"""Before several, compressed; a span alone begins otherwise."""


def together(spans: list[bytes]) -> bytes:
    """Packed spans of one trace as one; a single span stays as it is."""
    return spans[0] if len(spans) == 1 else _MANY + compressed(marshal.dumps(cast("Any", spans), _VERSION))


def apart(pack: bytes) -> Sequence[bytes]:
    """The packed spans in what ``together`` made."""
    if not pack.startswith(_MANY):
        return (pack,)
    spans: list[bytes] = marshal.loads(decompressed(pack[1:]))  # noqa: S302 - of this job's own workers
    return spans


def bytes_of(pack: bytes) -> int:
    """How many bytes the spans in it take apart."""
    return size_of(pack[1:]) if pack.startswith(_MANY) else len(pack)
