"""Another release of the project beside this one: its files from git, run with the libraries that are installed."""

import asyncio
import io
import os
import tarfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from regnum_local.plan import PORT_NAMES, STORES, Launch, Member, Role, command

REPOSITORY: Final = Path(__file__).resolve().parents[4]
"""The checkout that this module is a file of."""


class ReleaseError(Exception):
    """There is no such release, or it cannot be run beside this one. The message says what to do."""


async def _git(*arguments: str, repository: Path) -> bytes:
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", "-C", str(repository), *arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise ReleaseError(f"git cannot be run ({error}); install it") from error
    out, err = await process.communicate()
    if process.returncode:
        raise ReleaseError(f"git {arguments[0]} failed: {err.decode(errors='replace').strip()}")
    return out


async def newest_tag(repository: Path = REPOSITORY) -> str:
    """The newest release that this checkout comes after. Raises ReleaseError: there is none."""
    try:
        found = await _git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^", repository=repository)
    except ReleaseError as error:
        raise ReleaseError(
            f"{repository} has no tag v* below its newest commit ({error}); fetch the tags (git fetch --tags), or name "
            "the release to upgrade from with --from REF"
        ) from None
    return found.decode().strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRelease:
    """Files of a release, and how its processes are called."""

    ref: str
    """What was asked for."""
    commit: str
    """Which commit that is."""
    folders: tuple[Path, ...]
    """Folders of its packages."""
    unknown: dict[Role, frozenset[str]] = field(default_factory=dict)
    """Flags by role that the launcher of this release gives and that one does not know: left out."""

    def command(self, member: Member, launch: Launch) -> list[str]:
        """Command line of a member; a store is no part of a release."""
        line = command(member, launch)
        if member.role in STORES:
            return line
        return ["/usr/bin/env", f"PYTHONPATH={self.path}", *without(line, self.unknown.get(member.role, frozenset()))]

    @property
    def path(self) -> str:
        """For PYTHONPATH: before what is installed."""
        return os.pathsep.join(map(str, self.folders))


def without(line: Sequence[str], flags: frozenset[str]) -> list[str]:
    """A command line without some flags and their values. Every flag of a service has one."""
    kept: list[str] = []
    skipping = False
    for part in line:
        if skipping and not part.startswith("--"):
            skipping = False
            continue
        skipping = part in flags
        if not skipping:
            kept.append(part)
    return kept


async def unpack(ref: str, into: Path, *, python: str, repository: Path = REPOSITORY) -> OtherRelease:
    """Lay a release's files into a folder. Raises ReleaseError.

    Its processes run with the libraries of this release: where it was locked to others, that is said and refused, since
    nobody runs it so.

    Args:
        ref: a tag, branch or commit.
        into: an empty folder.
        python: the interpreter that will run it.
        repository: where the commit is.
    """
    try:
        commit = (await _git("rev-parse", "--verify", f"{ref}^{{commit}}", repository=repository)).decode().strip()
    except ReleaseError:
        raise ReleaseError(f"{repository} does not know {ref!r}; name a tag, a branch or a commit of it") from None
    archive = await _git("archive", "--format=tar", commit, repository=repository)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(into, filter="data")
    project = tomllib.loads((into / "pyproject.toml").read_text(encoding="utf-8"))
    parents = project["tool"]["hatch"]["build"]["dev-mode-dirs"]
    release = OtherRelease(ref=ref, commit=commit, folders=tuple(into / parent for parent in parents))
    roles = [role for role in Role if role not in STORES]
    helps = await asyncio.gather(*(_help(release, role, python) for role in roles))
    unknown: dict[Role, frozenset[str]] = {role: given(role) - flags for role, flags in zip(roles, helps, strict=True)}
    return OtherRelease(ref=ref, commit=commit, folders=release.folders, unknown=unknown)


async def _help(release: OtherRelease, role: Role, python: str) -> frozenset[str]:
    """Flags that a service of that release knows."""
    environment = {**os.environ, "PYTHONPATH": release.path, "COLUMNS": "200"}
    process = await asyncio.create_subprocess_exec(
        *(python, "-P", "-m", f"regnum_{role.value}", "--help"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise ReleaseError(
            f"regnum_{role.value} of {release.ref} does not run with the libraries of this one; make an environment "
            f"from its requirements.lock and give its interpreter with --python: {out.decode(errors='replace')[-500:]}"
        )
    words = out.decode(errors="replace").replace(",", " ").replace("[", " ").replace("=", " ").split()
    return frozenset(word for word in words if word.startswith("--"))


def given(role: Role) -> frozenset[str]:
    """Flags that the launcher of this release gives."""
    ports = {name: number for number, name in enumerate(PORT_NAMES[role], start=1)}
    member = Member(role=role, id=1, ports=ports)
    launch = Launch(
        python="python",
        store=(),
        data_dir=Path("/"),
        coordination="etcd://h:1",
        extra={},
        certificates=Path("/certificates"),
    )
    return frozenset(part for part in command(member, launch) if part.startswith("--"))
