"""Which partitions are busy: records were committed in them lately. Pure.

Goals: when a broker dies, what somebody waits for is served before what stands idle. The controller cannot see that,
and every broker sees its own part of it.

Algorithm: the high watermarks that moved are looked at by the clock anyway. A partition is busy at LOOKS looks from the
one that found it moved, so that one with a record now and then does not come and go. Who is busy stays told for as long
as it is: of thousands of busy partitions the first BUSY_MAX are as good as any others.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from regnum_model.ids import PartitionKey

LOOKS: Final = 5
"""Looks for which a partition counts as busy after it was found moved."""

BUSY_MAX: Final = 100
"""Busy partitions that are told of, and remembered."""


def observe(known: Mapping[PartitionKey, int], moved: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
    """Busy partitions after a look, each with the number of looks for which it stays so; at most BUSY_MAX.

    Args:
        known: after the look before.
        moved: partitions whose high watermark has moved since.
    """
    found = dict.fromkeys(moved, LOOKS)
    stay = {key: found.pop(key, left - 1) for key, left in known.items()}
    busy = {key: left for key, left in stay.items() if left > 0}
    busy.update(islice(found.items(), BUSY_MAX - len(busy)))
    return busy
