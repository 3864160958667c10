"""Whether a log directory and the store belong to one time (safety rule S10, traces T8 and T9). Pure.

Goals
    A directory that was put back to an earlier copy is not taken for the log that the store records. A store that was
    put back is noticed by the first broker whose disk knows more.

Constraints
    - The proofs of a complete log (the marker of a clean stop, the boot id) lie in the directory and go back with it.
    - Disk and store cannot be written in one step; the process may end, or the store's answer be lost, in between.

Algorithm
    Both sides hold the newest *life* of the directory. To begin another one, the broker writes it into the directory as
    proposed, and syncs it; then into the store, on condition that the store's node is as it was judged; then into the
    directory as confirmed. Counts only grow. What is found at a registration, or at the next life, is judged by
    ``judge``:

    | store's node | directory | means |
    |---|---|---|
    | absent | nothing confirmed | first registration, or first one of a release with lives: it fits |
    | absent | confirmed, under another tree id | the store was restored: it goes on with the same log |
    | absent | confirmed, under the same tree id | forgotten, or a store from before: another log id |
    | the confirmed life, or a proposed one | | it fits |
    | another directory's | nothing confirmed | a new disk: another log id |
    | another directory's | confirmed | another disk was this broker's, now or before: another log id |
    | any | no file, or one that nobody can read | nothing is known of the directory: another log id |
    | of another tree id | | the store went back |
    | a higher count than the confirmed | | the directory went back, or its disk failed: another log id |
    | a lower count, or another life of that count | | the store went back |

    Both points at which a crash comes between are rows of it: after the first step the store has the confirmed life,
    after the second a proposed one. A proposal without an answer may arrive late (safety rule S1), so proposals are
    kept until a conditional write that came after them has succeeded. Where directory and store do not fit, what the
    directory confirmed stays until the store has taken the next life: a crash in between is judged the same again.

    Whether the store's word may delete what the directory holds is another question than whether the log counts. It may
    where the store is known to be no older than the directory: they fit, the store has a later life of the directory,
    or the directory has lived nowhere yet. A broker whose disk fails begins a life in the store alone for this reason:
    had the store forgotten the directory, it would look like one from before.

Example: confirmed 6, proposed 7; the broker is killed; the store has 7. It fits, and the next life is 8. A copy of the
disk from confirmed 4 is put back: the store's 8 is higher, and the log gets another id.
"""

import enum
import json
from dataclasses import dataclass
from typing import Any, Final

from regnum_model.ids import DirectoryId
from regnum_model.nodes import MalformedNodeError
from regnum_model.nodes.lives import Life, LifeNode

FILE: Final = "life"
"""Name of the file in the log directory: one of its own, because release 0.1.0 rewrites ``meta.json``."""


class Fit(enum.Enum):
    """How directory and store go together."""

    FITS = "fits"
    RESTORED = "restored"
    """The store's tree was restored since; the log is the same."""
    FORGOTTEN = "forgotten"
    """The store does not know the directory any more: the log gets another id, and no stray is deleted."""
    DIRECTORY_BEHIND = "directory behind"
    """The directory went back, its disk failed, or it is new: the log gets another id."""
    UNKNOWN = "unknown"
    """Nothing says which of the two is older: the log gets another id, and no stray is deleted."""
    STORE_BEHIND = "store behind"
    """The store went back."""

    @property
    def fits(self) -> bool:
        """Whether both are of one time."""
        return self in {Fit.FITS, Fit.RESTORED}

    @property
    def may_delete(self) -> bool:
        """Whether the store is known to be no older, so that its word may delete what the directory holds."""
        return self.fits or self is Fit.DIRECTORY_BEHIND


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLives:
    """Content of the file ``life``."""

    tree: str | None = None
    """Tree id of the store when it was written; None: the store was never restored."""
    confirmed: Life | None = None
    """Newest life that the store is known to have had."""
    proposed: tuple[Life, ...] = ()
    """Lives that the store may have taken since, in their order."""

    def encode(self) -> bytes:
        """JSON that a person can read."""
        content = {
            "version": 1,
            "tree": self.tree,
            "confirmed": None if self.confirmed is None else self.confirmed.fields(),
            "proposed": [life.fields() for life in self.proposed],
        }
        return json.dumps(content, indent=2).encode("utf-8") + b"\n"

    @classmethod
    def decode(cls, data: bytes | None) -> "KnownLives | None":
        """Read it; None if there is none, or not what was written: then it proves nothing."""
        try:
            content: Any = json.loads(data or b"")
            match content:
                case {"version": int(), "tree": str() | None as tree, "confirmed": confirmed, "proposed": list(lives)}:
                    return cls(
                        tree=tree,
                        confirmed=None if confirmed is None else Life.of(confirmed),
                        proposed=tuple(map(Life.of, lives)),
                    )
                case _:
                    return None
        except (ValueError, RecursionError, MalformedNodeError):
            return None

    def next_after(self, found: Life | None) -> int:
        """Count of the next life."""
        known = (*self.proposed, *(life for life in (self.confirmed, found) if life is not None))
        return 1 + max((life.count for life in known), default=0)

    def proposing(self, life: Life, *, found: Life | None, tree: str | None, fits: bool) -> "KnownLives":
        """As it is before a life is written into the store.

        Args:
            life: which.
            found: the store's present one.
            tree: the store's tree id.
            fits: whether directory and store fit.
        """
        if not fits:
            return KnownLives(tree=self.tree, confirmed=self.confirmed, proposed=(*self.proposed, life))
        # What was found is the outcome of all proposals, unless it is what they were to replace.
        open_ones = self.proposed if found == self.confirmed and tree == self.tree else ()
        return KnownLives(tree=tree, confirmed=found, proposed=(*open_ones, life))

    @staticmethod
    def confirming(life: Life, *, tree: str | None) -> "KnownLives":
        """As it is when the store has taken a life."""
        return KnownLives(tree=tree, confirmed=life)


NO_LIVES: Final = KnownLives()
"""What a directory knows before its first registration."""


def judge(known: KnownLives | None, found: LifeNode | None, *, tree: str | None, directory: DirectoryId) -> Fit:
    """How a directory and the store go together.

    Args:
        known: what the directory says; None: nothing.
        found: the store's node.
        tree: the store's tree id.
        directory: the directory's id.
    """
    confirmed = None if known is None else known.confirmed
    if found is None:
        if known is None or confirmed is None:
            return Fit.FITS
        return Fit.FORGOTTEN if known.tree == tree else Fit.RESTORED
    if known is None or found.directory != directory:
        is_new = confirmed is None and found.directory != directory
        return Fit.DIRECTORY_BEHIND if is_new else Fit.UNKNOWN
    # What is proposed is proposed to the present tree, whichever tree the directory confirmed last.
    if found.life in known.proposed or (found.life == confirmed and known.tree == tree):
        return Fit.FITS
    ahead = known.tree == tree and (confirmed is None or found.life.count > confirmed.count)
    return Fit.DIRECTORY_BEHIND if ahead else Fit.STORE_BEHIND
