"""Partitions that are added and removed, against quotas."""

from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_election.admission.stand_in import Account
from regnum_election.decisions.deletion import Removal
from regnum_election.partitions.addition import AdditionOutcome
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest
from regnum_election.topics.charging import Answered
from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey
from regnum_model.nodes import PartitionDeletionNode
from regnum_model.quota_matching import CLUSTER_KEY
from regnum_testing.quota_world import OLD, THROTTLED, QuotaWorld, codes
from regnum_testing.reigning import ANYBODY
from regnum_testing.waiting import DEADLINE_S


@pytest.fixture
async def world() -> AsyncIterator[QuotaWorld]:
    world = QuotaWorld()
    yield world
    await world.close()


async def more(
    world: QuotaWorld,
    names: list[str],
    total: int,
    *,
    account: Account = ANYBODY,
    validate_only: bool = False,
) -> Answered[AdditionOutcome]:
    requests = [AdditionRequest(name=name, total=total, assignment=(), mutation=None) for name in names]
    return await world.controller.partitions.add(
        requests, validate_only=validate_only, wait_s=DEADLINE_S, account=account
    )


async def test_added_partitions_are_charged_with_what_is_new(world: QuotaWorld) -> None:
    """ControllerMutationQuotaTest: 2/s, a burst of 20, two topics from 1 to 31 partitions."""
    await world.begin()
    process = await world.start_process()
    await world.create(["a", "b", "c", "d"])
    await world.set_quota(2.0, 20.0)
    assert codes((await more(world, ["a"], 31, validate_only=True)).outcomes) == [0]
    assert codes((await more(world, ["a"], 1)).outcomes) == [errors_pb2.ERROR_CODE_INVALID_PARTITIONS]
    assert process.requests == [], "what is checked only, or refused anyway, costs nothing"
    strict = await more(world, ["a", "b"], 31)
    assert sorted(codes(strict.outcomes)) == [0, THROTTLED]
    assert strict.throttle_ms == 5_000
    assert process.tokens(CLUSTER_KEY) == -10
    assert len((await world.cluster.topic("b")).partitions) == 1
    world.clock.skip(5.0)
    assert codes((await more(world, ["b"], 31)).outcomes) == [0]
    # A caller that cannot understand a refusal is let in, and told to wait.
    world.clock.skip(25.0)
    permissive = await more(world, ["c", "d"], 31, account=OLD)
    assert codes(permissive.outcomes) == [0, 0]
    assert permissive.throttle_ms == 20_000


async def test_what_waits_for_removed_partitions_to_be_gone_is_not_charged(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process()
    await world.create(["a"], partitions=2)
    key = PartitionKey(world.controller.picture.names["a"], 1)
    # Some broker has not confirmed.
    node = PartitionDeletionNode(topic="a", brokers=frozenset({BrokerId(9)}), leader_epoch=LeaderEpoch(3))
    await world.set_quota(2.0, 20.0)
    gone = PartitionKey(key.topic_id, 2)
    world.controller._context.removals.add(Removal.recorded_as(gone, node, version=0))
    # A call of several topics does not wait long for that.
    answered = await more(world, ["a", "none"], 3)
    assert codes(answered.outcomes) == [
        errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert process.requests == []


async def test_removed_partitions_are_charged_too(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process()
    await world.create(["a"], partitions=10)
    await world.set_quota(2.0, 20.0)

    async def remove(*numbers: int, validate_only: bool = False) -> list[int]:
        request = RemovalRequest(name="a", topic_id="", partitions=numbers, mutation=None)
        answered = await world.controller.partitions.remove(
            [request], validate_only=validate_only, wait_s=DEADLINE_S, account=ANYBODY
        )
        return codes(answered.outcomes)

    assert await remove(8, 9, validate_only=True) == [0]
    assert await remove(0) == [errors_pb2.ERROR_CODE_INVALID_PARTITIONS]
    assert process.requests == []
    assert await remove(8, 9) == [0]
    assert process.tokens(CLUSTER_KEY) == 18
