"""Letting go of what is large in steps: to free 200,000 topics takes 200 ms, on whichever thread (safety rule S22).

Who holds the last reference pays for it. So what is retired is handed over here, and its former owners keep none.
"""

from collections.abc import Generator, Mapping
from typing import Any, Final

from immutables import Map
from regnum_model.ids import TopicId
from regnum_model.picture_line import TopicNews

from regnum_metadata.image import TopicImage

STEP: Final = 2_000
"""Partitions let go of in one step; a topic counts as two more."""

MESSAGES_PER_STEP: Final = 10_000
"""Names let go of in one step, or messages whose partitions others hold."""


def topics_gone(retired: list[Map[str, TopicImage]]) -> Generator[None, None, None]:
    """Empty the list. Topics that somebody else has stay with them."""
    while retired:
        # Listing 200,000 topics, and freeing a map whose topics have another owner, is 10 ms each.
        topics = list(retired[-1].values())
        yield
        del retired[-1]
        yield
        done = 0
        while topics:
            done += 2 + len(topics.pop().partitions)
            if done >= STEP:
                done = 0
                yield


def names_gone(retired: list[Mapping[TopicId, TopicNews]]) -> Generator[None, None, None]:
    """Empty the list. A mapping that somebody else has stays."""
    while retired:
        news = list(retired[-1].values())
        del retired[-1]
        yield
        while news:
            del news[-MESSAGES_PER_STEP:]
            yield


def messages_gone(messages: list[Any]) -> Generator[None, None, None]:
    """Empty the list."""
    while messages:
        del messages[-MESSAGES_PER_STEP:]
        yield
