"""What a mutant is, and how the product is patched."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One."""

    name: str
    """As it is called on the command line."""
    rules: str
    """Safety rules and traces that it breaks."""
    breaks: str
    """What it takes away, in a sentence."""
    apply: Callable[[], None]
    """Patches the product in this process, for good."""
    story: str = ""
    """The aimed schedule that finds it (``schedules.stories``); empty: seeds do."""
    beside: tuple[Callable[[], None], ...] = ()
    """Other lines of defence, taken away as well: while one of them stands, what the mutant breaks does no harm."""
    seen_as: str = ""
    """What a finding has to begin with, where its story finds something without the mutant as well; empty: anything."""

    def put_in(self) -> None:
        """Patch the product, with what stands beside it."""
        self.stand_beside()
        self.apply()

    def stand_beside(self) -> None:
        """Take away the other lines of defence alone."""
        for other in self.beside:
            other()

    def is_found(self, found: Sequence[str]) -> bool:
        """Whether it is this mutant that a run has found."""
        return any(one.startswith(self.seen_as) for one in found)


def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put what ``make`` makes of a function in its place, wherever the product has imported it.

    Args:
        owner: module or class.
        name: of the function in it.
        make: given the function, returns what stands for it.
    """
    before = getattr(owner, name)
    after = make(before)
    setattr(owner, name, after)
    for module in [module for key, module in sys.modules.items() if key.startswith("regnum_")]:
        if getattr(module, name, None) is before:
            setattr(module, name, after)
