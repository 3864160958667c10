"""Rules about topics that are no items of a request: what a whole call is about, and what a watcher hears of."""

from typing import Any, Final

from regnum.broker.v1 import log_pb2
from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.access import Operation, ResourceType

from regnum_service.access.authorization import Authorizer, Right
from regnum_service.access.guards.rule import Passage
from regnum_service.access.identity import caller
from regnum_service.access.topic_sight import DESCRIBE_TOPIC
from regnum_service.errors import RegnumError
from regnum_service.item_errors import item_status
from regnum_service.slices import Turns

TOPICS_PER_TURN: Final = 1_000
"""Topics that are decided on between two turns of the event loop (safety rule S22)."""

NAMED_MAX: Final = 10_000
"""Topics that one message of a watcher may name, as the handler has it: each is decided on before it hears of any."""

READ_TOPIC: Final = Right(Operation.READ, ResourceType.TOPIC)
DESCRIBE_CLUSTER: Final = Right(Operation.DESCRIBE, ResourceType.CLUSTER)


class Named:
    """A right to the one thing that a request names: the whole call, or nothing."""

    in_handler: Final = False

    def __init__(self, right: Right, field: str, *, again: bool = False) -> None:
        """``field``: of the request, with the name; ``again``: an answer that was waited for asks once more."""
        self.right: Final = right
        self.field: Final = field
        self.again: Final = again

    def passage(self, authorizer: Authorizer) -> Passage:
        """Of one call."""
        return _NamedPassage(self, authorizer)


class _NamedPassage(Passage):
    def __init__(self, rule: Named, authorizer: Authorizer) -> None:
        self._rule: Final = rule
        self._authorizer: Final = authorizer
        self._name = ""

    async def enter(self, request: Any) -> Any | None:
        self._name = getattr(request, self._rule.field)
        self._rule.right.require(self._authorizer, self._name)
        return None

    async def leave(self, response: Any) -> Any:
        if self._rule.again:
            self._rule.right.require(self._authorizer, self._name)
        return response


class Consuming:
    """READ of a topic for as long as its records are streamed; a refusal is the last step, as all errors are."""

    in_handler: Final = False

    def passage(self, authorizer: Authorizer) -> Passage:
        """Of one stream."""
        return _ConsumePassage(authorizer)


class _ConsumePassage(Passage):
    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer: Final = authorizer
        self._topic = ""
        self._partition = 0

    async def enter(self, request: Any) -> Any | None:
        self._topic, self._partition = request.topic, request.partition
        return self._refusal()

    async def leave(self, response: Any) -> Any:
        refusal = self._refusal()
        return response if refusal is None else refusal

    def _refusal(self) -> log_pb2.ConsumeResponse | None:
        if READ_TOPIC.held(self._authorizer, self._topic):
            return None
        self.over = True
        error = READ_TOPIC.refusal(self._topic)
        return log_pb2.ConsumeResponse(
            result=log_pb2.FetchResult(
                topic=self._topic,
                partition=self._partition,
                error_code=error.code,
                error_message=error.message,
                status=item_status(error.code, error.message),
            )
        )


class Watching:
    """Topics that a watcher may be told of; of others it hears what it would hear if there were none.

    What is hidden is decided for the rules as they are: whoever sees a part of the topics begins anew when any rule
    changes, so that nobody ever gets a change of something that it was never told.
    """

    in_handler: Final = False

    def passage(self, authorizer: Authorizer) -> Passage:
        """Of one stream."""
        return _WatchPassage(authorizer)


