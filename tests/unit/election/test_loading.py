"""How a reign reads what there is: as one tree where the store can, by name elsewhere, and the same either way."""

import random
from collections import Counter
from collections.abc import AsyncGenerator, Sequence

from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import Compacted, ConnectionLoss
from regnum_coordination.port import Node, Stat, TreePage
from regnum_election.topics.creation import Created
from regnum_election.topics.found import TopicsOfTree
from regnum_election.topics.requests import TopicRequest
from regnum_model import paths
from regnum_testing.reigning import ANYBODY, FakeCluster

TOPICS = 120
PARTITIONS = 3

SMALL_TREES = {f"tree of {paths.BROKER_IDS}": 1, f"tree of {paths.DELETE_PARTITIONS}": 1}


class TreeStore(MemoryStore):
    """Counts what is read; the tree of topics fails in the middle as often as is told."""

    failures: Sequence[Exception] = ()

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.calls: Counter[str] = Counter()
        """Calls, and paths read by name of topics, by what was asked."""
        self._failures = list(self.failures)

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        """Count."""
        self.calls["by name"] += sum(path.startswith("/brokers/topics/") for path in paths)
        return await super().get_many(paths, current=current)

    async def read_tree(self, path: str, *, current: bool = True) -> AsyncGenerator[TreePage, None]:
        """Count, and perhaps fail behind the first page."""
        self.calls[f"tree of {path}"] += 1
        async for page in super().read_tree(path, current=current):
            yield page
            if self._failures and path == paths.TOPICS:
                raise self._failures.pop()


class NamesStore(TreeStore):
    """A store like ZooKeeper."""

    @property
    def tree_watch_offered(self) -> bool:
        """It is not."""
        return False


class FailingStore(TreeStore):
    """Its tree of topics fails twice."""

    failures = (Compacted("gone"), ConnectionLoss("no answer"))


async def _next_reign(kind: type[TreeStore]) -> Counter[str]:
    """What the next reign asks of the store; it knows what the one before it knew."""
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    first = await cluster.reign(1)
    requests = [
        TopicRequest(name=f"topic-{number}", partitions=PARTITIONS, replication_factor=3, assignment=(), mutation=None)
        for number in range(TOPICS)
    ]
    answered = await first.topics.create(requests, validate_only=False, wait_s=30.0, account=ANYBODY)
    assert all(isinstance(outcome, Created) for outcome in answered.outcomes)
    before = first.picture
    await cluster.outside.create(f"{paths.TOPICS}/topic-7/99", b"a folder of no partition")
    await cluster.outside.create(f"{paths.TOPICS}/topic-7/99/leaderAndISR", b"{}")
    await cluster.outside.create(f"{paths.TOPICS}/topic-7/notes", b"by hand")
    await cluster.end_reign()
    cluster.open_store = kind
    second = await cluster.reign(2)
    store = cluster.controller_store
    assert isinstance(store, TreeStore)
    assert {topic.name: topic.id for topic in second.picture.topics.values()} == {
        topic.name: topic.id for topic in before.topics.values()
    }
    assert {key: one.held for key, one in second.picture.partitions.items()} == {
        key: one.held for key, one in before.partitions.items()
    }
    calls = +store.calls
    await cluster.close()
    return calls


async def test_all_topics_and_states_are_one_read_of_a_tree() -> None:
    calls = await _next_reign(TreeStore)
    assert calls == {f"tree of {paths.TOPICS}": 1, **SMALL_TREES}


async def test_a_read_that_breaks_off_begins_anew_and_nothing_of_it_stays() -> None:
    calls = await _next_reign(FailingStore)
    assert calls == {f"tree of {paths.TOPICS}": 3, **SMALL_TREES}


async def test_a_store_without_trees_is_asked_for_each_node_once() -> None:
    calls = await _next_reign(NamesStore)
    assert calls == {"by name": TOPICS * (1 + PARTITIONS), f"tree of {paths.DELETE_PARTITIONS}": 1}


def test_a_tree_of_topics_has_their_nodes_and_states_and_nothing_else() -> None:
    stat = Stat(creation_id=1, modification_id=1, version=0, children_id=1, ephemeral_owner=None)
    node = Node(data=b"x", stat=stat)
    below = ["t", "t/0", "t/0/leaderAndISR", "t/00/leaderAndISR", "t/x/leaderAndISR", "t/1/other", "t/1/leaderAndISR/x"]
    every = [paths.TOPICS, *(f"{paths.TOPICS}/{one}" for one in below)]
    random.Random(1).shuffle(every)
    found = TopicsOfTree()
    found.take(TreePage(nodes=dict.fromkeys(every, node), revision=1))
    assert found.nodes == {"t": node}
    assert {name: set(states) for name, states in found.states.items()} == {"t": {0}}
