"""`regnum backup` and `regnum restore` as a shell sees them: what goes to stdout, what to stderr, what is refused."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from regnum_client.command import main
from regnum_local.identity import ProcessIdentity
from regnum_local.profile import Profile, write_profile
from regnum_model.backup.lines import End, LineReader

BACKUP = """
import asyncio, sys
from regnum_client.command import main
from regnum_coordination import open_store

URL = "memory://backup"


async def fill() -> None:
    store = await open_store(URL)
    if sys.argv[1] == "no tree":
        return
    await store.create("/cluster/id", b"cluster 1", make_parents=True)
    for number in range(int(sys.argv[1])):
        await store.create(f"/config/topics/t{number}", b"x" * 1000, make_parents=True)


asyncio.run(fill())
sys.exit(main(["backup", *sys.argv[2:], "--coordination", URL]))
"""


def _started(*arguments: str, nodes: int | str = 3, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", BACKUP, str(nodes), *arguments], stdout=stdout, stderr=subprocess.PIPE
    )


def _read(content: bytes) -> End:
    reader = LineReader()
    for line in content.splitlines(keepends=True):
        reader.take(line)
    return reader.finish()


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_in_a_pipe_the_backup_alone_goes_to_stdout_and_what_is_said_of_it_to_stderr(name: str) -> None:
    out, error = _started(name, "-o", "json").communicate(timeout=60)
    end = _read(out)
    told = json.loads(error)
    assert (told["nodes"], told["bytes"], told["file"]) == (end.nodes, len(out), name)


def test_into_a_file_what_is_said_of_it_goes_to_stdout(tmp_path: Path) -> None:
    out, error = _started(str(tmp_path / "backup"), "-o", "json").communicate(timeout=60)
    assert json.loads(out)["nodes"] == _read((tmp_path / "backup").read_bytes()).nodes
    assert error == b""


def test_no_part_of_a_backup_that_fails_goes_to_stdout() -> None:
    started = _started("-", nodes="no tree")
    out, error = started.communicate(timeout=60)
    assert (started.returncode, out) == (3, b"")
    assert b"there is no tree" in error


def test_who_leaves_before_the_end_of_a_backup_is_told_that_it_is_not_whole() -> None:
    # More than a pipe holds.
    started = _started("-", nodes=500)
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.read(1)
    started.stdout.close()
    error = started.stderr.read()
    started.stderr.close()
    assert started.wait(timeout=60) == 1
    assert b"not whole" in error
    assert b"Traceback" not in error


def test_a_backup_is_not_shown_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    started = _started("-", stdout=theirs)
    os.close(theirs)
    _, error = started.communicate(timeout=60)
    os.close(ours)
    assert started.returncode == 2
    assert b"terminal" in error


def test_what_cannot_be_read_twice_is_refused_before_anything_is_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe without a writer would be waited for, for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for file in (pipe, tmp_path, Path("/dev/null")):
        assert main(["restore", str(file), "--coordination", "memory://restore", "--execute"]) == 2
        assert "no ordinary file" in capsys.readouterr().err


def test_a_broker_that_cannot_be_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The mark of the restore would be unreadable to every process, and the restored tree with it."""
    (tmp_path / "backup").write_bytes(b"")
    arguments = ["restore", str(tmp_path / "backup"), "--coordination", "memory://restore", "--broker", str(2**31)]
    assert main(arguments) == 2
    assert "less than or equal to 2147483647" in capsys.readouterr().err


def test_without_a_url_the_store_is_that_of_the_cluster_that_runs_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "profile.json"
    monkeypatch.setenv("REGNUM_PROFILE", str(path))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    assert main(["backup", str(tmp_path / "backup")]) == 2
    assert "give the URL of the store: --coordination" in capsys.readouterr().err
    profile = Profile(
        bootstrap=("127.0.0.1:1",),
        elections=(),
        coordination="memory://of-the-profile",
        data_dir=tmp_path,
        launcher=ProcessIdentity.of_self(),
    )
    write_profile(profile, path)
    assert main(["backup", str(tmp_path / "backup")]) == 3
    assert "no tree of Regnum here" in capsys.readouterr().err
