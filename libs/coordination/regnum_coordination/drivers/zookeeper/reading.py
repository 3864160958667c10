"""Reads on ZooKeeper: current ones behind a barrier, and many together."""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any, Final

from kazoo.exceptions import NoNodeError, UnimplementedError

from regnum_coordination.drivers.zookeeper.answers import node_of, to_error
from regnum_coordination.drivers.zookeeper.bulk_reads import READS_PER_REQUEST, Found
from regnum_coordination.drivers.zookeeper.bulk_writes import BulkWrite
from regnum_coordination.drivers.zookeeper.calls import Call, ZooKeeperCalls, value
from regnum_coordination.drivers.zookeeper.handler import Answer
from regnum_coordination.drivers.zookeeper.names import ServerNames
from regnum_coordination.paths import ROOT, folder_prefix
from regnum_coordination.port import Check, Node, TreePage

FEW: Final = 4
"""Nodes that are asked for one by one."""

CHUNK: Final = 1_000
"""Nodes that are read together; each such part is bounded in time by itself."""


class ZooKeeperReader:
    """Reads of one session."""

    def __init__(self, calls: ZooKeeperCalls, names: ServerNames, check_alive: Callable[[], None]) -> None:
        """``check_alive`` raises SessionExpired when the session is over."""
        self._calls = calls
        self._names = names
        self._check_alive = check_alive
        self._takes_bulk = True

    async def ask(self, calls: Sequence[Call], *, current: bool) -> list[Answer]:
        """Reads; a current one behind a transaction that changes nothing.

        ZooKeeper's ``sync`` would be cheaper, but a leader that was deposed while it stood still answers it without
        asking the others; a transaction, also a void one, is answered by a majority.
        """
        self._check_alive()
        if not current:
            return await self._calls.ask_all(calls)
        barrier = self._calls.transaction(BulkWrite.of([Check(ROOT)], self._names, ()))
        agreed, *answers = await self._calls.ask_all([barrier, *calls])
        value(agreed, ROOT)
        return answers

    async def nodes(self, paths: Sequence[str], *, current: bool) -> list[Node | None]:
        """Nodes, None where there is none."""
        nodes: list[Node | None] = []
        for at in range(0, len(paths), CHUNK):
            found = await self._found(paths[at : at + CHUNK], current=current)
            current = False
            nodes += [None if one is None else one.node for one in found]
        return nodes

    async def tree(self, path: str, *, current: bool) -> AsyncGenerator[TreePage, None]:
        """A node and everything below it; a page has nodes of one depth."""
        level = [path]
        while level:
            deeper: list[str] = []
            for at in range(0, len(level), CHUNK):
                some = level[at : at + CHUNK]
                found = dict(zip(some, await self._found(some, current=current), strict=True))
                current = False
                nodes = {one: at.node for one, at in found.items() if at is not None and one != ROOT}
                yield TreePage(nodes=nodes, revision=None)
                deeper += await self._below([one for one, at in found.items() if at is not None and at.children])
            level = deeper

    async def _found(self, paths: Sequence[str], *, current: bool) -> list[Found | None]:
        if len(paths) > FEW and self._takes_bulk:
            together = await self._together(paths, of_children=False, current=current)
            if together is not None:
                return [_unless_absent(one, path) for path, one in zip(paths, together, strict=True)]
        answers = await self.ask([self._calls.get(self._names.path(path)) for path in paths], current=current)
        found: list[Found | None] = []
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer.exception, NoNodeError):
                found.append(None)
            else:
                data_and_stat = value(answer, path)
                found.append(Found(node_of(data_and_stat), data_and_stat[1].numChildren))
        return found

    async def _below(self, folders: Sequence[str]) -> list[str]:
        """Paths of the children of several folders; a folder that has gone meanwhile has none."""
        listed: Iterable[Any] | None = None
        if len(folders) > FEW and self._takes_bulk:
            listed = await self._together(folders, of_children=True, current=False)
        if listed is None:
            calls = [self._calls.children(self._names.path(one)) for one in folders]
            answers = await self.ask(calls, current=False)
            listed = [answer.exception or answer.value[0] for answer in answers]
        paths: list[str] = []
        for folder, names in zip(folders, listed, strict=True):
            if (found := _unless_absent(names, folder)) is not None:
                paths += [folder_prefix(folder) + name for name in self._names.children(folder, found)]
        return paths

    async def _together(self, paths: Sequence[str], *, of_children: bool, current: bool) -> list[Any] | None:
        """What bulk reads answer; None from a server that takes none, which is not asked again."""
        places = [self._names.path(path) for path in paths]
        parts = [places[at : at + READS_PER_REQUEST] for at in range(0, len(places), READS_PER_REQUEST)]
        calls = [self._calls.read_together(part, of_children=of_children) for part in parts]
        answers = await self.ask(calls, current=current)
        if any(isinstance(answer.exception, UnimplementedError) for answer in answers):
            self._takes_bulk = False
            return None
        return [one for answer in answers for one in value(answer, paths[0])]


def _unless_absent(answer: Any, path: str) -> Any:
    """What was answered; None where there is no node. Raises the port's error."""
    if isinstance(answer, NoNodeError):
        return None
    if isinstance(answer, Exception):
        raise to_error(answer, path) from None
    return answer
