"""What this session's own checks of absence did to the folders that it watches.

A check of absence leaves nothing behind but a folder whose set of children has changed twice (``transactions``): the
server's watch fires, and ``pzxid`` has moved. A reader of the set takes that for a child that was removed and created
again, which must be answered, and costs a controller a look at every topic. So the session remembers the transactions
of its own checks and answers nothing where they explain every change: ``cversion`` counts the changes.
"""

from collections import deque
from typing import Final

REMEMBERED: Final = 1_000
"""Checks in a watched folder that are remembered: more between two reads of it are told of as a change."""


class AbsencesChecked:
    """The checks of one session, by folder."""

    def __init__(self) -> None:
        self._watchers: dict[str, int] = {}
        self._zxids: dict[str, deque[int]] = {}

    def watch(self, folder: str) -> None:
        """Remember those in a folder from now on, until as many ``unwatch``."""
        self._watchers[folder] = self._watchers.get(folder, 0) + 1
        self._zxids.setdefault(folder, deque(maxlen=REMEMBERED))

    def unwatch(self, folder: str) -> None:
        """Undo ``watch``."""
        self._watchers[folder] -= 1
        if not self._watchers[folder]:
            del self._watchers[folder], self._zxids[folder]

    def note(self, folder: str, zxid: int) -> None:
        """A check of a node in a folder held, in that transaction."""
        if folder in self._zxids:
            self._zxids[folder].append(zxid)

    def changes(self, folder: str, after: int, until: int) -> int:
        """How often they changed the folder's set of children: after a transaction, until another."""
        return 2 * sum(after < zxid <= until for zxid in self._zxids.get(folder, ()))
