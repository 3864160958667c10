"""A topic becomes known as a whole, and once (see ``unpublished``)."""

from regnum_election.publication.unpublished import Unpublished
from regnum_model.ids import PartitionKey, TopicId

COUNTS = {TopicId("small"): 2, TopicId("other"): 2, TopicId("large"): 7, TopicId("gone"): 0}


def keys(name: str, *numbers: int) -> list[PartitionKey]:
    return [PartitionKey(TopicId(name), number) for number in numbers]


def of_topic(id: TopicId) -> list[PartitionKey]:
    return keys(id, *range(COUNTS[id]))


def test_what_is_known_goes_in_portions() -> None:
    unpublished = Unpublished()
    assert [list(some) for some in unpublished.portions(keys("large", *range(7)), of_topic, 3)] == [
        keys("large", 0, 1, 2),
        keys("large", 3, 4, 5),
        keys("large", 6),
    ]


def test_the_first_news_of_a_topic_names_all_its_partitions_in_one_portion() -> None:
    unpublished = Unpublished()
    unpublished.add([TopicId("large"), TopicId("small")])
    first = unpublished.portions(keys("large", 6) + keys("other", 1), of_topic, 3)
    assert [list(some) for some in first] == [keys("large", *range(7)), keys("other", 1)]
    second = unpublished.portions(keys("large", 6), of_topic, 3)
    assert [list(some) for some in second] == [keys("large", 6)]
    assert unpublished.among([TopicId("large"), TopicId("small")]) == ["small"]


def test_new_topics_share_a_portion_while_they_fit() -> None:
    unpublished = Unpublished()
    unpublished.add([TopicId("small"), TopicId("other"), TopicId("large")])
    changed = keys("small", 0, 1) + keys("other", 0) + keys("large", 0)
    assert [list(some) for some in unpublished.portions(changed, of_topic, 4)] == [
        keys("small", 0, 1) + keys("other", 0, 1),
        keys("large", *range(7)),
    ]


def test_a_topic_that_is_gone_is_not_waited_for() -> None:
    unpublished = Unpublished()
    unpublished.add([TopicId("gone"), TopicId("small")])
    assert list(unpublished.portions(keys("gone", 0), of_topic, 4)) == []
    unpublished.forget([TopicId("small")])
    assert unpublished.among([TopicId("gone"), TopicId("small")]) == []
