"""Real processes whose controller or brokers end, stop or wait at a step that a test chooses.

One cluster serves many steps: the election process that was killed is started again and stands by for the next one.
"""

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Final

from regnum_coordination import open_store
from regnum_coordination.errors import NoNode
from regnum_coordination.port import Store
from regnum_local.cluster import LocalCluster, ProcessState
from regnum_local.plan import Launch, Member, Role, command
from regnum_model import paths

from regnum_testing.leftovers import left_behind
from regnum_testing.waiting import DEADLINE_S, eventually

CALM_S: Final = 10.0
"""How long an order that was sent in another run is waited for, before it counts as one that this run does not send:
orders to a broker that wait are sent together."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a failpoint cuts."""

    words: str
    """The failpoint, but for ``action`` and ``when``; ``{topic}`` stands for the topic's name."""

    def __str__(self) -> str:
        return self.words


class FailpointCluster:
    """A LocalCluster whose election processes have failpoints. Made by ``failpoint_cluster``."""

    def __init__(self, cluster: LocalCluster, store: Store) -> None:
        """Only assigns."""
        self.cluster: Final = cluster
        """The processes."""
        self.store: Final = store
        """A session of the test's own."""

    async def controller(self) -> str:
        """Name of the process that is the controller; waits until one is."""
        found: list[str] = []

        async def one_is() -> bool:
            try:
                node = await self.store.get(paths.CONTROLLER, current=True)
            except NoNode:
                return False
            found.append(f"election-{json.loads(node.data)['brokerid']}")
            return True

        await eventually(one_is, what="a controller")
        return found[-1]

    def failpoint(self, name: str) -> Path:
        """Where the failpoint of an election process, or a broker, stands."""
        return failpoint_file(self.cluster.data_dir, name)

    def steps(self, name: str) -> list[dict[str, Any]]:
        """What an election process has noted so far, over all its lives."""
        noted = Path(f"{self.failpoint(name)}.steps")
        return [json.loads(line) for line in noted.read_text().splitlines()] if noted.exists() else []

    def running(self, name: str) -> bool:
        """Whether a process has not ended."""
        (row,) = [row for row in self.cluster.status() if row.name == name]
        return row.state is not ProcessState.EXITED

    def arm(self, name: str, failpoint: str) -> None:
        """Put a failpoint where the process looks."""
        file = self.failpoint(name)
        whole = file.with_suffix(".new")
        whole.write_text(failpoint)
        whole.replace(file)

    def disarm(self, name: str) -> None:
        """Take a failpoint away that was not reached."""
        self.failpoint(name).unlink(missing_ok=True)

    @property
    def elections(self) -> Sequence[str]:
        """Names of all election processes."""
        return [row.name for row in self.cluster.status() if row.name.startswith("election-")]

    async def fired(self, name: str, *, within_s: float = DEADLINE_S) -> bool:
        """Wait until the process took the failpoint; False, and the failpoint is gone, when it does not in time."""
        file = self.failpoint(name)

        async def taken() -> bool:
            return not file.exists()

        try:
            await eventually(taken, within_s=within_s)
        except AssertionError:
            file.unlink()
            return False
        return True

    async def ended(self, name: str) -> None:
        """Wait until a process is gone."""

        async def gone() -> bool:
            return not self.running(name)

        await eventually(gone, what=f"the end of {name}")

    async def revive(self, name: str) -> None:
        """Start a process that was killed, and wait until it serves."""
        await self.ended(name)
        await self.cluster.restart(name)
        await self.cluster.wait_healthy(name)

    async def nothing_left(self, *, within_s: float = DEADLINE_S) -> None:
        """Wait until nothing is left behind in the store and on disk; AssertionError says what is."""
        seen: list[str] = []

        async def clean() -> bool:
            seen[:] = await left_behind(self.store, self.cluster.data_dir)
            return not seen

        try:
            await eventually(clean, within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"left behind after {within_s:g} s: {seen}") from error


def failpoint_file(data_dir: Path, name: str) -> Path:
    """Where the failpoint of an election process, or a broker, of a cluster stands."""
    return data_dir / f"{name}.failpoint"


def _with_failpoints(roles: Collection[Role], member: Member, launch: Launch) -> list[str]:
    words = command(member, launch)
    if member.role in roles:
        words += ["--failpoint-file", str(failpoint_file(launch.data_dir, member.name))]
    return words


@asynccontextmanager
async def failpoint_cluster(
    data_dir: Path,
    *,
    coordination: str = "etcd",
    brokers: int = 3,
    elections: int = 2,
    extra: Mapping[Role, Sequence[str]] | None = None,
    roles: Collection[Role] = (Role.ELECTION,),
) -> AsyncIterator[FailpointCluster]:
    """Start one, with as few processes as it needs, those of ``roles`` with failpoints; ends it, whatever happened."""
    told: dict[Role, Sequence[str]] = {Role.BROKER: ("--stray-grace-s", "1")}
    cluster = LocalCluster(
        data_dir,
        brokers=brokers,
        elections=elections,
        metadata=1,
        coordination=coordination,
        report=lambda _text: None,
        extra={**told, **(extra or {})},
        make_command=partial(_with_failpoints, roles),
    )
    async with cluster:
        store = await open_store(cluster.coordination, session_timeout_s=60.0)
        try:
            yield FailpointCluster(cluster, store)
        finally:
            await store.close()


def cuts_of(steps: Sequence[dict[str, Any]], topic: str, watched: str) -> list[Cut]:
    """One cut for each write and order of a recorded run that is about the topic.

    Args:
        steps: what the controller noted while it carried out the change, and nothing else.
        topic: name of the topic in that run.
        watched: patterns of the paths that count, with ``{topic}`` for the name.

    Writes are counted over all that match. Orders are counted for each broker and kind: in which order different
    brokers are told is left to chance.
    """
    cuts: list[Cut] = []
    counts: dict[str, int] = {}
    for step in steps:
        if "order" in step and topic in step["topics"]:
            words = f"step=order kind={step['order']} broker={step['broker']} topic={{topic}}"
        elif "write" in step and _counts(step["write"], watched.replace("{topic}", topic)):
            words = f"step=write path={watched}"
        else:
            continue
        counts[words] = counts.get(words, 0) + 1
        cuts.append(Cut(f"{words} n={counts[words]}"))
    return cuts


def _counts(operations: Sequence[Sequence[str]], patterns: str) -> bool:
    return any(fnmatchcase(path, pattern) for _, path in operations for pattern in patterns.split("|"))
