"""Topics that run though their nodes miss partition numbers, or cannot be read (safety rule S14).

Only a person can have made that. They may have records, so they go on with the partitions they have; but producers
choose by number, nothing can be added to them, and only a person knows what the missing ones were. A new topic with
such a node is not taken up at all. No watch tells of a correction: the version of the topic node does.
"""

from typing import Final

from regnum_model import paths

from regnum_election.decisions.cluster import Topic
from regnum_election.decisions.topic_nodes import missing_numbers
from regnum_election.state.accepted import note_unreadable
from regnum_election.state.context import ControllerContext


class IncompleteTopics:
    """Of one reign; used by the controller's task only."""

    def __init__(self, context: ControllerContext) -> None:
        """Only assigns."""
        self._context: Final = context

    def note(self, topic: Topic, unreadable: str = "") -> None:
        """A topic as it comes into the picture; ``unreadable``: why its node says nothing, and its guard all."""
        known = self._context.incomplete
        if unreadable:
            reason = (
                f"{unreadable}; it runs on with the partitions and replicas that were accepted: write the node back"
            )
            if known.get(topic.name) != reason:
                known[topic.name] = reason
                note_unreadable(self._context, topic, unreadable)
            return
        self._context.events.unreadable.pop(topic.id, None)
        if not topic.misses_numbers:
            known.pop(topic.name, None)
            return
        missing = list(missing_numbers(topic.partitions))
        reason = (
            f"its node names partitions up to {topic.partitions[-1]} and misses {missing}; it runs on without them: "
            "write them back into the node, those that never were into `creating` as well"
        )
        if known.get(topic.name) != reason:
            known[topic.name] = reason
            self._context.log.error("topic misses partitions", topic=topic.name, reason=reason)

    async def rewritten(self) -> list[str]:
        """Names of those whose nodes are not as they were read. Raises DeposedError."""
        context = self._context
        known = context.incomplete
        for name in [name for name in known if name not in context.picture.names]:
            del known[name]
        for id in [id for id in context.events.unreadable if id not in context.picture.topics]:
            del context.events.unreadable[id]
        topics = {paths.topic(name): context.picture.topics[context.picture.names[name]] for name in known}
        nodes = await context.store.read_many(tuple(topics))
        return [
            topic.name
            for path, topic in topics.items()
            if (node := nodes.get(path)) is not None
            and (node.stat.version, node.stat.creation_id) != (topic.version, topic.creation_id)
        ]