class _WatchPassage(Passage):
    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer: Final = authorizer
        self._everything: bool | None = None
        self._generation = 0
        self._all_topics = False
        self._hidden: Final[set[str]] = set()
        """Topics that the caller named and may not be told of: what the handler has taken, and at most one message."""
        self._told = metadata_pb2.WatchMetadataResponse()
        """What the last answer said of the cluster, and whether more was to come."""

    async def enter(self, request: Any) -> Any | None:
        is_first = self._everything is None
        if is_first:
            self._everything, self._all_topics = self._sees_everything(), request.all_topics
            if not self._everything:
                # Nobody knows what the caller was told under the rules of that time: it is told the present state.
                request.version = 0
        # What the handler takes no notice of is not kept here either: it would count nowhere, and have no end.
        if not self._everything and not self._all_topics:
            known = request.known_topics if is_first else ()
            if max(len(request.topics), len(known)) > NAMED_MAX:
                raise RegnumError(
                    errors_pb2.ERROR_CODE_INVALID_REQUEST,
                    f"a message names {NAMED_MAX} topics at most: name the rest in further ones",
                )
            turns = Turns(TOPICS_PER_TURN)
            for name in (*request.topics, *known):
                # The denial is written down here, once; the answers only follow it.
                if not DESCRIBE_TOPIC.held(self._authorizer, name):
                    self._hidden.add(name)
                await turns.took()
        return None

    async def leave(self, response: Any) -> Any:
        if self._generation != self._authorizer.generation and not (self._everything and self._sees_everything()):
            self._everything, self.over = False, True
        if self._everything:
            return response
        answer = metadata_pb2.WatchMetadataResponse.FromString(response)
        has_changes = bool(answer.topics)
        await self._hide(answer.topics)
        await self._hide(answer.whole_topics, gone=True)
        said = metadata_pb2.WatchMetadataResponse(
            cluster_id=answer.cluster_id, requests_taken=answer.requests_taken, more=answer.more
        )
        # (Of an answer in several messages the first one says it.)
        said.controller.CopyFrom(self._told.controller if self._told.more else answer.controller)
        if self._told.more:
            said.cluster_id = self._told.cluster_id
        if has_changes and not self.over and said == self._told and not answer.more and not _tells(answer):
            # Of hidden topics only: that it comes would tell that there are such.
            return None
        self._told = said
        return answer.SerializeToString()

    def _sees_everything(self) -> bool:
        self._generation = self._authorizer.generation
        return self._authorizer.allows_all(caller(), Operation.DESCRIBE, ResourceType.TOPIC)

    async def _hide(self, topics: Any, *, gone: bool = False) -> None:
        turns = Turns(TOPICS_PER_TURN)
        for place in reversed(range(len(topics))):
            name = topics[place].name
            if not DESCRIBE_TOPIC.held(self._authorizer, name, audit=False):
                if gone and name in self._hidden:
                    topics[place].CopyFrom(types_pb2.TopicState(name=name, deleted=True))
                else:
                    del topics[place]
            await turns.took()


def _tells(answer: metadata_pb2.WatchMetadataResponse) -> bool:
    return bool(answer.topics or answer.whole_topics or answer.brokers or answer.removed_brokers or answer.reset)


class CountedCluster:
    """Who may not describe the cluster, nor every topic, does not hear how many topics there are."""

    in_handler: Final = False

    def passage(self, authorizer: Authorizer) -> Passage:
        """Of one call."""
        return _CountPassage(authorizer)


class _CountPassage(Passage):
    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer: Final = authorizer

    async def leave(self, response: Any) -> Any:
        if not DESCRIBE_CLUSTER.held(self._authorizer, audit=False) and not self._authorizer.allows_all(
            caller(), Operation.DESCRIBE, ResourceType.TOPIC
        ):
            response.topics = 0
        return response


class ProducerIdentity:
    """A producer id: IDEMPOTENT_WRITE on the cluster, or WRITE on any topic (KIP-679)."""

    in_handler: Final = False

    def passage(self, authorizer: Authorizer) -> Passage:
        """Of one call."""
        return _ProducerPassage(authorizer)


class _ProducerPassage(Passage):
    right: Final = Right(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer: Final = authorizer

    async def enter(self, request: Any) -> Any | None:
        del request
        if not self._authorizer.allows_any(caller(), Operation.WRITE, ResourceType.TOPIC, audit=False):
            self.right.require(self._authorizer)
        return None
