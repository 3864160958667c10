"""The wheel alone makes a cluster, in an environment that has nothing else, and no file of the checkout is looked at.

Every interpreter of that environment notes what it opens, lists, loads or starts below the checkout.
"""

import asyncio
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from regnum_testing.image_locks import MAIN, ROOT, Part, part_of
from regnum_testing.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(900)]

RECORDS = 1_000
INSTALLED = Part(file="", purpose="a cluster on one machine", extras=("embedded", "zookeeper"))
START_S = 180.0
"""A cluster's start on a machine that does much else."""

WATCH = """
import os, sys

def note(path):
    with open(os.environ["SEEN"], "a") as file:
        file.write(path + chr(10))

def watch(event, told):
    if event in {events!r}:
        for one in told:
            for part in one if isinstance(one, (list, tuple)) else (one,):
                text = os.fsdecode(part) if isinstance(part, (str, bytes, os.PathLike)) else ""
                if text == {root!r} or text.startswith({root!r} + "/"):
                    note(event + " " + text)

with open(os.environ["WATCHED"], "a") as file:
    file.write(" ".join(sys.orig_argv) + chr(10))
sys.addaudithook(watch)
"""
EVENTS = ("open", "os.listdir", "os.scandir", "os.chdir", "ctypes.dlopen", "import", "subprocess.Popen", "os.exec")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An environment with the wheel, and a folder to work in."""

    folder: Path

    @property
    def seen(self) -> list[str]:
        """What was looked at of the checkout."""
        return self._lines("seen")

    @property
    def watched(self) -> list[str]:
        """Command lines of the interpreters that were watched."""
        return self._lines("watched")

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the environment of these tests."""
        folder = str(self.folder)
        paths = {"PATH": f"{folder}/env/bin:/usr/bin:/bin", "HOME": folder, "XDG_CONFIG_HOME": f"{folder}/config"}
        return {**paths, "SEEN": f"{folder}/seen", "WATCHED": f"{folder}/watched", "LANG": "C.UTF-8"}

    def program(self, name: str) -> str:
        """A program of the environment."""
        return str(self.folder / "env" / "bin" / name)

    async def run(self, name: str, *arguments: str, given: bytes = b"") -> bytes:
        """What a program of the environment prints; it has to succeed."""
        process = await asyncio.create_subprocess_exec(
            *(self.program(name), *arguments),
            cwd=self.folder,
            env=self.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(given)
        assert process.returncode == 0, f"{name} {' '.join(arguments)}: {err.decode(errors='replace')[-3_000:]}"
        return out

    def _lines(self, name: str) -> list[str]:
        file = self.folder / name
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def call(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """What ``make wheel`` makes, installed with the packages of the lock, their hashes checked."""
    folder = tmp_path_factory.mktemp("empty")
    assert ROOT not in folder.parents, "a place below the checkout proves nothing"
    call(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder / "dist")
    (wheel,) = (folder / "dist").glob("*.whl")
    lock = folder / "installed.lock"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock.write_text(part_of((ROOT / MAIN).read_text(encoding="utf-8"), project, INSTALLED), encoding="utf-8")
    call(sys.executable, "-m", "venv", folder / "env")
    pip = (folder / "env" / "bin" / "python", "-m", "pip")
    call(*pip, "install", "--quiet", "--require-hashes", "--requirement", lock)
    call(*pip, "install", "--quiet", "--no-deps", wheel)
    call(*pip, "check")
    (packages,) = (folder / "env" / "lib").glob("python3*/site-packages")
    (packages / "sitecustomize.py").write_text(WATCH.format(events=EVENTS, root=str(ROOT)), encoding="utf-8")
    return Place(folder=folder)


@asynccontextmanager
async def cluster(place: Place) -> AsyncIterator[None]:
    """``regnum up`` until it is ready, and ``regnum down``."""
    log = place.folder / "up.log"
    with log.open("wb") as said:
        up = await asyncio.create_subprocess_exec(
            *(place.program("regnum"), "up", "--data-dir", str(place.folder / "data")),
            cwd=place.folder,
            env=place.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
    profile = place.folder / "config" / "regnum" / "profile.json"

    async def ready() -> bool:
        assert up.returncode is None, log.read_text(errors="replace")[-3_000:]
        return profile.exists()

    try:
        await eventually(ready, within_s=START_S, what="a cluster from the wheel")
        yield
        await place.run("regnum", "down")
        assert await up.wait() == 0
    finally:
        if up.returncode is None:
            up.terminate()
            await up.wait()


def started(place: Place, module: str) -> int:
    return sum(f"-m {module}" in line for line in place.watched)


async def test_a_cluster_from_the_wheel_keeps_records_and_looks_at_no_file_of_the_checkout(place: Place) -> None:
    given = [b"record %d" % number for number in range(RECORDS)]
    async with cluster(place):
        await place.run("regnum", "topics", "create", "orders", "--partitions", "1", "--replication-factor", "3")
        await place.run("regnum", "produce", "orders", given=b"\n".join(given) + b"\n")
        read = await place.run("regnum", "consume", "orders", "--from", "earliest", "--until-end")
        assert read.splitlines() == given
        await place.run("regnum", "metadata", "check")
    services = {"regnum_broker": 3, "regnum_election": 3, "regnum_metadata": 2, "regnum_quota": 1}
    assert {module: started(place, module) for module in services} == services
    assert place.seen == []


async def test_the_demo_from_the_wheel_loses_nothing_and_looks_at_no_file_of_the_checkout(place: Place) -> None:
    said = await place.run("python", "-P", "-m", "regnum_local.demo", "--data-dir", str(place.folder / "demo"))
    assert "No acknowledged record was lost, doubled or moved." in said.decode()
    assert started(place, "regnum_local.demo") == 1
    assert place.seen == []


async def test_what_looks_at_the_checkout_is_seen(place: Place) -> None:
    before = len(place.seen)
    program = "import os, sys; os.listdir(sys.argv[1]); open(sys.argv[1] + '/pyproject.toml').close()"
    await place.run("python", "-c", program, str(ROOT))
    assert place.seen[before:] == [f"os.listdir {ROOT}", f"open {ROOT}/pyproject.toml"]
