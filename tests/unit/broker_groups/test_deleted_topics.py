"""Offsets of topics that were deleted, and perhaps created anew under the same name."""

from typing import Any

import pytest
from regnum.broker.v1 import group_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.groups.calls import GroupCalls
from regnum_broker.groups.decisions.offsets import CommittedOffset, OffsetLimits, Place
from regnum_broker.groups.forgetting import forget_topic
from regnum_broker.groups.offset_book import Life
from regnum_broker.groups.topic_lives import BELIEVED_S, FORGOTTEN_S, TopicLives
from regnum_broker.servicers.group import GroupServicer
from regnum_service.errors import RegnumError
from regnum_testing.clock import FakeClock, settle
from regnum_testing.group_partition import LIMITS, GroupPartition, OneShard, TopicsShown

REIGN = 1 << 32
"""Versions of one controller epoch."""


class Coordinator:
    """A partition of groups, calls about them, and what the broker knows of topics."""

    def __init__(self) -> None:
        self.known = TopicsShown()
        self.partition = GroupPartition()
        self.use()

    def use(self) -> None:
        """Serve the partition's present shard."""
        self.one = OneShard(self.partition.shard, self.known, self.partition.clock)
        coordinator: Any = self.one
        self.calls = GroupCalls(coordinator, clock=self.partition.clock, limits=LIMITS, offset_limits=OffsetLimits())
        self.servicer = GroupServicer(coordinator=coordinator, calls=self.calls, clock=self.partition.clock)

    async def commit(self, offset: int, *topics: str, group_id: str = "g", topic_id: str = "") -> None:
        assert await self.committing(offset, *topics, group_id=group_id, topic_id=topic_id) == {0}

    async def committing(self, offset: int, *topics: str, group_id: str = "g", topic_id: str) -> set[int]:
        """Error codes."""
        context: Any = Call()
        request = group_pb2.OffsetCommitRequest(
            group_id=group_id,
            generation_id=-1,
            offsets=[
                group_pb2.OffsetToCommit(topic=topic, partition=0, offset=offset, topic_id=topic_id) for topic in topics
            ],
        )
        answer = await self.servicer.OffsetCommit(request, context)
        return {one.error_code for one in answer.results}

    async def shown(self, topic: str = "t") -> int | None:
        ((_, offset),) = await self.calls.fetch("g", [Place(topic, 0)])
        every = {place: one.offset for place, one in await self.calls.fetch("g", None) if one is not None}
        found = None if offset is None else offset.offset
        assert every.get(Place(topic, 0)) == found, "asked for or not, it is the same"
        return found

    async def look(self) -> list[Life]:
        """What the coordinator does now and then."""
        book = self.partition.shard.offsets
        over = await self.one.lives.look([(life, use.version) for life, use in book.uses.items()], most=100)
        for life in over:
            await forget_topic(self.partition.shard, life)
        await settle()
        return over


class Call:
    """A call whose caller has time."""

    def time_remaining(self) -> float:
        return 30.0


async def test_a_topic_made_anew_does_not_go_on_where_the_other_one_was() -> None:
    coordinator = Coordinator()
    coordinator.known.show(REIGN + 5, t="A", u="U")
    await coordinator.commit(7, "t", "u")
    coordinator.known.show(REIGN + 6, t="B", u="U")
    assert await coordinator.shown() is None
    assert await coordinator.shown("u") == 7
    await coordinator.commit(1, "t")
    assert await coordinator.shown() == 1, "what is committed now is the new one's"
    coordinator.partition.shard = await coordinator.partition.following()
    coordinator.use()
    assert (await coordinator.shown(), await coordinator.shown("u")) == (1, 7)
    assert await coordinator.look() == []


async def test_offsets_of_a_topic_that_is_gone_are_forgotten_at_the_next_look() -> None:
    coordinator = Coordinator()
    coordinator.known.show(REIGN + 5, t="A", u="U")
    for group_id in ("g", "h"):
        await coordinator.commit(7, "t", "u", group_id=group_id)
    coordinator.known.show(REIGN + 6, u="U")
    assert await coordinator.shown() == 7, "nobody reads it, and the store has not been asked"
    assert await coordinator.look() == [Life("t", "A")]
    assert (await coordinator.shown(), await coordinator.shown("u")) == (None, 7)
    following = await coordinator.partition.following()
    assert set(following.offsets.uses) == {Life("u", "U")}
    assert set(following.offsets.of("h")) == {Place("u", 0)}
    assert await coordinator.look() == []


async def test_what_another_reign_says_to_be_gone_is_asked_for_after_a_while() -> None:
    coordinator = Coordinator()
    coordinator.known.show(REIGN + 5, t="A")
    await coordinator.commit(7, "t")
    coordinator.known.show(2 * REIGN + 1)
    assert await coordinator.look() == []
    coordinator.partition.clock.skip(FORGOTTEN_S - 1.0)
    assert await coordinator.look() == []
    assert await coordinator.shown() == 7, "nobody reads it, and nothing is certain"
    coordinator.partition.clock.skip(2.0)
    assert await coordinator.look() == [Life("t", "A")]
    assert await coordinator.shown() is None


async def test_a_topic_that_is_there_again_was_never_gone() -> None:
    coordinator = Coordinator()
    coordinator.known.show(REIGN + 5, t="A")
    await coordinator.commit(7, "t")
    coordinator.known.show(2 * REIGN + 1)
    await coordinator.look()
    coordinator.partition.clock.skip(FORGOTTEN_S - 1.0)
    coordinator.known.show(2 * REIGN + 2, t="A")
    await coordinator.look()
    coordinator.known.show(2 * REIGN + 3)
    coordinator.partition.clock.skip(2.0)
    assert await coordinator.look() == []
    assert await coordinator.shown() == 7


