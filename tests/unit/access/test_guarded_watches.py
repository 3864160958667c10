"""A watch of the metadata tells its caller what it may see, and of nothing else that there is."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import types_pb2
from regnum_testing.recorded_rights import RecordedRights, guarded, only

METADATA = "regnum.metadata.v1.MetadataService"


class Watching:
    """A watch whose messages a test makes."""

    def __init__(self, rights: RecordedRights) -> None:
        self.rights = rights
        self.said: list[metadata_pb2.WatchMetadataRequest] = []

    async def watched(
        self,
        first: metadata_pb2.WatchMetadataRequest,
        *messages: metadata_pb2.WatchMetadataResponse | Callable[[], Any],
    ) -> list[metadata_pb2.WatchMetadataResponse]:
        async def watch(requests: Any, _context: Any) -> AsyncIterator[bytes]:
            self.said.append(await anext(requests))
            for message in messages:
                if isinstance(message, metadata_pb2.WatchMetadataResponse):
                    yield message.SerializeToString()
                else:
                    message()

        async def requests() -> AsyncIterator[Any]:
            yield first

        guard = guarded(self.rights, METADATA, WatchMetadata=watch)
        return [
            metadata_pb2.WatchMetadataResponse.FromString(one) async for one in guard.WatchMetadata(requests(), None)
        ]


def told(*names: str, whole: tuple[str, ...] = ()) -> metadata_pb2.WatchMetadataResponse:
    return metadata_pb2.WatchMetadataResponse(
        version=7,
        topics=[types_pb2.TopicState(name=name, topic_id="id") for name in names],
        whole_topics=[types_pb2.TopicState(name=name, topic_id="id") for name in whole],
    )


async def test_a_watcher_hears_of_a_hidden_topic_what_it_would_hear_if_there_were_none() -> None:
    watching = Watching(RecordedRights(only("DESCRIBE TOPIC a")))
    first = metadata_pb2.WatchMetadataRequest(topics=["a", "secret"], version=5)
    got = await watching.watched(first, told("a", "secret", "other", whole=("a", "secret", "other")))
    assert [one.name for one in got[0].topics] == ["a"]
    assert [(one.name, one.topic_id, one.deleted) for one in got[0].whole_topics] == [
        ("a", "id", False),
        ("secret", "", True),
    ]
    # What it was told under other rules nobody knows: it begins anew.
    assert watching.said[0].version == 0
    assert watching.rights.denied_loudly == ["DESCRIBE TOPIC a", "DESCRIBE TOPIC secret"]


async def test_that_a_hidden_topic_has_changed_is_not_told_either() -> None:
    watching = Watching(RecordedRights(only("DESCRIBE TOPIC a")))
    first = metadata_pb2.WatchMetadataRequest(topics=["a", "secret"])
    beat, elected = told(), told("secret")
    elected.controller.epoch = 9
    messages = (told(whole=("a", "secret")), told("secret"), beat, told("a"), told("secret"), elected)
    got = await watching.watched(first, *messages)
    heard = [[topic.name for topic in one.topics] for one in got]
    # The first, the beat, the change of what it may see, and another controller.
    assert heard == [[], [], ["a"], []]
    assert got[-1].controller == elected.controller


async def test_a_watcher_that_may_see_everything_gets_the_very_bytes_and_goes_on_where_it_was() -> None:
    watching = Watching(RecordedRights(only("DESCRIBE TOPIC *")))
    got = await watching.watched(metadata_pb2.WatchMetadataRequest(all_topics=True, version=5), told("a", whole=("b",)))
    assert got == [told("a", whole=("b",))]
    assert watching.said[0].version == 5


async def test_a_watch_of_some_topics_begins_anew_when_rules_have_changed() -> None:
    rights = RecordedRights(only("DESCRIBE TOPIC a"))

    def granted() -> None:
        rights.held = only("DESCRIBE TOPIC a", "DESCRIBE TOPIC secret")
        rights.generation += 1

    watching = Watching(rights)
    got = await watching.watched(
        metadata_pb2.WatchMetadataRequest(all_topics=True), told("a"), granted, told("a", "secret"), told("a")
    )
    assert len(got) == 2
    everything = Watching(RecordedRights(only("DESCRIBE TOPIC *")))

    def changed() -> None:
        everything.rights.generation += 1

    messages = (told("a"), changed, told("b"), told("c"))
    assert len(await everything.watched(metadata_pb2.WatchMetadataRequest(all_topics=True), *messages)) == 3

    def revoked() -> None:
        everything.rights.held = only("DESCRIBE TOPIC a")
        everything.rights.generation += 1

    got = await everything.watched(
        metadata_pb2.WatchMetadataRequest(all_topics=True), told("a"), revoked, told("a", "secret"), told("a")
    )
    assert [[topic.name for topic in one.topics] for one in got] == [["a"], ["a"]]
