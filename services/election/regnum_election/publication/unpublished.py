"""Topics of the picture that no publication has named yet.

The first that names one names all of its partitions: a client that knew a part of a topic would spread keys over that
part. So a topic that is being created is published once, with its leaders.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from regnum_model.ids import PartitionKey, TopicId


class Unpublished:
    """One for each reign; used by the controller's loop only."""

    def __init__(self) -> None:
        self._topics: set[TopicId] = set()

    def add(self, topics: Iterable[TopicId]) -> None:
        """These came into the picture."""
        self._topics.update(topics)

    def forget(self, topics: Iterable[TopicId]) -> None:
        """These are gone."""
        self._topics.difference_update(topics)

    def among(self, topics: Iterable[TopicId]) -> list[TopicId]:
        """Those of them that are still unpublished."""
        return [id for id in topics if id in self._topics]

    def portions(
        self,
        changed: Sequence[PartitionKey],
        partitions_of: Callable[[TopicId], Iterable[PartitionKey]],
        size: int,
    ) -> Iterator[Sequence[PartitionKey]]:
        """What to publish together: about ``size`` partitions, and every topic that is new as a whole.

        Args:
            changed: partitions with news; topics that are unpublished are taken to be published with them.
            partitions_of: all partitions of a topic; none when it is gone.
            size: partitions of one portion, unless one new topic has more.
        """
        new = dict.fromkeys(key.topic_id for key in changed if key.topic_id in self._topics) if self._topics else {}
        self._topics.difference_update(new)
        portion: list[PartitionKey] = []
        for id in new:
            whole = tuple(partitions_of(id))
            if portion and len(portion) + len(whole) > size:
                yield portion
                portion = []
            portion.extend(whole)
        if portion:
            yield portion
        known = [key for key in changed if key.topic_id not in new] if new else changed
        for start in range(0, len(known), size):
            yield known[start : start + size]
