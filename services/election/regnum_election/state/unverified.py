"""What a reign has only from its predecessor: states that it has neither written nor read itself.

A picture that was handed on may be behind the store, by a little or by much. So no order goes out for such a state
(safety rules S10, S12); it is the ground of a conditional write at most, which the store refuses if it is not what the
store holds.
"""

from collections.abc import Iterable

from regnum_model.ids import PartitionKey, TopicId


class Unverified:
    """The partitions concerned, by ``in``. One for each reign; used by the controller's loop only."""

    def __init__(self) -> None:
        self._topics: set[TopicId] = set()
        self._proved: dict[TopicId, set[int]] = {}
        """Partitions of these topics that are not concerned any more."""

    def __contains__(self, key: object) -> bool:
        return (
            isinstance(key, PartitionKey)
            and key.topic_id in self._topics
            and key.partition not in self._proved.get(key.topic_id, ())
        )

    @property
    def has_any(self) -> bool:
        """Whether some topic of the picture may still be other than the store says."""
        return bool(self._topics)

    def inherit(self, topics: Iterable[TopicId]) -> None:
        """Topics of a picture that was handed on."""
        self._topics.update(topics)

    def prove(self, keys: Iterable[PartitionKey]) -> None:
        """The store holds these states: they were written at their version, or read."""
        if self._topics:
            for key in keys:
                if key.topic_id in self._topics:
                    self._proved.setdefault(key.topic_id, set()).add(key.partition)

    def prove_topics(self, topics: Iterable[TopicId]) -> None:
        """These topics were read, with all their states; or they are gone."""
        for id in topics:
            self._topics.discard(id)
            self._proved.pop(id, None)
