"""The map says where things are: what it names exists, and every room is named, in the order that is held."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/architecture.md").read_text()
CONTRACTS: dict[str, dict[str, Any]] = {
    contract["id"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}


def spelled_out(path: str) -> Iterator[str]:
    """``a/{b,c}.py`` is ``a/b.py`` and ``a/c.py``."""
    braces = re.search(r"\{([^}]*)\}", path)
    if braces is None:
        yield path
        return
    for choice in braces[1].split(","):
        yield from spelled_out(path[: braces.start()] + choice + path[braces.end() :])


def places() -> list[str]:
    """Files and folders that the page names from the root on."""
    named = re.findall(r"`((?:services|libs)/[^`\s]+)`", PAGE)
    return sorted({path for place in named for path in spelled_out(place)})


def rooms(table: str) -> list[list[str]]:
    """Rooms of a table, each row's, without ``/`` and ``.py``."""
    rows = PAGE.split(f"| {table}, top to bottom |")[1].split("\n\n")[0].splitlines()[2:]
    return [
        [name.removesuffix("/").removesuffix(".py") for name in re.findall(r"`(\w+(?:/|\.py))`", row.split("|")[1])]
        for row in rows
    ]


def test_every_place_that_the_map_names_is_there() -> None:
    assert len(places()) > 40
    assert [place for place in places() if not (ROOT / place).exists()] == []


@pytest.mark.parametrize("package", ["election", "broker"])
def test_every_room_is_on_the_map_in_the_order_that_is_held(package: str) -> None:
    layers = [layer.split(" | ") for layer in CONTRACTS[f"{package}-rooms"]["layers"]]
    held = [room for layer in layers for room in layer]
    named = [room for row in rooms(package) for room in row]
    assert set(held) <= set(named)
    assert [room for room in named if room in held] == held
    folder = ROOT / f"services/{package}/regnum_{package}"
    assert {path.parent.name for path in folder.glob("*/__init__.py")} <= set(held), "a room that no contract holds"
    assert [room for room in named if not ((folder / room).is_dir() or (folder / f"{room}.py").is_file())] == []
