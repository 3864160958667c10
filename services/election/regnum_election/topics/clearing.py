"""Removal of a deleted topic's nodes from the store, many topics together.

Goals: a few store calls for many topics, none for each; a controller that comes in between finds a record and goes on
from whatever is left; what people put below a topic does not keep it alive, and another topic that has the name by now
loses nothing.

Constraints (safety rules S2, S3, S13): every write of a partition checks the topic's guard; the guard goes in one multi
with the topic node and its settings, after everything below them. Where the topic node is gone already, that is checked
instead: a person may write it back at any time. Leaders write their states meanwhile.

Algorithm: guards and settings of all topics are read, then their nodes. What the picture knew of the partitions when
the deletion began is deleted unread, at the versions known; what is refused is read and deleted as read, and so is what
nobody knew and the store lists. Then the last three nodes of every topic. What is refused goes round again; what is
left after ROUNDS_MAX rounds is stuck, and for a later time.

Example: 50 topics of 4 partitions: three reads, 200 groups, 50 groups; a leader that wrote its ISR since the deletion
began costs one more read and one more write for all such partitions together.
"""

from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from regnum_coordination.errors import NotEmpty
from regnum_coordination.port import Absent, Check, Delete, Group, Node, Operation, Refused, Written
from regnum_model import paths
from regnum_model.configs import topic_config
from regnum_model.ids import TopicId
from regnum_model.nodes import MAX_PARTITIONS, MalformedNodeError, TopicIdNode, TopicNode
from regnum_service.slices import slices

from regnum_election.reign.beside import beside
from regnum_election.reign.writing import is_path
from regnum_election.state.context import ControllerContext

TOPICS_TOGETHER: Final = 100
"""Topics whose nodes are deleted together."""

PARTITIONS_TOGETHER: Final = 2_000
"""Partitions of these topics, unless one topic has more."""

PARTITIONS_PER_STEP: Final = 300
"""Partitions whose two nodes one step deletes; a failover waits for one step at most."""

PROBE_PARTITIONS: Final = 128
"""Partitions looked for at a time when the topic node is gone and nobody knows how many there were."""

ROUNDS_MAX: Final = 50
"""Rounds against leaders and people that write while their nodes are deleted."""

