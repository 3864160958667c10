"""Paths of the port as paths on the server, and back. Pure.

The server refuses control characters, private and supplementary characters in paths; these are written as a fullwidth
percent sign and six hexadecimal digits, and so is that sign itself. All other paths stand on the server as they are,
below the chroot of the store's URL.

Example: with % for that sign, ``/a/<LF>b`` below ``/regnum`` is ``/regnum/a/%00000Ab``.
"""

import re
from typing import Final

from regnum_coordination.paths import ROOT

_SIGN: Final = "\uff05"
_REFUSED: Final = re.compile("[\x01-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff\uff05]")
_WRITTEN: Final = re.compile("\uff05([0-9A-F]{6})")

_SYSTEM: Final = "zookeeper"
"""Folder in the root that servers keep for themselves."""


class ServerNames:
    """Translation for one chroot: empty, or a path."""

    def __init__(self, chroot: str) -> None:
        self._chroot = _escaped(chroot)

    @property
    def root(self) -> str:
        """The port's root on the server."""
        return self._chroot or ROOT

    def path(self, path: str) -> str:
        """A path of the port on the server."""
        if path == ROOT:
            return self.root
        return self._chroot + _escaped(path)

    def children(self, folder: str, names: list[str]) -> tuple[str, ...]:
        """The server's names of a folder's children as the port shows them, sorted."""
        if folder == ROOT and not self._chroot:
            names = [name for name in names if name != _SYSTEM]
        return tuple(sorted(_WRITTEN.sub(_character, name) if _SIGN in name else name for name in names))


def _escaped(path: str) -> str:
    if path.isascii() and path.isprintable():
        return path
    return _REFUSED.sub(lambda found: f"{_SIGN}{ord(found.group()):06X}", path)


def _character(found: re.Match[str]) -> str:
    number = int(found.group(1), 16)
    return chr(number) if number <= 0x10FFFF else found.group()
