"""Which topics a caller may be told of."""

from collections.abc import Callable, Container, Iterator
from typing import Final

from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.access import Operation, ResourceType
from regnum_model.acls.reach import Reach

from regnum_service.access.authorization import EVERYBODY, Authorizer, Right
from regnum_service.access.identity import caller

DESCRIBE_TOPIC: Final = Right(Operation.DESCRIBE, ResourceType.TOPIC)


class TopicSight:
    """Of one call. What there is and may not be described looks like what there is not."""

    def __init__(self, authorizer: Authorizer = EVERYBODY) -> None:
        """For whoever calls now."""
        self._authorizer: Final = authorizer
        self._everything: Final = authorizer.allows_all(caller(), Operation.DESCRIBE, ResourceType.TOPIC)

    @property
    def nothing(self) -> bool:
        """No topic can be one that the caller may be told of: lists need not be gone through."""
        return not self._everything and not self._authorizer.allows_any(
            caller(), Operation.DESCRIBE, ResourceType.TOPIC, audit=False
        )

    @property
    def reach(self) -> Reach | None:
        """Names outside of which a list shows nothing, where rules say so in few words: lists look there only."""
        if self._everything:
            return None
        return self._authorizer.reach(caller(), Operation.DESCRIBE, ResourceType.TOPIC)

    def among(self, since: Callable[[str], Iterator[str]], there: Container[str], first: str) -> Iterator[str]:
        """Names among which are all that a list shows, as of ``Reach.among``; ask ``lists`` of each."""
        reach = self.reach
        return since(first) if reach is None else reach.among(since, there, first)

    def lists(self, name: str) -> bool:
        """Whether a list shows the topic; a no is no denial."""
        return self._everything or DESCRIBE_TOPIC.held(self._authorizer, name, audit=False)

    def answers(self, name: str) -> bool:
        """Whether a question that names the topic is answered."""
        return self._everything or DESCRIBE_TOPIC.held(self._authorizer, name)


def forbidden_topic(name: str) -> metadata_pb2.TopicMetadata:
    """What is said of a topic that was named and may not be described, whether there is such a topic or not."""
    return metadata_pb2.TopicMetadata(
        error_code=errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED, topic=types_pb2.TopicState(name=name)
    )
