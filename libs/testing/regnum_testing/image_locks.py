"""The locks of the images in deploy/docker: the part of requirements.lock that each of them needs, hashes and all.

python -m regnum_testing.image_locks            exit 1 when a file says something else
python -m regnum_testing.image_locks --write    write them; ``make lock``

Goals: one lock says what every version is; an image has what its extras draw in, and nothing else. Nothing is resolved
here, and nothing fetched: uv writes below each package who wants it (``# via``), and that is followed from the extras.

Example: ``grpcio-tools`` is wanted by regnum alone, and by none of the services' extras, so that it is left out, and
with it ``setuptools``, which only grpcio-tools wants.
"""

import re
import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[3]
"""The checkout."""

MAIN: Final = "requirements.lock"
FOLDER: Final = Path("deploy") / "docker"

PROJECT: Final = "regnum"

_BEGIN = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?==")
_VIA = re.compile(r"\s+#\s+(?:via )?\s*([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?(?: \(pyproject\.toml\))?\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One lock of an image."""

    file: str
    """Its name in deploy/docker."""
    purpose: str
    """What it says in its first line."""
    extras: tuple[str, ...] = ()
    """Those of the project that it is for, besides what every installation needs."""
    tools: tuple[str, ...] = ()
    """When given, it is for these packages, and for nothing of the project's."""


PARTS: Final = (
    Part(
        file="services.lock", purpose="the image of the services", extras=("services", "etcd", "zookeeper", "console")
    ),
    Part(file="failovers.lock", purpose="the image of the job that reads traces", extras=("spark", "s3")),
    Part(file="build.lock", purpose="what the images are built with", tools=("hatchling", "setuptools")),
)


def normalised(name: str) -> str:
    """The name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted(project: Mapping[str, Any], extras: Collection[str]) -> frozenset[str]:
    """Packages that an installation with these extras names itself; extras that name others are followed."""
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    found: set[str] = set()
    for line in lines:
        match = re.match(r"([A-Za-z0-9_.-]+)(?:\[([^\]]*)\])?", line)
        if match is None:
            raise ValueError(f"pyproject.toml names {line!r}, which is no requirement")
        if normalised(match[1]) == PROJECT:
            found |= wanted(project, [one.strip() for one in (match[2] or "").split(",") if one.strip()])
        else:
            found.add(normalised(match[1]))
    return frozenset(found)


def blocks(lock: str) -> dict[str, str]:
    """Package -> its lines of a lock."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in lock.splitlines():
        if begins := _BEGIN.match(line):
            lines = found[normalised(begins[1])] = []
        lines.append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def drawn_in(packages: Mapping[str, str], roots: Iterable[str]) -> frozenset[str]:
    """These packages and all that they want, by the notes of the lock. Raises ValueError for one that is not locked."""
    kept = frozenset(roots)
    if missing := kept - packages.keys():
        raise ValueError(f"{MAIN} does not have {', '.join(sorted(missing))}; run `make lock`")
    by = {
        name: {normalised(via[1]) for line in text.splitlines() if (via := _VIA.match(line))}
        for name, text in packages.items()
    }
    while more := {name for name, users in by.items() if name not in kept and users & kept}:
        kept |= more
    return kept


def part_of(lock: str, project: Mapping[str, Any], part: Part) -> str:
    """The text of one lock."""
    packages = blocks(lock)
    roots = frozenset(map(normalised, part.tools)) or wanted(project, part.extras)
    head = f"# Made from {MAIN} by `make lock`: {part.purpose}.\n"
    return head + "".join(f"{packages[name]}\n" for name in sorted(drawn_in(packages, roots)))


def texts() -> dict[Path, str]:
    """File -> what it has to say."""
    lock = (ROOT / MAIN).read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {ROOT / FOLDER / part.file: part_of(lock, project, part) for part in PARTS}


def main(arguments: Sequence[str]) -> int:
    """Exit status of the tool."""
    if list(arguments) not in ([], ["--write"]):
        print("usage: python -m regnum_testing.image_locks [--write]", file=sys.stderr)  # noqa: T201
        return 2
    status = 0
    for file, wanted_text in texts().items():
        if arguments:
            file.write_text(wanted_text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != wanted_text:
            name = file.relative_to(ROOT)
            print(f"{name} is not the part of {MAIN} that it has to be; run `make lock`", file=sys.stderr)  # noqa: T201
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
