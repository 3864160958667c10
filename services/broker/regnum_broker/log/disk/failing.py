"""What an error of the system says of a directory, and the mark that it leaves (see ``disk``)."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final

from regnum_broker.log.disk.reserve import NO_SPACE
from regnum_broker.log.errors import DirectoryFailedError, ResourceExhaustedError

EXHAUSTED: Final = NO_SPACE | {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""What the system says when it would do it with more room, descriptors or memory."""

NOT_ASKED: Final = frozenset({errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP})
"""What the system says of a path before it asks the disk for anything: what was written before is not in doubt.
Everything else may come after a failed write-back: ext4 answers EROFS from then on, XFS EUCLEAN or EIO."""


class Failing:
    """A directory that fails once and for good. ``fail`` and ``failed`` are for any thread."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._failure: str | None = None
        self._on_failure: Callable[[], None] | None = None

    @property
    def failed(self) -> bool:
        """Whether an operation failed."""
        return self._failure is not None

    def on_failure(self, callback: Callable[[], None]) -> None:
        """Call back once, in the thread of the operation that fails first, if what was written may be lost."""
        self._on_failure = callback

    def fail(self, reason: str) -> DirectoryFailedError:
        """Mark the directory as failed for a reason that says nothing about what was written before."""
        if self._failure is None:
            self._failure = reason
        return DirectoryFailedError(reason)

    def _refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise DirectoryFailedError(self._failure)

    def _refusal(self, doing: str, path: str, error: OSError) -> ResourceExhaustedError | DirectoryFailedError:
        """What an error of the system means for who asked."""
        if error.errno in EXHAUSTED:
            return self._exhausted(doing, path, error)
        return self._fail(doing, path, error, lost=error.errno not in NOT_ASKED)

    def _exhausted(self, doing: str, path: str, error: OSError) -> ResourceExhaustedError:
        space = error.errno in NO_SPACE
        wants = "the disk is full: make room on it" if space else "raise the limit of open files"
        return ResourceExhaustedError(f"{doing} {path}: {error}; nothing was lost; {wants}", space=space)

    def _fail(self, doing: str, path: str, error: OSError, *, lost: bool) -> DirectoryFailedError:
        message = (
            f"log directory {self._root} failed: {doing} {path}: {error}; the broker must stop. Check the disk,"
            " then start the broker again: its replicas are compared with their leaders"
        )
        if self._failure is None:
            self._failure = message
            if lost and self._on_failure is not None:
                self._on_failure()
        return DirectoryFailedError(message)
