"""The folder of one replica: made with its first record, and then known to the journal."""

from typing import Final

from regnum_model.ids import PartitionKey

from regnum_broker.log.disk.disk import GuardedDisk
from regnum_broker.log.disk.names import NAME_FILE
from regnum_broker.log.folders import name_folder
from regnum_broker.log.replica.host import ReplicaHost


class ReplicaFolder:
    """The folder of one replica. For the writer thread."""

    __slots__ = (
        "_files_noted",
        "_host",
        "_named",
        "_unsynced",
        "disk",
        "has_files",
        "key",
        "path",
        "topic",
    )

    def __init__(
        self,
        path: str,
        *,
        key: PartitionKey,
        topic: str,
        disk: GuardedDisk,
        host: ReplicaHost,
        has_files: bool,
        named: bool,
    ) -> None:
        self.path = path
        """Where it is."""
        self.key: Final = key
        """Whose it is."""
        self.topic: Final = topic
        """Name of its topic."""
        self.disk: Final = disk
        """Its files."""
        self._host = host
        self._named = named
        self._files_noted = has_files
        self._unsynced = False
        self.has_files = has_files
        """Whether it holds a segment."""

    def make(self) -> None:
        """Make it, and write down whose it is, unless that is done.

        Raises:
            ResourceExhaustedError: no room.
            DirectoryFailedError: the disk failed.
        """
        if not self.has_files:
            self.disk.make_directory(self.path)
        if not self._named:
            name_folder(self.path, self.key, self.topic, self.disk)
            self._named = self._unsynced = True

    def note_files(self) -> None:
        """Write down that there is a file, once there is one: a file that is missing from then on was lost."""
        if self._files_noted:
            return
        if not self.has_files:
            self.has_files = self._unsynced = True
        self._host.note_files(self.key, self._take_note)

    def changed(self) -> None:
        """Take up that names in it are not on the disk yet."""
        self._unsynced = True

    def sync(self, *, changed: bool = False) -> None:
        """Bring the names in it to the disk, unless they are there and none has ``changed``.

        Raises:
            DamagedFileError: it was removed under the process.
            DirectoryFailedError: it failed.
        """
        if self._unsynced:
            self.disk.sync(f"{self.path}/{NAME_FILE}")
        if self._unsynced or changed:
            self.disk.sync_folder(self.path)
            self._unsynced = False

    def sync_names(self) -> None:
        """Bring its name, and the names in it, to the disk. Any thread.

        Raises:
            DamagedFileError: it was removed under the process, or deleted.
            ResourceExhaustedError: no descriptor for it now.
            DirectoryFailedError: it failed.
        """
        self.disk.sync(f"{self.path}/{NAME_FILE}")
        self.disk.sync_folder(self.path)
        self.disk.sync_directory(self.path.rpartition("/")[0])

    def _take_note(self) -> None:
        self._files_noted = True
