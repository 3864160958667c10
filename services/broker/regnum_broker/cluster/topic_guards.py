"""Whether topics are gone for good, as the store says now: metadata may lack one whose node somebody has damaged.

A topic is gone when its guard is (safety rule S2), and no node of its name says that it is still there, or cannot be
read. What cannot be read at present is no reason to forget anything.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from regnum_coordination.errors import ConnectionLoss, SessionExpired
from regnum_coordination.port import Node, Store
from regnum_model import paths
from regnum_model.ids import TopicId, is_topic_id
from regnum_model.nodes import MalformedNodeError, TopicNode
from regnum_model.topics import InvalidTopicNameError, check_topic_name

READ_TIMEOUT_S: Final = 2.0
"""How long all of it may take."""

TOPICS_PER_READ: Final = 8
"""Topic nodes that are read together: each may have a megabyte."""


async def gone_for_good(store: Store | None, topics: Sequence[tuple[str, str]]) -> list[bool]:
    """Of each topic (name and id) whether it is certain that it is gone.

    Args:
        store: the store; None while there is no session.
        topics: which.
    """
    if store is None or not topics:
        return [False] * len(topics)
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            return await _found(store, topics)
    except (ConnectionLoss, SessionExpired, TimeoutError):
        return [False] * len(topics)


async def _found(store: Store, topics: Sequence[tuple[str, str]]) -> list[bool]:
    gone = [False] * len(topics)
    # Ids and names may be what a client said: what cannot be one is no path, and not asked for.
    asked = [at for at, (name, id) in enumerate(topics) if is_topic_id(id) and _is_topic_name(name)]
    guards = await store.get_many([paths.topic_id(TopicId(topics[at][1])) for at in asked], current=True)
    unguarded = [at for at, guard in zip(asked, guards, strict=True) if guard is None]
    for start in range(0, len(unguarded), TOPICS_PER_READ):
        part = unguarded[start : start + TOPICS_PER_READ]
        nodes = await store.get_many([paths.topic(topics[at][0]) for at in part], current=True)
        for at, node in zip(part, nodes, strict=True):
            gone[at] = node is None or await _is_another(node, topics[at][1])
    return gone


def _is_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicNameError:
        return False
    return True


async def _is_another(node: Node, topic_id: str) -> bool:
    """Whether a topic node is that of another topic."""
    try:
        # On a thread: it may be large (safety rule S22).
        content = await asyncio.to_thread(TopicNode.decode, node.data)
    except MalformedNodeError:
        return False
    return content.topic_id is not None and content.topic_id != topic_id
