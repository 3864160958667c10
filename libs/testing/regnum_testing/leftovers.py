"""What is left behind in the store and on disk by changes of topics that are over.

Nothing is changed and nothing is waited for: whoever asks waits until there is nothing left, with a deadline. The
store is read node by node, not at one moment, so something that is on its way may be seen as left behind.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from regnum_coordination.port import Store
from regnum_model import paths
from regnum_model.configs import TOPICS as TOPIC_CONFIGS
from regnum_model.nodes import LeaderAndIsr, MalformedNodeError, TopicIdNode, TopicNode

_REPLICAS: Final = "replicas"
"""Folder of the replicas in a log directory."""

_WORK: Final = (
    paths.DELETE_TOPICS,
    paths.DELETE_PARTITIONS,
    paths.PARTITIONS_ADD,
    paths.PARTITIONS_REMOVE,
    paths.PARTITIONS_REASSIGNED,
)
"""Folders in which something stands while there is work."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What the store has, as read."""

    nodes: Mapping[str, bytes]
    """Content by path."""

    @cached_property
    def _folders(self) -> Mapping[str, Sequence[str]]:
        """Names of the children of each node that has any."""
        folders: dict[str, list[str]] = defaultdict(list)
        for path in self.nodes:
            folder, _, name = path.rpartition("/")
            folders[folder].append(name)
        return folders

    def below(self, folder: str) -> Iterator[tuple[str, bytes]]:
        """Direct children of a folder: name and content."""
        for name in self._folders.get(folder, ()):
            yield name, self.nodes[f"{folder}/{name}"]


async def contents(store: Store) -> Contents:
    """Every node of the store."""
    nodes: dict[str, bytes] = {}
    async with aclosing(store.read_tree("/", current=True)) as pages:
        async for page in pages:
            nodes.update((path, node.data) for path, node in page.nodes.items())
    return Contents(nodes=nodes)


async def versions(store: Store) -> dict[str, tuple[bytes, int, int]]:
    """Every node of the store but what belongs to a session: content, version, and which creation of it."""
    found: dict[str, tuple[bytes, int, int]] = {}
    async with aclosing(store.read_tree("/", current=True)) as pages:
        async for page in pages:
            for path, node in page.nodes.items():
                if not node.stat.ephemeral_owner:
                    found[path] = (node.data, node.stat.version, node.stat.creation_id)
    return found


async def left_behind(store: Store, data_dir: Path) -> list[str]:
    """A line for each thing that should not be there, or should be otherwise, when no change is under way.

    Args:
        store: a session of the asker's own.
        data_dir: folder of a LocalCluster with ``broker-N`` below it.
    """
    there = await contents(store)
    # The disks after the store: what it names meanwhile has not been deleted before.
    folders = await asyncio.to_thread(_replica_folders, data_dir)
    return [*in_store(there), *on_disk(there, folders)]


def in_store(there: Contents) -> Iterator[str]:
    """What is left in the store."""
    for folder in _WORK:
        for name, data in there.below(folder):
            yield f"{folder}/{name} stands: {data[:200]!r}"
    live = {int(name) for name, _ in there.below(paths.BROKER_IDS) if name.isdigit()}
    guards = {name: TopicIdNode.decode(data).topic for name, data in there.below(paths.TOPIC_IDS)}
    topics = dict(_topics(there))
    for id, name in guards.items():
        if name not in topics or topics[name].topic_id != id:
            yield f"the guard of topic id {id} stands, and no topic {name} has that id"
    for name, node in topics.items():
        if node.topic_id not in guards:
            yield f"topic {name} has no guard"
        yield from _of_topic(there, name, node, live)
    for name, _ in there.below(TOPIC_CONFIGS):
        if name not in topics:
            yield f"settings of a topic {name} that does not exist"


def _topics(there: Contents) -> Iterator[tuple[str, TopicNode]]:
    for name, data in there.below(paths.TOPICS):
        yield name, TopicNode.decode(data)


def _of_topic(there: Contents, name: str, node: TopicNode, live: set[int]) -> Iterator[str]:
    for what in ("creating", "removing", "reassigning", "left"):
        if value := getattr(node, what):
            yield f"topic {name} is {what}: {value}"
    numbers = {int(number) for number, _ in there.below(paths.topic(name)) if number.isdigit()}
    for number in sorted(numbers | node.partitions.keys()):
        data = there.nodes.get(paths.leader_and_isr(name, number))
        for wrong in _of_state(data, number, node, live):
            yield f"{name}-{number} {wrong}"


def _of_state(data: bytes | None, number: int, node: TopicNode, live: set[int]) -> Iterator[str]:
    if data is None:
        yield "has no state"
        return
    try:
        state = LeaderAndIsr.decode(data)
    except MalformedNodeError as error:
        yield f"has a state that cannot be read: {error}"
        return
    if state.topic_id != node.topic_id:
        yield "has the state of another topic"
    elif number not in node.partitions or state.removed:
        if number in node.partitions or not state.removed:
            yield "is no partition and has a state, or is one and has a tombstone"
    elif state.leader not in state.isr or state.leader not in live:
        yield f"is led by {state.leader}, with ISR {state.isr} and live brokers {sorted(live)}"
    elif not set(state.isr) <= set(node.partitions[number]):
        yield f"has ISR {state.isr} and replicas {node.partitions[number]}"


def on_disk(there: Contents, folders: Mapping[int, frozenset[str]]) -> Iterator[str]:
    """What is left on the disks: folders of replicas by broker, against the assignments."""
    assigned = {
        f"{node.topic_id}-{number}": frozenset(replicas)
        for _, node in _topics(there)
        for number, replicas in node.partitions.items()
    }
    for broker, names in sorted(folders.items()):
        for name in sorted(names):
            if broker not in assigned.get(name, frozenset()):
                yield f"broker {broker} has a folder {name}, which no assignment names"


def _replica_folders(data_dir: Path) -> dict[int, frozenset[str]]:
    """Folders of replicas by broker; those on their way out have another ending and count as well."""
    return {
        int(broker.name.rpartition("-")[2]): frozenset(path.name for path in (broker / _REPLICAS).glob("*"))
        for broker in data_dir.glob("broker-*")
    }
