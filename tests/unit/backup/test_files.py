"""The file of a backup where the disk is full: nothing of it is left, secrets least of all."""

import subprocess
import sys
from pathlib import Path

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
