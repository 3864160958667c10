"""Work on images in steps, between which the event loop has a turn (safety rule S22)."""

import asyncio
from collections.abc import Generator
from typing import TypeVar

from regnum_model.picture_line import TopicNews

from regnum_metadata.image import TopicImage

T = TypeVar("T")


async def in_steps(steps: Generator[None, None, T]) -> T:
    """Carry out work that pauses now and then; the event loop has a turn at each pause."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        await asyncio.sleep(0)


def topic_weight(topic: TopicImage) -> int:
    """What it is to let go of a topic, in partitions."""
    return 2 + len(topic.partitions)


def news_weight(news: TopicNews) -> int:
    """What it is to let go of the names of a topic, in partitions."""
    return 1 + len(news.partitions) // 10
