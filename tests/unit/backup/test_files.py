"""The file of a backup on disks that are full, or have no links."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from regnum_client.commands.backups.files import BackupFile

WRITER = """
import resource, signal, sys
from pathlib import Path
from regnum_client.commands.backups.files import BackupFile

# No file may become larger: a write fails as it does on a full disk, also that of what is buffered when it is closed.
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
file = BackupFile(Path(sys.argv[1]))
write = file.begin()
try:
    try:
        for _ in range(500):
            write(b"a secret " * 10)
    finally:
        file.abandon()
except OSError as error:
    print(error.errno)
"""


def test_nothing_is_left_of_a_backup_for_which_there_was_no_room(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(tmp_path / "backup")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().isdigit()
    assert list(tmp_path.iterdir()) == []


def _no_links(_old: Path, _new: Path) -> None:
    raise PermissionError(errno.EPERM, "no links here")


def test_a_share_without_links_takes_a_backup_too_and_no_other_files_place(tmp_path: Path) -> None:
    for content in (b"the first", b"the second"):
        file = BackupFile(tmp_path / "backup", link=_no_links)
        file.begin()(content)
        try:
            if content == b"the first":
                file.finish()
            else:
                with pytest.raises(FileExistsError):
                    file.finish()
        finally:
            file.abandon()
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("backup", b"the first")]
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600


def test_a_link_that_leads_nowhere_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "backup").symlink_to(tmp_path / "elsewhere")
    file = BackupFile(tmp_path / "backup", link=_no_links)
    file.begin()(b"secrets")
    with pytest.raises(FileExistsError):
        file.finish()
    file.abandon()
    assert [one.name for one in tmp_path.iterdir()] == ["backup"]