Known = Mapping[int, int | None]
"""Partitions of a topic with the versions of their states; None where there may be a state of any version, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folder:
    topic_id: TopicId
    path: str
    version: int | None
    """Version of its state, if it is known."""


class TopicClearer:
    """Deletes nodes of topics whose deletion is recorded. Used by the controller's task only."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._known: dict[TopicId, Known] = {}

    def remember(self, topic_id: TopicId, partitions: Known) -> None:
        """What the picture knew of a topic when its deletion began."""
        self._known[topic_id] = partitions

    def together(self, topics: Collection[TopicId]) -> Iterator[tuple[TopicId, ...]]:
        """Topics in portions for ``clear``."""
        portion: list[TopicId] = []
        partitions = 0
        for id in topics:
            weight = len(self._known.get(id, ())) or 1
            if portion and (len(portion) == TOPICS_TOGETHER or partitions + weight > PARTITIONS_TOGETHER):
                yield tuple(portion)
                portion, partitions = [], 0
            portion.append(id)
            partitions += weight
        if portion:
            yield tuple(portion)

    async def clear(self, topics: Mapping[TopicId, str], cleared: set[TopicId]) -> AsyncGenerator[None, None]:
        """Steps that delete the nodes of topics (id and name); those whose nodes are gone are added to ``cleared``."""
        for _ in range(ROUNDS_MAX):
            left = {id: name for id, name in topics.items() if id not in cleared}
            if not left:
                return
            async for _ in self._round(left, cleared):
                yield

    async def _round(self, topics: Mapping[TopicId, str], cleared: set[TopicId]) -> AsyncGenerator[None, None]:
        store = self._context.store
        found = await store.read_many(
            [
                path
                for id, name in topics.items()
                for path in (paths.topic_id(id), topic_config(name), paths.partition_deletions(id))
            ]
        )
        guarded: dict[TopicId, str] = {}
        async for _ in self._delete_removals(topics, found):
            yield
        for id, name in topics.items():
            guard = found.get(paths.topic_id(id))
            if guard is not None and _guards(guard.data, name):
                guarded[id] = name
            else:
                # Topic and guard go together: whatever stands under the name now is another topic's.
                self._done(id, cleared)
        nodes = await store.read_many([paths.topic(name) for name in guarded.values()])
        folders: list[_Folder] = []
        last: dict[TopicId, Group] = {}
        for id, name in guarded.items():
            topic = nodes.get(paths.topic(name))
            known = self._known.pop(id, None)
            is_ours = topic is not None and await beside(partial(_is_life_of, topic.data, id), weight=len(topic.data))
            if topic is None:
                await self._delete_orphans(name, id)
            elif is_ours:
                # Listing is slow on some stores: the first round goes by what the picture knew.
                folders.extend(_known_folders(id, name, known) if known else await self._listed(id, name))
            last[id] = _last_of(id, name, topic, found, is_ours=is_ours)
        async for some in slices(folders, PARTITIONS_PER_STEP):
            await self._delete_folders(some)
            yield
        await self._free_names(topics, last, cleared)
        yield

    async def _free_names(
        self, topics: Mapping[TopicId, str], last: Mapping[TopicId, Group], cleared: set[TopicId]
    ) -> None:
        outcomes = await self._context.store.write_batch(list(last.values()))
        for id, outcome in zip(last, outcomes, strict=True):
            match outcome:
                case Written():
                    self._done(id, cleared)
                case Refused(error=error):
                    self._context.log.info("deletion goes round again", topic=topics[id], reason=str(error))

    async def _delete_removals(
        self, topics: Collection[TopicId], found: Mapping[str, Node]
    ) -> AsyncGenerator[None, None]:
        """Steps for records of single partitions: the topic's own record names every broker that they do."""
        store = self._context.store
        for id in topics:
            folder = paths.partition_deletions(id)
            if folder not in found:
                continue
            names = await store.names(folder)
            async for some in slices(names, PARTITIONS_PER_STEP):
                records = await store.read_many([f"{folder}/{name}" for name in some])
                check = Check(paths.topic_id(id))
                groups: list[Group] = [(check, Delete(path, node.stat.version)) for path, node in records.items()]
                for path, outcome in zip(records, await store.write_batch(groups), strict=True):
                    if isinstance(outcome, Refused) and isinstance(outcome.error, NotEmpty):
                        # A person put something below it.
                        await self._delete_below(path, id)
                yield

    def _done(self, topic_id: TopicId, cleared: set[TopicId]) -> None:
        self._known.pop(topic_id, None)
        cleared.add(topic_id)

    async def _listed(self, topic_id: TopicId, name: str) -> list[_Folder]:
        folder = paths.topic(name)
        names = await self._context.store.names(folder)
        return [_Folder(topic_id=topic_id, path=f"{folder}/{child}", version=None) for child in names]

    async def _delete_folders(self, folders: Sequence[_Folder]) -> None:
        """As they are known; what is refused, as it is read."""
        store = self._context.store
        known = [folder for folder in folders if folder.version is not None]
        groups: list[Group] = [
            (
                Check(paths.topic_id(folder.topic_id)),
                Delete(f"{folder.path}/leaderAndISR", folder.version),
                Delete(folder.path, 0),
            )
            for folder in known
        ]
        left = [folder for folder in folders if folder.version is None]
        for folder, outcome in zip(known, await store.write_batch(groups), strict=True):
            if isinstance(outcome, Refused):
                left.append(folder)
        await self._delete_as_read(left)

    async def _delete_as_read(self, folders: Sequence[_Folder]) -> None:
        store = self._context.store
        found = await store.read_many(
            [path for folder in folders for path in (folder.path, f"{folder.path}/leaderAndISR")]
        )
        groups: list[Group] = []
        deleted: list[_Folder] = []
        for folder in folders:
            steps = [
                Delete(path, node.stat.version)
                for path in (f"{folder.path}/leaderAndISR", folder.path)
                if (node := found.get(path)) is not None
            ]
            if steps:
                groups.append((Check(paths.topic_id(folder.topic_id)), *steps))
                deleted.append(folder)
        for folder, outcome in zip(deleted, await store.write_batch(groups), strict=True):
            if isinstance(outcome, Refused) and isinstance(outcome.error, NotEmpty):
                await self._delete_below(folder.path, folder.topic_id)

    async def _delete_below(self, folder: str, topic_id: TopicId) -> None:
        """Nodes that somebody put into a partition's folder must not keep the topic alive."""
        store = self._context.store
        for name in await store.names(folder):
            path = f"{folder}/{name}"
            await self._delete_below(path, topic_id)
            node = (await store.read_many((path,))).get(path)
            if node is not None:
                await store.write_batch([(Check(paths.topic_id(topic_id)), Delete(path, node.stat.version))])

    async def _delete_orphans(self, name: str, topic_id: TopicId) -> None:
        """Delete partition nodes that a plain ``etcdctl del`` of the topic node left without a parent."""
        store = self._context.store
        for start in range(0, MAX_PARTITIONS, PROBE_PARTITIONS):
            folders = [paths.partition(name, number) for number in range(start, start + PROBE_PARTITIONS)]
            found = await store.read_many([path for folder in folders for path in (folder, f"{folder}/leaderAndISR")])
            if not found:
                return
            # Children before their folders.
            for path in sorted(found, key=len, reverse=True):
                order = Delete(path, found[path].stat.version)
                group: Group = (Check(paths.topic_id(topic_id)), *still_gone(name), order)
                (outcome,) = await store.write_batch([group])
                if isinstance(outcome, Refused):
                    self._context.log.info("orphan not deleted", path=path, reason=str(outcome.error))


