"""The wheel has every package of the project, whole, says where it is from, and has nothing else."""

import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, EntryPoint
from pathlib import Path

import pytest
from regnum_telemetry.build import Build, build_of

ROOT = Path(__file__).parents[3]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = ("proto/gen", "libs", "services", "analysis", "bench")
FOR_TESTS = "regnum_testing"
COMMIT = "0123456789ab"


def packages() -> dict[str, Path]:
    """Name -> folder of every package that the tree has."""
    found = [path.parent for folder in FOLDERS for path in (ROOT / folder).rglob("py.typed")]
    found += [path.parent for folder in FOLDERS for path in (ROOT / folder).glob("*/regnum_*/__init__.py")]
    return {folder.name: folder for folder in found if folder.name != FOR_TESTS}


def files() -> Iterator[str]:
    """Every file of these packages, as it has to be in the wheel."""
    for name, folder in packages().items():
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{name}/{path.relative_to(folder)}"


def build(folder: Path) -> Path:
    """A wheel of the tree, as ``make wheel`` makes it."""
    made = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=ROOT,
        env={**os.environ, "REGNUM_COMMIT": COMMIT},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def content(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Distribution:
    """The metadata, as an installer leaves it."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path, [name for name in archive.namelist() if ".dist-info/" in name])
    (folder,) = tmp_path.glob("*.dist-info")
    return Distribution.at(folder)


def test_every_file_of_every_package_is_in_it_and_nothing_else(content: set[str]) -> None:
    assert len(packages()) == 17
    assert {name for name in content if ".dist-info/" not in name} == set(files())


def test_what_is_checked_for_types_is_what_is_delivered(content: set[str]) -> None:
    delivered = {name.partition("/")[0] for name in content if ".dist-info/" not in name}
    assert delivered == {*PYPROJECT["tool"]["mypy"]["packages"], "regnum"} - {FOR_TESTS}
    assert {f"{package}/py.typed" for package in delivered} <= content


def test_no_test_is_in_it(content: set[str]) -> None:
    assert len(content) > 900
    assert [name for name in content if FOR_TESTS in name or "conftest" in name or "/test_" in name] == []
    assert [name for name in content if "/results/" in name] == []


def test_every_command_that_it_installs_is_there(installed: Distribution) -> None:
    commands: dict[str, EntryPoint] = {one.name: one for one in installed.entry_points.select(group="console_scripts")}
    services = {f"regnum-{name}" for name in ("broker", "election", "metadata", "quota")}
    assert set(commands) == {"regnum", "regnum-bench"} | services
    assert all(callable(command.load()) for command in commands.values())


def test_it_says_what_it_was_made_from(installed: Distribution) -> None:
    assert build_of(installed) == Build(version=PYPROJECT["project"]["version"], commit=COMMIT)


def test_the_same_tree_makes_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    assert build(tmp_path).read_bytes() == wheel.read_bytes()