async def test_metadata_that_is_older_than_an_offset_says_nothing_about_its_topic() -> None:
    coordinator = Coordinator()
    coordinator.known.show(REIGN + 9, t="B")
    await coordinator.commit(3, "t")
    for older in (REIGN + 8, 0):
        coordinator.known.show(older, t="A")
        await coordinator.look()
        coordinator.partition.clock.skip(2 * FORGOTTEN_S)
        assert await coordinator.look() == []
        assert await coordinator.shown() == 3


async def test_another_reign_is_believed_when_it_has_said_so_for_a_while() -> None:
    coordinator = Coordinator()
    coordinator.known.show(REIGN + 9, t="B")
    await coordinator.commit(3, "t")
    coordinator.known.show(2 * REIGN + 1, t="A")
    with pytest.raises(RegnumError) as uncertain:
        await coordinator.shown()
    assert uncertain.value.code == errors_pb2.ERROR_CODE_COORDINATOR_LOAD_IN_PROGRESS
    coordinator.known.show(2 * REIGN + 2, t="B")
    assert await coordinator.shown() == 3
    coordinator.known.show(2 * REIGN + 3, t="C")
    await coordinator.look()
    coordinator.partition.clock.skip(BELIEVED_S)
    assert await coordinator.shown() is None


async def test_a_commit_under_way_is_not_forgotten_with_what_it_replaces() -> None:
    coordinator = Coordinator()
    coordinator.known.show(REIGN + 5, t="A")
    await coordinator.commit(7, "t")
    coordinator.known.show(REIGN + 6, t="B")
    shard = coordinator.partition.shard
    shard.offsets.begin("g", [Place("t", 0)])
    assert await coordinator.look() == [Life("t", "A")]
    assert shard.offsets.of("g")[Place("t", 0)].offset == 7
    shard.offsets.done("g", [Place("t", 0)])
    coordinator.partition.clock.skip(FORGOTTEN_S)
    await coordinator.look()
    assert not shard.offsets.of("g")


async def test_offsets_whose_topic_was_not_known_stay() -> None:
    coordinator = Coordinator()
    await coordinator.commit(7, "t")
    coordinator.known.show(REIGN + 6, t="B")
    await coordinator.look()
    coordinator.partition.clock.skip(FORGOTTEN_S)
    assert await coordinator.look() == []
    assert await coordinator.shown() == 7
    offset = coordinator.partition.shard.offsets.of("g")[Place("t", 0)]
    assert offset == CommittedOffset(offset=7, committed_ms=offset.committed_ms)


async def test_who_still_reads_the_topic_that_was_before_commits_nothing_of_it() -> None:
    coordinator = Coordinator()
    coordinator.known.show(REIGN + 6, t="B")
    await coordinator.commit(3, "t", topic_id="B")
    assert await coordinator.committing(900, "t", topic_id="A") == {errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID}
    assert await coordinator.shown() == 3
    # The next coordinator is behind: it has heard of A, or of no such topic.
    for ids in ({"t": "A"}, {}):
        coordinator.known.show(REIGN + 5, **ids)
        assert await coordinator.committing(900, "t", topic_id="A") == {errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID}
        await coordinator.commit(4, "t", topic_id="B")
        await coordinator.commit(5, "t")
        coordinator.known.show(REIGN + 7, t="B")
        assert await coordinator.shown() == 5, "what was committed there is B's"


async def test_a_commit_after_the_deletion_is_still_one_of_the_topic_that_was() -> None:
    coordinator = Coordinator()
    coordinator.known.show(REIGN + 5, t="A")
    await coordinator.commit(7, "t", topic_id="A")
    coordinator.known.show(REIGN + 6)
    await coordinator.commit(8, "t", topic_id="A")
    await coordinator.commit(9, "t")
    assert await coordinator.committing(1, "t", topic_id="B") == {errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID}, (
        "not known yet"
    )
    coordinator.known.show(REIGN + 7, t="B")
    assert await coordinator.shown() is None
    await coordinator.commit(1, "t", topic_id="B")
    assert await coordinator.shown() == 1


async def test_an_offset_of_a_topic_that_is_not_known_yet_waits_for_it() -> None:
    coordinator = Coordinator()
    await coordinator.commit(7, "t", topic_id="A")
    assert await coordinator.shown() == 7
    coordinator.known.show(REIGN + 6, t="A")
    assert await coordinator.shown() == 7
    coordinator.known.show(REIGN + 7, t="B")
    with pytest.raises(RegnumError):
        await coordinator.shown()
    coordinator.partition.clock.skip(BELIEVED_S)
    assert await coordinator.shown() is None


async def test_topics_that_the_store_still_has_leave_others_their_turn() -> None:
    clock, known = FakeClock(), TopicsShown()
    lives = TopicLives(known, clock)
    known.show(REIGN)
    there = [(Life(f"t{number}", "A"), 1) for number in range(5)]
    assert await lives.look(there, most=2) == []
    clock.skip(FORGOTTEN_S)
    asked = [life for _ in range(3) for life in await lives.look(there, most=2)]
    assert asked == [life for life, _ in there]
    assert await lives.look(there, most=2) == [], "each has been asked for, and is there"
    clock.skip(FORGOTTEN_S)
    assert len(await lives.look(there, most=2)) == 2