def still_gone(name: str) -> tuple[Absent, ...]:
    """That a topic node that was read to be gone is so when something is written; nothing of a name that cannot be."""
    path = paths.topic(name)
    return (Absent(path),) if is_path(path) else ()


def _known_folders(topic_id: TopicId, name: str, known: Known) -> Iterator[_Folder]:
    for number, version in known.items():
        yield _Folder(topic_id=topic_id, path=paths.partition(name, number), version=version)


def _last_of(topic_id: TopicId, name: str, topic: Node | None, found: Mapping[str, Node], *, is_ours: bool) -> Group:
    """The multi that frees the name: the topic node, unless it is another's or gone, the guard, and the settings."""
    config = found.get(topic_config(name))
    removals = found.get(paths.partition_deletions(topic_id))
    group: list[Operation] = []
    if topic is None:
        group.extend(still_gone(name))
    elif is_ours:
        group.append(Delete(paths.topic(name), topic.stat.version))
    group.append(Delete(paths.topic_id(topic_id), found[paths.topic_id(topic_id)].stat.version))
    if removals is not None:
        group.append(Delete(paths.partition_deletions(topic_id), removals.stat.version))
    if config is not None and (topic is None or is_ours):
        group.append(Delete(topic_config(name), config.stat.version))
    return tuple(group)


def _guards(data: bytes, name: str) -> bool:
    try:
        return TopicIdNode.decode(data).topic == name
    except MalformedNodeError:
        return False


def _is_life_of(data: bytes, topic_id: TopicId) -> bool:
    """Whether a topic node is this topic's and not that of a later one with the same name."""
    try:
        return TopicNode.decode(data).topic_id == topic_id
    except MalformedNodeError:
        # What cannot be read is what the deletion is for.
        return True
