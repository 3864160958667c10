"""What is retired is let go of in steps, and what somebody else has stays."""

import weakref

from immutables import Map
from regnum_metadata.image import TopicImage
from regnum_metadata.letting_go import STEP, messages_gone, names_gone, topics_gone
from regnum_model.ids import TopicId
from regnum_model.picture_line import TopicNews

COUNT = 3 * STEP


class Watched:
    """Something that says how many of it there are."""

    alive = 0

    def __init__(self) -> None:
        type(self).alive += 1
        weakref.finalize(self, self._gone)

    @classmethod
    def _gone(cls) -> None:
        cls.alive -= 1


def topics(count: int) -> Map[str, TopicImage]:
    return Map({f"{n}": TopicImage(name=f"{n}", topic_id="", partitions=Map({0: Watched()})) for n in range(count)})


def test_topics_go_in_steps() -> None:
    retired = [topics(COUNT)]
    left = [Watched.alive for _ in topics_gone(retired)]
    assert (Watched.alive, retired) == (0, [])
    assert max(before - after for before, after in zip([COUNT, *left], left, strict=False)) <= STEP


def test_topics_that_somebody_has_stay() -> None:
    kept, also_kept = topics(10), topics(5)
    retired = [kept, also_kept, topics(3)]
    for _ in topics_gone(retired):
        pass
    assert Watched.alive == 15
    assert len(kept) == 10
    del kept, also_kept
    assert Watched.alive == 0


def test_names_and_messages_go_too() -> None:
    names = {TopicId("a"): TopicNews("a", frozenset({1}))}
    messages = [1, 2, 3]
    for _ in (*names_gone([names]), *messages_gone(messages)):
        pass
    assert messages == []
    assert names, "whoever has the mapping keeps it"
