"""Which broker is asked next. Pure. All times are monotonic seconds.

Goals: no broker is believed for long because it answers well: one that is cut off from the rest answers as promptly
as ever, and what it says is old.

Algorithm: whoever was asked least recently comes first, so every question goes to another broker than the one before.
Brokers that did not answer, or whose answer was behind what is known, stand at the end for some seconds; so do those
that the asker doubts, for one question. Bootstrap addresses that are no known broker's come after all brokers that
are in order.
"""

import random
from collections.abc import Collection, Iterable
from typing import Final

from regnum_model.nodes import Address

SUSPECT_S: Final = 10.0
"""How long a broker stands at the end."""


class Rotation:
    """Remembers who was asked, and who was of no use."""

    def __init__(self, chance: random.Random) -> None:
        self._chance: Final = chance
        self._questions = 0
        self._asked: dict[Address, int] = {}
        self._suspect_until_s: dict[Address, float] = {}

    def order(
        self,
        brokers: Iterable[Address],
        bootstrap: Iterable[Address],
        *,
        now_s: float,
        doubted: Collection[Address] = (),
    ) -> list[Address]:
        """All that can be asked, the most promising first."""
        known = list(dict.fromkeys(brokers))
        self._chance.shuffle(known)
        strangers = [address for address in dict.fromkeys(bootstrap) if address not in known]
        self._asked = {address: at for address, at in self._asked.items() if address in known or address in strangers}
        self._suspect_until_s = {address: at for address, at in self._suspect_until_s.items() if at > now_s}

        def rank(address: Address) -> tuple[bool, bool, int]:
            last = address in self._suspect_until_s or address in doubted
            return last, address in strangers, self._asked.get(address, 0)

        return sorted(known + strangers, key=rank)

    def asked(self, address: Address) -> None:
        """A question went there."""
        self._questions += 1
        self._asked[address] = self._questions

    def suspect(self, address: Address, *, now_s: float) -> None:
        """It did not answer, or what it said was old."""
        self._suspect_until_s[address] = now_s + SUSPECT_S

    def clear(self, address: Address) -> None:
        """It is in order again."""
        self._suspect_until_s.pop(address, None)
