"""Store paths as etcd keys: verbatim, below the prefix. Pure."""

from dataclasses import dataclass
from typing import Final

from regnum_coordination.errors import InvalidRequest
from regnum_coordination.paths import RESERVED, ROOT, check_path, folder_prefix

_SLASH: Final = b"/"
_AFTER_SLASH: Final = b"0"
"""The byte that follows the slash: folder + this is the end of everything below the folder."""
_NO_NAMES: Final = frozenset({b"", b".", b".."})
"""What etcd takes behind a slash and no path may have: whoever lists it could not ask for it (``check_path``)."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of one store."""

    prefix: str
    """What every key begins with."""

    def key(self, path: str) -> bytes:
        """Key of a node."""
        return (self.prefix + path).encode("utf-8")

    def path(self, key: bytes) -> str | None:
        """Path of a key that begins with the prefix; None for what a store keeps for itself, or what is no path."""
        try:
            path = key.decode("utf-8")[len(self.prefix) :]
            check_path(path)
        except (UnicodeDecodeError, InvalidRequest):
            return None
        return path

    def session(self, lease_id: int) -> bytes:
        """Key that exists as long as the session's lease (safety rule S6)."""
        return f"{self.prefix}/.sessions/{lease_id:016x}".encode("ascii")

    @property
    def never(self) -> bytes:
        """Key that never exists: etcd gives no lease the id 0."""
        return self.session(0)

    def sequence(self, folder: str) -> bytes:
        """Key whose version numbers the sequential nodes of a folder."""
        return f"{self.prefix}/.sequences{'' if folder == ROOT else folder}".encode()

    def folder(self, path: str) -> bytes:
        """What the keys of all nodes below a path begin with."""
        return (self.prefix + folder_prefix(path)).encode("utf-8")

    def below(self, path: str) -> tuple[bytes, bytes]:
        """First key and end of all nodes below a path."""
        folder = self.folder(path)
        return folder, folder[:-1] + _AFTER_SLASH


def child_name(key: bytes, folder: bytes) -> str | None:
    """Name of the child a key stands for; None if it lies deeper or cannot be a name."""
    rest = key[len(folder) :]
    if _SLASH in rest or rest in _NO_NAMES or b"\0" in rest:
        return None
    try:
        return rest.decode("utf-8")
    except UnicodeDecodeError:
        return None


def after(key: bytes, folder: bytes) -> bytes:
    """Where to look for the next child after meeting this key.

    A child's own key is followed by siblings that sort before its subtree ("a-b" lies between "a" and "a/b"), so only
    a key inside the subtree lets it be skipped.
    """
    rest = key[len(folder) :]
    name, slash, _ = rest.partition(_SLASH)
    if slash:
        return folder + name + _AFTER_SLASH
    return key + b"\0"


def visible(names: set[str], path: str) -> tuple[str, ...]:
    """Names to show for a folder: sorted, without what drivers keep for themselves."""
    return tuple(sorted(names - RESERVED if path == ROOT else names))
