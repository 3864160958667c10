"""What is news to those who have the image before a change: by name, for the line of versions.

A full image that replaces one of an earlier reign is compared with it, partition by partition, so that a succession
costs the brokers what changed in it and not what exists. Topics that are the same keep the very object that they had,
and with it their bytes.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import NamedTuple

from regnum_model.ids import BrokerId, TopicId
from regnum_model.picture_line import News, TopicNews
from regnum_service.cluster_image.news import NamedChanges

from regnum_metadata.image import PARTITIONS_PER_STEP, Change, Image, TopicImage


class Compared(NamedTuple):
    """An image, and how it differs from the one before."""

    image: Image
    """The image; what is the same in both is the same object."""
    news: News
    """All that differs."""


def named_by(change: Change, before: Image) -> Generator[None, None, News]:
    """What an interval names; returned after some steps.

    What came from another reign may have had other brokers: all of them are news.
    """
    done = 0
    named = NamedChanges()
    for state in change.topics:
        done += 1 + len(state.partitions)
        if done >= PARTITIONS_PER_STEP:
            done = 0
            yield
        named.add(state)
    brokers = {broker.id for broker in change.head.brokers}
    if change.all_brokers:
        brokers.update(broker.id for broker in before.head.brokers)
    return named.news(frozenset(map(BrokerId, brokers)) | change.removed_brokers, change.traceparent)


def compared(before: Image, after: Image, traceparent: str) -> Generator[None, None, Compared]:
    """How a full image differs from the one before it; returned after some steps."""
    topics = after.topics.mutate()
    news: dict[TopicId, TopicNews] = {}
    done = 0
    for name, topic in after.topics.items():
        known = before.topics.get(name)
        if known is None or known.topic_id != topic.topic_id:
            news[TopicId(topic.topic_id)] = TopicNews(name, frozenset(topic.partitions))
        else:
            changed, shared = yield from _differing(known, topic)
            if shared < len(known.partitions):
                # What is gone is named as what is news: the image says which it is.
                changed |= frozenset(number for number in known.partitions if number not in topic.partitions)
            if changed:
                news[TopicId(topic.topic_id)] = TopicNews(name, changed)
            else:
                topics[name] = known
        done += 1 + len(topic.partitions)
        if done >= PARTITIONS_PER_STEP:
            done = 0
            yield
    deleted = yield from _deleted(before, after)
    brokers = frozenset(BrokerId(broker.id) for broker in (*before.head.brokers, *after.head.brokers))
    found = News(topics=news, deleted=deleted, brokers=brokers, traceparent=traceparent)
    return Compared(replace(after, topics=topics.finish()), found)


def _differing(known: TopicImage, topic: TopicImage) -> Generator[None, None, tuple[frozenset[int], int]]:
    """Partitions of a topic that are new or not as they were, and how many there were before that still are."""
    changed: list[int] = []
    shared = 0
    for done, (number, state) in enumerate(topic.partitions.items()):
        present = known.partitions.get(number)
        shared += present is not None
        if present != state:
            changed.append(number)
        if done % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
            yield
    return frozenset(changed), shared


def _deleted(before: Image, after: Image) -> Generator[None, None, dict[TopicId, str]]:
    deleted: dict[TopicId, str] = {}
    for done, (name, known) in enumerate(before.topics.items()):
        now = after.topics.get(name)
        if now is None or now.topic_id != known.topic_id:
            deleted[TopicId(known.topic_id)] = name
        if done % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
            yield
    return deleted
