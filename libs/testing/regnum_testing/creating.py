"""Topics that a test creates under a controller."""

from regnum_election.controller import Controller
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model.ids import BrokerId, TopicId

from regnum_testing.reigning import ANYBODY
from regnum_testing.waiting import DEADLINE_S


def wanted(name: str, partitions: int = 1, factor: int = 3, mutation: str | None = None) -> TopicRequest:
    """A topic whose replicas the controller chooses."""
    return TopicRequest(name=name, partitions=partitions, replication_factor=factor, assignment=(), mutation=mutation)


def assigned(name: str, *replicas: int) -> TopicRequest:
    """A topic of one partition with these replicas."""
    assignment = ((0, tuple(BrokerId(id) for id in replicas)),)
    return TopicRequest(name=name, partitions=0, replication_factor=None, assignment=assignment, mutation=None)


async def create(controller: Controller, *requests: TopicRequest) -> list[TopicId]:
    """Create topics; their ids. Fails where one is refused."""
    outcomes = (
        await controller.topics.create(requests, validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    ).outcomes
    ids: list[TopicId] = []
    for outcome in outcomes:
        assert isinstance(outcome, Created), outcome
        ids.append(outcome.topic_id)
    return ids
