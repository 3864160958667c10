"""Deletions of topics that are over, kept in the store so that a repeat is answered and deletes nothing (rule S20).

A deletion's mutation id stands in its record, ``/admin/delete_topics/<topic id>``, which goes with the last broker that
confirms. In the same multi the id gets a node of its own, below ``/admin/deleted_topics``: there is no moment at which
neither is there. A controller that comes later reads that node when somebody shows an id that it does not know, and
never before: what it costs to come into office does not grow with what was deleted.

Nodes are kept for ``REPEATED_MS``, and at most ``KEPT_MAX`` of one reign.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from regnum_coordination.port import Create, Delete, Group, Refused, Written
from regnum_model import paths
from regnum_model.mutations import REPEATED_MS, digest_of
from regnum_model.nodes import DeletedTopicNode, MalformedNodeError
from regnum_service.slices import slices

from regnum_election.decisions.deletion import Deletion
from regnum_election.reign.writing import FencedStore

KEPT_MAX: Final = 10_000
"""Deletions of one reign that the store remembers."""

NODES_PER_READ: Final = 200
"""Nodes read between two turns of the event loop (safety rule S22)."""


class DeletedTopics:
    """Of one reign."""

    def __init__(self, store: FencedStore, wall_ms: Callable[[], int], *, kept: int = KEPT_MAX) -> None:
        """Only assigns.

        Args:
            store: of the reign.
            wall_ms: milliseconds since 1970, only tells how old a node is.
            kept: deletions that are remembered.
        """
        self._kept_max: Final = kept
        self._store: Final = store
        self._wall_ms: Final = wall_ms
        self._kept: Final[deque[str]] = deque()

    async def write(self, records: Sequence[tuple[Deletion, Group]]) -> tuple[Written | Refused, ...]:
        """Write groups whose last step is that of a deletion's record; what removes a record leaves its id behind.

        Raises what the store raises.
        """
        written = await self._store.write_batch([self._leaving(deletion, group) for deletion, group in records])
        outcomes: dict[int, Written | Refused] = dict(enumerate(written))
        # The id has a node already, of another topic that the same call deleted; or somebody took the folder away.
        plain = [i for i, (deletion, _) in enumerate(records) if _is_about(outcomes[i], _path_of(deletion))]
        outcomes |= zip(plain, await self._store.write_batch([records[i][1] for i in plain]), strict=True)
        for i, (deletion, group) in enumerate(records):
            if isinstance(outcomes[i], Written) and i not in plain and _leaves(deletion, group):
                self._kept.append(_path_of(deletion))
        await self._forget()
        return tuple(outcomes[i] for i in range(len(records)))

    async def remembered(self, mutations: Sequence[str]) -> Mapping[str, DeletedTopicNode]:
        """What the store knows of mutations; of the others nothing. Raises what the store raises."""
        found: dict[str, DeletedTopicNode] = {}
        async for some in slices(mutations, NODES_PER_READ):
            nodes = await self._store.read_many([_path(mutation) for mutation in some])
            for mutation in some:
                node = nodes.get(_path(mutation))
                if node is not None and (read := _decoded(node.data)) is not None and read.mutation == mutation:
                    found[mutation] = read
        return found

    async def sweep(self) -> int:
        """Delete nodes that nobody asks any more; how many went. Raises what the store raises."""
        oldest_ms, gone = self._wall_ms() - REPEATED_MS, 0
        async for some in slices(await self._store.names(paths.DELETED_TOPICS), NODES_PER_READ):
            nodes = await self._store.read_many([f"{paths.DELETED_TOPICS}/{name}" for name in some])
            groups: list[Group] = [
                (Delete(path, node.stat.version),)
                for path, node in nodes.items()
                if (read := _decoded(node.data)) is None or read.at_ms < oldest_ms
            ]
            gone += sum(isinstance(one, Written) for one in await self._store.write_batch(groups))
        return gone

    def _leaving(self, deletion: Deletion, group: Group) -> Group:
        if not _leaves(deletion, group):
            return group
        node = DeletedTopicNode(
            topic=deletion.topic,
            topic_id=deletion.topic_id,
            mutation=deletion.mutation or "",
            at_ms=self._wall_ms(),
        )
        return (*group[:-1], Create(_path_of(deletion), node.encode()), group[-1])

    async def _forget(self) -> None:
        old = [self._kept.popleft() for _ in range(len(self._kept) - self._kept_max)]
        # Swept meanwhile, perhaps: then there is nothing to do.
        await self._store.write_batch([(Delete(path, 0),) for path in old])


def _leaves(deletion: Deletion, group: Group) -> bool:
    return deletion.mutation is not None and isinstance(group[-1], Delete)


def _path(mutation: str) -> str:
    """Its own digest: ids have slashes."""
    return f"{paths.DELETED_TOPICS}/{digest_of('deleted topic', (mutation,))}"


def _path_of(deletion: Deletion) -> str:
    return _path(deletion.mutation or "")


def _is_about(outcome: Written | Refused, path: str) -> bool:
    return isinstance(outcome, Refused) and getattr(outcome.error, "path", None) == path


def _decoded(data: bytes) -> DeletedTopicNode | None:
    try:
        return DeletedTopicNode.decode(data)
    except MalformedNodeError:
        return None
