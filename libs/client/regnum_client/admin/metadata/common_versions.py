"""Answers of the controller and of a process at one version: of two versions nothing can be said.

Goals: a process that is further than the controller was when it was asked is not called unequal; a busy cluster is
asked a bounded number of times.

Algorithm: the controller says its version and digest, the processes are asked for theirs at that version or later.
Whoever is at that version is compared. If others are further, the controller is asked again, at their version or later;
then those that have met none of its versions are asked again at that one, and so on. The two meet whenever nothing was
published between two questions. Behind is who does not reach the version that he was asked for.

Example: the controller is at 7, broker 1 at 7, broker 2 at 9. The controller, asked again, is at 9: both have met it.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from regnum.metadata.v1.image_pb2 import DescribeImageResponse
from regnum_service.errors import RegnumError

from regnum_client.tasks import together

ASKS_MAX: Final = 10
"""How often the controller is asked again in one round."""

Ask = Callable[[int], Coroutine[Any, Any, DescribeImageResponse | RegnumError]]
"""Asks a process at a version or later; what it answers within its time may be an earlier one."""
AskController = Callable[[int], Awaitable[DescribeImageResponse]]
"""The same of the controller. Raises RegnumError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What a process holds, and what the controller published."""

    held: DescribeImageResponse | RegnumError
    """The answer of the process."""
    published: DescribeImageResponse
    """Of the controller: at the same version, if they have met."""

    @property
    def met(self) -> bool:
        """Whether both are at one version: then their digests can be compared."""
        return not isinstance(self.held, RegnumError) and self.held.version == self.published.version

    @property
    def is_ahead(self) -> bool:
        """Whether the process is further than the controller was whenever it was asked."""
        return not isinstance(self.held, RegnumError) and self.held.version > self.published.version


async def pairs(
    controller: AskController, processes: Mapping[str, Ask], published: DescribeImageResponse
) -> dict[str, Pair]:
    """What each process holds beside what the controller published. Raises RegnumError: the controller is gone.

    Args:
        controller: asks it again.
        processes: asks each of them, by name.
        published: its first answer.
    """
    known = {published.version: published}
    found: dict[str, Pair] = {}
    waiting = dict(processes)
    for asks in range(ASKS_MAX + 1):
        version = published.version
        answers = await together("common-version", *(ask(version) for ask in waiting.values()))
        found |= {
            name: Pair(held=held, published=_beside(held, known, published))
            for name, held in zip(waiting, answers, strict=True)
        }
        waiting = {name: waiting[name] for name in waiting if found[name].is_ahead}
        if not waiting or asks == ASKS_MAX:
            break
        furthest = max(_version(found[name].held) for name in waiting)
        published = await controller(furthest)
        known[published.version] = published
        for name in tuple(waiting):
            found[name] = Pair(held=found[name].held, published=_beside(found[name].held, known, published))
            if found[name].met:
                del waiting[name]
        if not waiting:
            break
    return found


def _version(held: DescribeImageResponse | RegnumError) -> int:
    return 0 if isinstance(held, RegnumError) else held.version


def _beside(
    held: DescribeImageResponse | RegnumError,
    known: Mapping[int, DescribeImageResponse],
    published: DescribeImageResponse,
) -> DescribeImageResponse:
    return known.get(_version(held), published)
