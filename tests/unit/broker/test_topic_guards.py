"""When a topic is certain to be gone."""

import pytest
from regnum_broker.cluster.topic_guards import gone_for_good
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.recipes.folders import ensure_folders
from regnum_model import paths
from regnum_model.ids import BrokerId, TopicId
from regnum_model.nodes import TopicIdNode, TopicNode
from regnum_service.clock import SystemClock

ID = TopicId("T" * 22)
OTHER_ID = TopicId("U" * 22)


def node(id: TopicId | None) -> bytes:
    return TopicNode(topic_id=id, partitions={0: (BrokerId(1),)}).encode()


@pytest.mark.parametrize(
    ("guard", "topic", "expected"),
    [
        (None, None, True),
        (None, node(OTHER_ID), True),
        (None, node(ID), False),
        (None, node(None), False),
        (None, b"damaged", False),
        (TopicIdNode(topic="t").encode(), None, False),
        (TopicIdNode(topic="t").encode(), node(ID), False),
        (TopicIdNode(topic="t").encode(), b"damaged", False),
        (b"damaged", None, False),
    ],
)
async def test_a_topic_is_gone_when_nothing_says_that_it_may_be_there(
    guard: bytes | None, topic: bytes | None, expected: bool
) -> None:
    store = MemoryStore(MemoryServer())
    await ensure_folders(store, [*paths.PERSISTENT_FOLDERS], SystemClock())
    if guard is not None:
        await store.create(paths.topic_id(ID), guard, make_parents=True)
    if topic is not None:
        await store.create(paths.topic("t"), topic, make_parents=True)
    assert await gone_for_good(store, [("t", ID), ("other", OTHER_ID)]) == [expected, True]


async def test_without_the_store_nothing_is_certain() -> None:
    assert await gone_for_good(None, [("t", ID)]) == [False]


@pytest.mark.parametrize(("name", "id"), [("t", "../x"), ("t", ""), ("t", "a/b"), ("../t", ID), ("a/b", ID), ("", ID)])
async def test_what_no_topic_can_have_is_not_asked_for(name: str, id: str) -> None:
    store = MemoryStore(MemoryServer())
    await ensure_folders(store, [*paths.PERSISTENT_FOLDERS], SystemClock())
    assert await gone_for_good(store, [(name, id), ("t", ID)]) == [False, True]
